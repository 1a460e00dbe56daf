"""Has a model's file changed since it was loaded? Told from the file system, without reading it."""

import os
from pathlib import Path
from typing import NamedTuple

from mcp2026.runtime.model.onnx_file import file_of

_MOST_NEIGHBOURS = 1_000


class FileState(NamedTuple):
    """One file as the file system describes it: another content has another one of these."""

    path: str
    device: int
    inode: int
    size: int
    modified_ns: int


def files_of_model(path: str) -> tuple[FileState, ...] | None:
    """Return the state of the model's file and of all in and below its folder, where its weights may lie.

    None: the folder is not there or holds too much to tell, so the model must be taken for changed.
    """
    file = Path(file_of(path)).absolute()
    states: list[FileState] = []
    try:
        for folder, _, names in os.walk(file.parent):
            states += [state for name in names if (state := _state(Path(folder, name))) is not None]
            if len(states) > _MOST_NEIGHBOURS:
                return None
        own = _state(file)
    except OSError:
        return None
    return None if own is None else tuple(sorted({own, *states}))


def _state(path: Path) -> FileState | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None  # a link that leads nowhere, or a file that has just gone
    return FileState(str(path), found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
