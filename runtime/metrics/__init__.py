"""Counting in every worker, and one exposition over all of them."""
