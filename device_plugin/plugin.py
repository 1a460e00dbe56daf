"""The running plugin: independent loops around one inventory, until it is told to stop.

The registrar keeps the kubelet connected; the other loops change the inventory, each its own fields of the
snapshot, or carry what it holds elsewhere. None knows of another.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from mcp2026.device_plugin.adapters.plugin_server import DevicePluginService
from mcp2026.device_plugin.adapters.probe_endpoint import ProbeEndpoint
from mcp2026.device_plugin.allocator import Allocator
from mcp2026.device_plugin.errors import DevicePluginError
from mcp2026.device_plugin.holdings import Promises
from mcp2026.device_plugin.holdings_watch import HoldingsWatch
from mcp2026.device_plugin.inventory import Inventory
from mcp2026.device_plugin.metrics import Metrics
from mcp2026.device_plugin.preparing import keep_prepared
from mcp2026.device_plugin.registrar import Registrar
from mcp2026.device_plugin.settings import Settings

LONGEST_START_S = 15.0
"""For how long the kubelet is not served because it is not known yet how GPUs are shared."""


class Part(Protocol):
    """A loop beside the registrar: a health monitor, a sharing controller."""

    async def run(self) -> None:
        """Work until cancelled; a `DevicePluginError` ends the plugin."""

    def why_not_ready(self) -> str:
        """Return what keeps this part from its work; an empty text when nothing does."""


Loop = Callable[[], Coroutine[Any, Any, None]]
"""Works until cancelled."""


class Plugin:
    """One plugin. `run` ends by cancellation, or by an error that a restart must mend."""

    def __init__(
        self,
        settings: Settings,
        inventory: Inventory,
        metrics: Metrics,
        parts: Iterable[Part] = (),
        loops: Iterable[Loop] = (),
    ) -> None:
        self._settings = settings
        self._inventory = inventory
        self._metrics = metrics
        promises = Promises()
        self._allocator = Allocator(settings, inventory, promises, metrics)
        self._holdings = HoldingsWatch(settings, inventory, promises)
        self._registrar = Registrar(
            settings,
            inventory,
            metrics,
            lambda resource, tell: DevicePluginService(resource, inventory, self._allocator, tell),
        )
        self._parts = tuple(parts)
        self._loops: tuple[Loop, ...] = (partial(keep_prepared, inventory), *loops)

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            DevicePluginError: the kubelet could not be reached, or refused, within the settings' time; or a
                part cannot go on.

        """
        endpoint = None
        self._allocator.write_cdi()
        self._allocator.tell_unseen_nodes()
        try:
            if self._settings.metrics_port is not None:
                endpoint = ProbeEndpoint(self._settings.metrics_port, self._metrics, self.why_not_ready)
                await endpoint.start()
            async with asyncio.TaskGroup() as group:
                for run in (
                    self._holdings.run,
                    *(part.run for part in self._parts),
                    *self._loops,
                    self._observe,
                    self._allocator.keep_cdi,
                    self._serve,
                ):
                    group.create_task(run())
        except ExceptionGroup as failures:
            first = failures.exceptions[0]
            if isinstance(first, DevicePluginError):
                raise first from None
            raise
        finally:
            if endpoint is not None:
                await endpoint.stop()

    def why_not_ready(self) -> str:
        """Return what keeps the plugin from its work; an empty text when nothing does."""
        reasons = (self._registrar.why_not_ready, *(part.why_not_ready() for part in self._parts))
        return next((reason for reason in reasons if reason), "")

    async def _serve(self) -> None:
        """Serve the kubelet once it is known how GPUs are shared: a first list of none would refuse pods."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_START_S):
                snapshot = self._inventory.snapshot
                while not snapshot.wanted or snapshot.positions.keys() - snapshot.sharing.keys():
                    snapshot = await self._inventory.next_after(snapshot)
        await self._registrar.run()

    async def _observe(self) -> None:
        while True:
            snapshot = self._inventory.snapshot
            self._metrics.observe(snapshot)
            await self._inventory.next_after(snapshot)
