"""Sample models made from nothing but a seed: the quick start, the tests and the benchmarks use them.

The same name always gives the same bytes, so a digest can stand in a resource and a figure can be
compared with last month's.
"""

from tools.models.catalogue import MODELS, generate

__all__ = ["MODELS", "generate"]
