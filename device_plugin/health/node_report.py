"""Tells the cluster how the node's GPUs are: a taint while they have failed, an event for each change."""

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

from mcp2026.device_plugin.adapters.cluster import Cluster
from mcp2026.device_plugin.adapters.events import EVENTS_PATH, gpu_event
from mcp2026.device_plugin.adapters.taints import NodeTaints
from mcp2026.device_plugin.devices import GpuCondition, Snapshot
from mcp2026.device_plugin.errors import ApiServerError
from mcp2026.device_plugin.health.settings import HealthSettings
from mcp2026.device_plugin.health.tainting import Taint, wanted_taint
from mcp2026.device_plugin.inventory import Inventory

log = logging.getLogger(__name__)

RECHECK_S = 300.0
"""How often the taint is looked at although nothing changed: somebody may have removed it."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0


class NodeReport:
    """Reports from the moment at which `looked` is set: until then the conditions mean nothing."""

    def __init__(
        self,
        inventory: Inventory,
        cluster: Cluster,
        node_name: str,
        settings: HealthSettings,
        looked: asyncio.Event,
    ) -> None:
        self._inventory = inventory
        self._cluster = cluster
        self._node_name = node_name
        self._settings = settings
        self._looked = looked
        self._taints = NodeTaints(cluster, node_name)
        self._told: Mapping[str, GpuCondition] = {}
        self._brought: Taint | None = None
        self._checked_at: float | None = None

    async def run(self) -> None:
        """Report at every change until cancelled; what fails is tried again, later each time."""
        await self._looked.wait()
        pause_s = FIRST_PAUSE_S
        while True:
            snapshot = self._inventory.snapshot
            try:
                await self._keep_taint(snapshot)
                await self._tell_changes(snapshot)
            except ApiServerError as error:
                log.warning("the node cannot be told how its GPUs are, again in %g s: %s", pause_s, error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                continue
            pause_s = FIRST_PAUSE_S
            with suppress(TimeoutError):
                await asyncio.wait_for(self._inventory.next_after(snapshot), RECHECK_S)

    async def _keep_taint(self, snapshot: Snapshot) -> None:
        wanted = wanted_taint(snapshot, self._settings)
        now = time.monotonic()
        fresh = self._checked_at is not None and now - self._checked_at < RECHECK_S
        if fresh and wanted == self._brought:
            return
        if await self._taints.bring(wanted):
            log.info("the node's taint is now %s", "gone" if wanted is None else wanted["value"])
        self._brought, self._checked_at = wanted, now

    async def _tell_changes(self, snapshot: Snapshot) -> None:
        for gpu in snapshot.machine.gpus:
            before, after = self._told.get(gpu.uuid), snapshot.conditions.get(gpu.uuid)
            if _kind(before) != _kind(after):
                event = gpu_event(gpu, after, self._node_name, datetime.now(UTC))
                await self._cluster.create(EVENTS_PATH, event)
                others = {uuid: condition for uuid, condition in self._told.items() if uuid != gpu.uuid}
                self._told = others if after is None else {**others, gpu.uuid: after}


def _kind(condition: GpuCondition | None) -> tuple[str, str]:
    return ("Healthy", "") if condition is None else (condition.health, condition.reason)
