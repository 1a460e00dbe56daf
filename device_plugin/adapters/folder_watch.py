"""Wakes a loop as soon as something comes into a folder or leaves it, by inotify.

It only wakes: whoever is woken looks for himself, and looks now and then anyhow, so a lost event costs time
and nothing else.
"""

import asyncio
import ctypes
import logging
import os
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)

_EVENTS = 0x100 | 0x200 | 0x80 | 0x40
"""IN_CREATE, IN_DELETE, IN_MOVED_TO, IN_MOVED_FROM; from <sys/inotify.h>."""
_LARGEST_READ = 64 * 1024

_libc = ctypes.CDLL(None, use_errno=True)


class FolderWatch:
    """Watches `directory`, once it is there. For one event loop."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None
        self._watched: int | None = None
        self._happened = asyncio.Event()

    async def wait(self, longest_s: float) -> None:
        """Return when something happens in the folder, or after `longest_s`."""
        self._begin()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._happened.wait(), longest_s)
        self._happened.clear()

    def close(self) -> None:
        """Stop watching."""
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _begin(self) -> None:
        """Watch the folder, and the one that replaced it."""
        try:
            inode = self._directory.stat().st_ino
        except OSError:
            return
        if self._watched == inode:
            return
        self.close()
        self._watched = inode
        descriptor = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if descriptor < 0 or _libc.inotify_add_watch(descriptor, bytes(self._directory), _EVENTS) < 0:
            reason = os.strerror(ctypes.get_errno())
            log.info("%s is looked at now and then alone: %s", self._directory, reason)
            if descriptor >= 0:
                os.close(descriptor)
            return
        self._descriptor = descriptor
        asyncio.get_running_loop().add_reader(descriptor, self._take)

    def _take(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._descriptor or 0, _LARGEST_READ)
        self._happened.set()
