"""BentoML."""
