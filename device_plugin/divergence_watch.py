"""Compares what pods hold with what was reserved for them, and tells each difference once."""

import asyncio
import logging
from contextlib import suppress
from http import HTTPStatus

from mcp2026.device_plugin.adapters.cluster import Cluster
from mcp2026.device_plugin.adapters.pod_events import divergence_event, send_event, utc_now
from mcp2026.device_plugin.errors import ApiServerError
from mcp2026.device_plugin.inventory import Inventory
from mcp2026.device_plugin.metrics import Metrics
from mcp2026.device_plugin.reservations import Divergence, divergences

log = logging.getLogger(__name__)


RETRY_S = 5.0
"""After this time an event is sent again that the API server could not take for the moment."""


async def watch_divergences(inventory: Inventory, cluster: Cluster, metrics: Metrics, node_name: str) -> None:
    """Compare at every change of the inventory, until cancelled."""
    known: set[Divergence] = set()
    unsent: set[Divergence] = set()
    while True:
        snapshot = inventory.snapshot
        found = divergences(snapshot.reservations, snapshot.held_by_container)
        for divergence in found:
            if divergence not in known:
                metrics.divergences.inc()
                log.warning("%s", divergence, extra={"pod": f"{divergence.namespace}/{divergence.pod}"})
                unsent.add(divergence)
        known = set(found)
        unsent &= known
        for divergence in list(unsent):
            if await _sent(cluster, divergence, node_name):
                unsent.remove(divergence)
        with suppress(TimeoutError):
            async with asyncio.timeout(RETRY_S if unsent else None):
                await inventory.next_after(snapshot)


async def _sent(cluster: Cluster, divergence: Divergence, node_name: str) -> bool:
    """Send the event; tell whether there is nothing left to do about it."""
    try:
        await send_event(cluster, divergence_event(divergence, node_name, utc_now()))
    except ApiServerError as error:
        log.warning("the event on the pod could not be written: %s", error)
        return HTTPStatus.BAD_REQUEST <= error.status < HTTPStatus.TOO_MANY_REQUESTS
    return True
