"""Compares what pods hold with what was reserved for them, and tells each difference once."""

import logging

from mcp2026.device_plugin.adapters.cluster import Cluster
from mcp2026.device_plugin.adapters.pod_events import divergence_event, send_event, utc_now
from mcp2026.device_plugin.errors import ApiServerError
from mcp2026.device_plugin.inventory import Inventory
from mcp2026.device_plugin.metrics import Metrics
from mcp2026.device_plugin.reservations import Divergence, divergences

log = logging.getLogger(__name__)


async def watch_divergences(inventory: Inventory, cluster: Cluster, metrics: Metrics, node_name: str) -> None:
    """Compare at every change of the inventory, until cancelled."""
    told: set[Divergence] = set()
    while True:
        snapshot = inventory.snapshot
        found = divergences(snapshot.reservations, snapshot.held_by_container)
        for divergence in found:
            if divergence in told:
                continue
            metrics.divergences.inc()
            log.warning("%s", divergence, extra={"pod": f"{divergence.namespace}/{divergence.pod}"})
            try:
                await send_event(cluster, divergence_event(divergence, node_name, utc_now()))
            except ApiServerError as error:
                log.warning("the event on the pod could not be written: %s", error)
        told = set(found)
        await inventory.next_after(snapshot)
