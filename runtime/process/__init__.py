"""One server is a parent that holds the port and worker processes that serve."""
