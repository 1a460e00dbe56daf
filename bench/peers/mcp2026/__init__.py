"""MCP 2026 itself."""
