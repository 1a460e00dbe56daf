"""What a converter that was killed has left beside its output, told by a lock from what is being written."""

import fcntl
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def make_and_hold(make: Callable[[], Path]) -> tuple[Path, int]:
    """Make a file or folder that nobody takes for left over while the descriptor is open that is returned.

    Raises:
        OSError: it cannot be made.

    """
    while True:
        path = make()
        descriptor = os.open(path, os.O_RDONLY)
        with suppress(OSError):  # a file system without locks: then nothing is removed either
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                return path, descriptor
        os.close(descriptor)  # it was removed between the two


def remove_left_over(folder: Path, pattern: str) -> None:
    """Remove the files and folders in `folder` that match `pattern` and that nobody holds."""
    for path in folder.glob(pattern):
        with suppress(OSError):  # it is held, has gone, or belongs to somebody else
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            finally:
                os.close(descriptor)
