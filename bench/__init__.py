"""Comparisons of inference servers: the same model, cores and client for all, in one run."""
