"""The snapshot that holds now, shared by the streams of the kubelet, the loops and the publisher."""

import asyncio
from collections.abc import Callable

from mcp2026.device_plugin.devices import Snapshot


class Inventory:
    """Holds the latest snapshot and wakes those who wait for the next. Belongs to one event loop."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._changed = asyncio.Event()

    @property
    def snapshot(self) -> Snapshot:
        """The latest snapshot."""
        return self._snapshot

    def change(self, function: Callable[[Snapshot], Snapshot]) -> bool:
        """Take what `function` makes of the latest snapshot; tell whether anything changed.

        Several loops change one snapshot, so each hands in a function that sets its own fields
        (`lambda now: replace(now, conditions=…)`), never a snapshot that it read before it awaited anything:
        that would undo what the others did meanwhile.
        """
        snapshot = function(self._snapshot)
        if snapshot is self._snapshot or snapshot == self._snapshot:
            return False
        self._snapshot = snapshot
        self._changed.set()
        self._changed = asyncio.Event()
        return True

    async def next_after(self, seen: Snapshot) -> Snapshot:
        """Wait until the latest snapshot is another one than `seen`, and return it."""
        while self._snapshot is seen:
            await self._changed.wait()
        return self._snapshot
