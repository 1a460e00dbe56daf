"""Work of the event loop that a caller waits for, and may leave."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from mcp2026.runtime.protocol.exchange import Cancel


class Tasks:
    """Keeps what runs from being collected."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> Cancel:
        """Run `work`, and return what ends it because nobody waits any more."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

        def cancel() -> None:
            task.cancel()

        return cancel
