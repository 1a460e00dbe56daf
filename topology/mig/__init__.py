"""Slices of a GPU, purely: the geometry of MIG profiles, and where they are best placed."""
