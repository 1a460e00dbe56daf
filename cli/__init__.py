"""The command line `mcp2026`: serve locally, look at topologies."""
