"""A serving configuration in a file: each change of it is a document, also by a link that moves.

The kubelet changes the files of a ConfigMap by moving a link of their folder; editors write another file and
rename it. So the folder is watched, and the file read whenever anything moves there.
"""

import asyncio
import logging
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
    """Put what the file says into `mailbox`, now and whenever it changes, until `stop` is set."""
    content = _read(path, None)
    if content is not None:
        mailbox.put(content)
    async for _ in awatch(
        path.parent,
        debounce=_SETTLE_MS,
        step=_SETTLE_MS,
        stop_event=stop,
        rust_timeout=_LOOK_MS,
        yield_on_timeout=True,
        recursive=False,
    ):
        changed = _read(path, content)
        if changed is not None and changed != content:
            content = changed
            mailbox.put(content)


def _read(path: Path, known: bytes | None) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError as error:
        if known is not None:  # between an old file and a new one there may be none for a moment
            log.warning("%s cannot be read, what it said stays: %s", path, error.strerror)
        return None
