"""Where `mcp2026 local` keeps versions that are fetched: among the user's caches, for all its servers."""

import os
from collections.abc import Mapping
from pathlib import Path

from mcp2026.api.serving import ServedVersion
from mcp2026.api.sources import is_remote


def user_cache(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder, which need not be there yet."""
    base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base, "mcp2026", "models")


def file_here(version: ServedVersion) -> str:
    """Return where the file of a version lies that is served: a source was fetched under its digest."""
    return str(user_cache() / str(version.sha256)) if is_remote(version.path) else version.path
