"""The Python client of MCP 2026."""
