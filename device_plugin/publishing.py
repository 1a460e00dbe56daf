"""Keeps the node's `GPUTopology` written: at every change, and now and then without one."""

import asyncio
import logging
import time
from contextlib import suppress

from mcp2026.api.conditions import Condition
from mcp2026.api.gpu_topology import GPUTopologyStatus
from mcp2026.device_plugin.adapters.pod_events import utc_now
from mcp2026.device_plugin.adapters.topology_writer import TopologyWriter
from mcp2026.device_plugin.errors import PublicationError
from mcp2026.device_plugin.inventory import Inventory
from mcp2026.device_plugin.metrics import Metrics
from mcp2026.device_plugin.topology_status import topology_status

log = logging.getLogger(__name__)

REWRITE_INTERVAL_S = 300.0
"""An unchanged topology is written again after this time, in case that someone changed or deleted it."""
FIRST_BACKOFF_S, LAST_BACKOFF_S = 1.0, 60.0


async def keep_published(inventory: Inventory, writer: TopologyWriter, metrics: Metrics) -> None:
    """Write until cancelled; a write that fails is retried, later each time."""
    conditions: tuple[Condition, ...] | None = None
    written: GPUTopologyStatus | None = None
    written_at = 0.0
    backoff_s = FIRST_BACKOFF_S
    while True:
        snapshot = inventory.snapshot
        try:
            if conditions is None:
                conditions = await writer.conditions()
            status = topology_status(snapshot, conditions, utc_now())
            if status != written or time.monotonic() - written_at >= REWRITE_INTERVAL_S:
                await writer.write(status)
                metrics.publications.labels("succeeded").inc()
                written, written_at, conditions = status, time.monotonic(), status.conditions
                log.info("wrote the topology of %s", snapshot.machine.name)
        except PublicationError as error:
            metrics.publications.labels("failed").inc()
            log.warning("writing the topology failed, again in %g s: %s", backoff_s, error)
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, LAST_BACKOFF_S)
            continue
        backoff_s = FIRST_BACKOFF_S
        with suppress(TimeoutError):
            left_s = REWRITE_INTERVAL_S - (time.monotonic() - written_at)
            async with asyncio.timeout(max(left_s, 0)):
                await inventory.next_after(snapshot)
