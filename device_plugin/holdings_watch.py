"""Asks the kubelet again and again who holds which device, and brings the answer into the inventory.

Rarely while nobody holds any; an Allocate ends the long pause.
"""

import asyncio
import logging
import time
from contextlib import suppress
from functools import partial

from mcp2026.device_plugin.adapters.kubelet_client import held_devices
from mcp2026.device_plugin.devices import Snapshot
from mcp2026.device_plugin.errors import KubeletError
from mcp2026.device_plugin.holdings import Promises, pause_before_asking
from mcp2026.device_plugin.inventory import Inventory
from mcp2026.device_plugin.settings import Settings

log = logging.getLogger(__name__)


class HoldingsWatch:
    """Keeps `Snapshot.holdings` as pod-resources tells."""

    def __init__(self, settings: Settings, inventory: Inventory, promises: Promises) -> None:
        self._interval_s = settings.holders_interval_s
        self._ask_kubelet = partial(held_devices, settings.pod_resources_socket, settings.names)
        self._inventory = inventory
        self._promises = promises
        self._failure = ""

    async def run(self) -> None:
        """Ask every `holders_interval_s`, and rarer while nothing is held, until cancelled."""
        empty_since = time.monotonic()
        while True:
            known = await self.ask()
            now, snapshot = time.monotonic(), self._inventory.snapshot
            if snapshot.holdings or not known:
                empty_since = now
            await self._wait(snapshot, pause_before_asking(now - empty_since, self._interval_s))

    async def ask(self) -> bool:
        """Ask once and tell whether there was an answer; what cannot be asked stays as it was known."""
        asked_at = time.monotonic()
        try:
            told = await self._ask_kubelet()
        except KubeletError as error:
            if str(error) != self._failure:
                self._failure = str(error)
                log.warning("who holds which GPU is not known: %s", error)
            return False
        self._failure = ""
        self._inventory.change(partial(self._promises.reconcile, told=told, asked_at=asked_at))
        return True

    async def _wait(self, snapshot: Snapshot, pause_s: float) -> None:
        """Wait for `pause_s`; from when something was handed out on no longer than the interval."""
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                while pause_s > self._interval_s and not snapshot.holdings:
                    snapshot = await self._inventory.next_after(snapshot)
                await asyncio.sleep(self._interval_s)
