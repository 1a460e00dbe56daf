"""Tells the cluster how the node's GPUs are: a taint while they have failed, an event for each change."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus

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
        """Report at every change until cancelled.

        What fails is tried again, later each time, and at once when a GPU changes. A taint that may not be
        written holds up no event, nor the other way round.
        """
        await self._looked.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat(self._keep_taint, "tainted", "get and patch on nodes"))
            group.create_task(self._repeat(self._tell_changes, "told by events", "create on events"))

    async def _repeat(self, report: Callable[[Snapshot], Awaitable[None]], what: str, right: str) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            snapshot = self._inventory.snapshot
            try:
                await report(snapshot)
            except ApiServerError as error:
                forbidden = error.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
                advice = f": the service account needs {right}" if forbidden else ""
                log.warning("how GPUs are cannot be %s, again in %g s: %s%s", what, pause_s, error, advice)
                await self._wait(snapshot, pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            else:
                pause_s = FIRST_PAUSE_S
                await self._wait(snapshot, RECHECK_S)

    async def _wait(self, seen: Snapshot, longest_s: float) -> None:
        """Return when GPUs are otherwise than in `seen`, or after `longest_s`."""
        now = seen
        with suppress(TimeoutError):
            async with asyncio.timeout(longest_s):
                while now.conditions == seen.conditions and now.machine is seen.machine:
                    now = await self._inventory.next_after(now)

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
