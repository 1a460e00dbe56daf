"""A serving configuration in a file: each change of it is a document, also by a link that moves.

The kubelet changes the files of a ConfigMap by moving a link of their folder; editors write another file and
rename it. So the folder is watched, and the file read whenever anything moves there.
"""

import asyncio
import logging
from pathlib import Path
from typing import Never

from mcp2026.api.folder_watch import FolderWatch
from mcp2026.runtime.revisions.newest import Newest

log = logging.getLogger(__name__)

_SETTLE_S = 0.05
"""Changes within this time are one: a file is often written in several pieces."""
_LOOK_S = 1.0
"""The file is read so often in any case: a link into another folder may change without an event here."""


async def watch_file(path: Path, mailbox: Newest) -> Never:
    """Put what the file says into `mailbox`, now and whenever it changes, until this is cancelled.

    A folder that is gone, or cannot be watched, is looked at every second.
    """
    reader = _Reader(path, mailbox)
    folder = FolderWatch(path.parent)
    try:
        while True:
            reader.look()
            if await folder.wait(_LOOK_S, _LOOK_S):
                await asyncio.sleep(_SETTLE_S)
    finally:
        folder.close()


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
                self._tell(f"{self._path} cannot be read, what it said stays: {error.strerror}")
            return
        self._told = ""
        if content != self._content:
            self._content = content
            self._mailbox.put(content)

    def _tell(self, problem: str) -> None:
        """Warn of a problem when it begins, and not at each look."""
        if problem != self._told:
            log.warning("%s", problem)
        self._told = problem
