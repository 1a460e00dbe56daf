"""KServe's Python server."""
