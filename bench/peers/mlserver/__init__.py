"""MLServer."""
