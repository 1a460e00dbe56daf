"""Keeps two plugins of ours from one node: a lock on the folder of the plugins' sockets.

The folder itself is locked, since the kubelet removes the files in it when it starts. The lock goes with the
process, however that ends.
"""

import fcntl
import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)


class NodeLock:
    """The lock on `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None

    def take(self) -> bool | None:
        """Return whether the lock is ours now; None while there is no such folder."""
        if self._descriptor is not None:
            return True
        try:
            descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError as error:  # a file system without locks: sockets alone tell plugins apart
            log.warning("%s cannot be locked: %s", self._directory, error)
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Let another plugin have it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
