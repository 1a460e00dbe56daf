"""The ceiling: a server in a few lines, with no features."""
