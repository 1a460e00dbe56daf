"""Which file a client means that registers a version, and whether this server may read it.

A server reads what it was started with. Clients may add files from the same folders, and from no others:
whoever reaches the port must not make it open whatever its user can read.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

from mcp2026.api.names import MODELS_DIRECTORY
from mcp2026.api.serving import ServingConfig
from mcp2026.runtime.errors import invalid

_FORMS = "file:///folder/file, or pvc://claim/file in a pod that mounts the claim"


def allowed_folders(repository: str | None, models: Iterable[ServingConfig]) -> tuple[Path, ...]:
    """Return the folders that clients may register files from, without symlinks.

    They are the repository and the folders that hold the files of `models`.
    """
    folders = [] if repository is None else [Path(repository)]
    for config in models:
        for version in config.versions:
            path = Path(version.path)
            folders.append(path if path.is_dir() else path.parent)
    return tuple(sorted({folder.resolve() for folder in folders}))


def registered_file(uri: str, folders: tuple[Path, ...]) -> Path:
    """Return the file or folder that `uri` stands for, without symlinks.

    Raises:
        RequestError: it is no URI of a file, lies outside of `folders`, or is not there.

    """
    named = _path_of(uri)
    try:
        path = named.resolve()
        inside = any(path.is_relative_to(folder) for folder in folders)
        there = inside and path.exists()
    except (OSError, RuntimeError, ValueError) as error:  # too long, a loop of symlinks, a null byte
        raise invalid("uri", f"cannot be followed: {error}", _FORMS) from error
    if not inside:
        listed = ", ".join(map(str, folders)) or "none"
        problem = f"{uri[:200]!r} lies outside of the folders that this server serves from"
        raise invalid("uri", problem, f"a file below one of: {listed}")
    if not there:
        raise invalid("uri", f"there is no file {str(path)[:200]!r}", "a file that is there")
    return path


def _path_of(uri: str) -> Path:
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise invalid("uri", f"{uri[:200]!r} is no URI: {error}", _FORMS) from error
    path = os.fsdecode(unquote_to_bytes(parts.path))
    if parts.query or parts.fragment or not path.startswith("/") or path == "/":
        raise invalid("uri", f"{uri[:200]!r} names no file", _FORMS)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(path)
    if parts.scheme == "pvc" and parts.netloc not in ("", ".", ".."):
        return Path(MODELS_DIRECTORY, parts.netloc, path[1:])
    raise invalid("uri", f"{uri[:200]!r} is of another kind", _FORMS)
