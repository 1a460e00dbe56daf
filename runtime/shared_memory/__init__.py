"""Shared memory of clients on the same machine, as a place that tensors are read from and written to."""
