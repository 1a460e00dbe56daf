"""What the file system says of each model's folder in a repository; no file is read."""

import os
from collections.abc import Collection
from pathlib import Path

from mcp2026.runtime.errors import ModelLoadError
from mcp2026.runtime.model.file_state import FileState, state_of
from mcp2026.runtime.model.triton.repository import model_folders
from mcp2026.runtime.repository_watch.settling import FolderState

MOST_FILES = 10_000
"""Of one model, with files that are under way and folders. No more are looked at: it is no model's folder."""


def look_at(repository: Path, known: Collection[str]) -> dict[str, FolderState]:
    """Return the state of each model's folder, by name. Links are followed, each folder is walked once.

    `known` are models whose folders count though they cannot be read now.

    Raises:
        ModelLoadError: the repository cannot be read.

    """
    try:
        return {name: _state(repository / name) for name in model_folders(repository, known)}
    except OSError as error:
        raise ModelLoadError(
            str(repository), str(error.strerror), "What is served stays; make it readable for this user"
        ) from error


def _state(folder: Path) -> FolderState:
    files: set[FileState] = set()
    passing: set[FileState] = set()
    seen: set[tuple[int, int]] = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [
            name for name in folders if not name.startswith(".") and _is_new(Path(place, name), seen)
        ]
        for name in names[:MOST_FILES]:
            state = _file_state(Path(place, name))
            if state is not None:
                (passing if name.startswith(".") else files).add(state)
        if len(files) + len(passing) + len(seen) > MOST_FILES:
            break
    return FolderState(frozenset(files), frozenset(passing))


def _file_state(file: Path) -> FileState | None:
    """Return the state of a file, or of a link that leads nowhere; None: nothing can be told of it.

    One file that cannot be looked at, such as a link to itself, hides neither its model nor the others.
    """
    try:
        return state_of(file)
    except OSError:
        pass
    try:
        found = file.lstat()
    except OSError:
        return None
    return FileState(str(file), found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _is_new(folder: Path, seen: set[tuple[int, int]]) -> bool:
    """Return whether the walk was not here before: a link may lead back."""
    try:
        found = folder.stat()
    except OSError:
        return False
    identity = found.st_dev, found.st_ino
    if identity in seen:
        return False
    seen.add(identity)
    return True
