module mcp2026.io/tools/cluster/programs/pause

go 1.24
