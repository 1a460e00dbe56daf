"""Versions that lie on no file system of this machine: fetched once and kept (docs/decisions/0097)."""
