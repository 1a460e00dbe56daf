"""A data set through a model: `mcp2026-batch`, the process of `mode: Batch`. See docs/decisions/0092."""
