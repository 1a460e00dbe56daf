"""PyTriton."""
