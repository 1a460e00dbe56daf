"""The snapshot that holds now, shared by the kubelet's streams, the health probe and the publisher."""

import asyncio

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

    def update(self, snapshot: Snapshot) -> bool:
        """Take `snapshot` as the latest; tell whether anything changed."""
        if snapshot == self._snapshot:
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
