"""The contract of the native API: reads `api/openapi.yaml`, writes what follows from it."""

from tools.contract.generate import drift, generate
from tools.contract.source import SourceError, read_source

__all__ = ["SourceError", "drift", "generate", "read_source"]
