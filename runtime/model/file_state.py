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


def files_of_model(path: str, *, with_folder: bool) -> tuple[FileState, ...] | None:
    """Return the state of the model's file and, `with_folder`, of all in and below its folder.

    There the constants of a model lie that are not in its file. None: the file is not there, or the folder
    holds too much to tell, so the model must be taken for changed.
    """
    file = Path(file_of(path)).absolute()
    states: list[FileState] = []
    try:
        own = state_of(file)
        for folder, _, names in os.walk(file.parent) if with_folder else ():
            states += [state for name in names if (state := state_of(Path(folder, name))) is not None]
            if len(states) > _MOST_NEIGHBOURS:
                return None
    except OSError:
        return None
    return None if own is None else tuple(sorted({own, *states}))


def state_of(path: Path) -> FileState | None:
    """Return the state of a file, links followed; None if there is none.

    Raises:
        OSError: it cannot be told.

    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return None  # a link that leads nowhere, or a file that has just gone
    return FileState(str(path), found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
