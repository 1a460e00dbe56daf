"""A serving configuration in a file: each change of it is a document, also by a link that moves.

The kubelet changes the files of a ConfigMap by moving a link of their folder; editors write another file and
rename it. So the folder is watched, and the file read whenever anything moves there.
"""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path

from watchfiles import awatch

from mcp2026.runtime.revisions.newest import Newest

log = logging.getLogger(__name__)
logging.getLogger("watchfiles").setLevel(logging.WARNING)  # it logs each event

_SETTLE_MS = 50
"""Changes within this time are one: a file is often written in several pieces."""
_LOOK_MS = 1_000
"""The file is read so often in any case: what changes before the watch has begun makes no event."""


async def watch_file(path: Path, mailbox: Newest, stop: asyncio.Event) -> None:
    """Put what the file says into `mailbox`, now and whenever it changes, until `stop` is set.

    A folder that is gone, or cannot be listened to, is looked at every second until it can.
    """
    reader = _Reader(path, mailbox)
    reader.look()
    while not stop.is_set():
        try:
            async for _ in awatch(
                path.parent,
                debounce=_SETTLE_MS,
                step=_SETTLE_MS,
                stop_event=stop,
                rust_timeout=_LOOK_MS,
                yield_on_timeout=True,
                recursive=False,
            ):
                reader.look()
        except (OSError, RuntimeError) as error:
            reader.tell(f"{path.parent} cannot be listened to, it is looked at each second: {error}")
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _LOOK_MS / 1_000)
            reader.look()


class _Reader:
    """Remembers what the file said last, and what the log was told of it."""

    def __init__(self, path: Path, mailbox: Newest) -> None:
        self._path = path
        self._mailbox = mailbox
        self._content: bytes | None = None
        self._told = ""

    def look(self) -> None:
        """Put what the file says into the mailbox, if it says something new."""
        try:
            content = self._path.read_bytes()
        except OSError as error:
            if self._content is not None:  # between an old file and a new one there may be none for a moment
                self.tell(f"{self._path} cannot be read, what it said stays: {error.strerror}")
            return
        self._told = ""
        if content != self._content:
            self._content = content
            self._mailbox.put(content)

    def tell(self, problem: str) -> None:
        """Warn of a problem when it begins, and not at each look."""
        if problem != self._told:
            log.warning("%s", problem)
        self._told = problem
