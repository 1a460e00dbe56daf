"""LitServe."""
