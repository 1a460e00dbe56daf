"""Asks the kubelet again and again who holds which device, and brings the answer into the inventory."""

import asyncio
import logging
import time
from functools import partial

from mcp2026.device_plugin.adapters.kubelet_client import PodResources
from mcp2026.device_plugin.errors import KubeletError
from mcp2026.device_plugin.holdings import Promises
from mcp2026.device_plugin.inventory import Inventory
from mcp2026.device_plugin.settings import Settings

log = logging.getLogger(__name__)


class HoldingsWatch:
    """Keeps `Snapshot.holdings` as pod-resources tells."""

    def __init__(self, settings: Settings, inventory: Inventory, promises: Promises) -> None:
        self._interval_s = settings.holders_interval_s
        self._kubelet = PodResources(settings.pod_resources_socket, settings.names)
        self._inventory = inventory
        self._promises = promises
        self._failure = ""

    async def run(self) -> None:
        """Ask every `holders_interval_s` until cancelled."""
        try:
            while True:
                await self.ask()
                await asyncio.sleep(self._interval_s)
        finally:
            await self._kubelet.close()

    async def ask(self) -> None:
        """Ask once; what cannot be asked stays as it was known."""
        asked_at = time.monotonic()
        try:
            told = await self._kubelet.held()
        except KubeletError as error:
            if str(error) != self._failure:
                self._failure = str(error)
                log.warning("who holds which GPU is not known: %s", error)
            return
        self._failure = ""
        self._inventory.change(partial(self._promises.reconcile, told=told, asked_at=asked_at))
