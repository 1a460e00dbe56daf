"""Wakes a loop as soon as something in a folder comes, goes or was written, by inotify.

It only wakes: whoever is woken looks for himself, and looks now and then anyhow, so a lost event costs time
and nothing else.
"""

import asyncio
import ctypes
import logging
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)

_EVENTS = 0x100 | 0x200 | 0x80 | 0x40 | 0x8 | 0x400 | 0x800
"""IN_CREATE, IN_DELETE, IN_MOVED_TO, IN_MOVED_FROM, IN_CLOSE_WRITE, IN_DELETE_SELF, IN_MOVE_SELF; from
<sys/inotify.h>. IN_IGNORED and IN_Q_OVERFLOW come unasked, and wake as well."""
_GONE = 0x8000 | 0x800
"""IN_IGNORED, IN_MOVE_SELF: the folder is not at its path any more."""
_NOTICE = struct.Struct("=iIII")
_LARGEST_READ = 64 * 1024

_libc = ctypes.CDLL(None, use_errno=True)


class FolderWatch:
    """Watches `directory`, once it is there. For one event loop."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None
        self._watched: int | None = None
        self._happened = asyncio.Event()

    async def wait(self, longest_s: float, unwatched_s: float) -> bool:
        """Return when something happens in the folder, or after `longest_s`; tell whether it did happen.

        While the folder is not there, or cannot be watched, at most `unwatched_s` are waited. A watch that
        has just begun returns at once: what happened before it is to be looked for.
        """
        if self._begin():
            return True
        with suppress(TimeoutError):
            limit_s = longest_s if self._descriptor is not None else min(longest_s, unwatched_s)
            async with asyncio.timeout(limit_s):  # not wait_for, which loses a cancellation in Python 3.11
                await self._happened.wait()
        happened = self._happened.is_set()
        self._happened.clear()
        return happened

    def wake(self) -> None:
        """End the wait that is under way, or the next one: something else happened."""
        self._happened.set()

    def close(self) -> None:
        """Stop watching."""
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _begin(self) -> bool:
        """Watch the folder, and the one that replaced it; tell whether that has just begun."""
        try:
            inode = self._directory.stat().st_ino
        except OSError:
            inode = None
        if self._watched == inode:
            return False
        self.close()
        self._watched = inode
        if inode is None:
            return False
        descriptor = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if descriptor < 0 or _libc.inotify_add_watch(descriptor, bytes(self._directory), _EVENTS) < 0:
            reason = os.strerror(ctypes.get_errno())
            log.info("%s is looked at now and then alone: %s", self._directory, reason)
            if descriptor >= 0:
                os.close(descriptor)
            return False
        self._descriptor = descriptor
        asyncio.get_running_loop().add_reader(descriptor, self._take)
        return True

    def _take(self) -> None:
        self._happened.set()
        if self._descriptor is None:
            return
        with suppress(BlockingIOError):
            if any(mask & _GONE for mask in _masks(os.read(self._descriptor, _LARGEST_READ))):
                self.close()
                self._watched = None  # the next folder at the path may have the same inode


def _masks(notices: bytes) -> Iterator[int]:
    """Return what each notice tells of; `struct inotify_event` of inotify(7)."""
    at = 0
    while at < len(notices):
        _, mask, _, length = _NOTICE.unpack_from(notices, at)
        yield mask
        at += _NOTICE.size + length
