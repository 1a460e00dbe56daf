"""Tells users, by an event on their pod, that it holds other devices than were reserved for it."""

from datetime import UTC, datetime
from typing import Any

from mcp2026.api.names import DEVICE_PLUGIN_FIELD_MANAGER
from mcp2026.device_plugin.adapters.cluster import Cluster
from mcp2026.device_plugin.reservations import Divergence

DIVERGED = "GpuAssignmentDiverged"
LONGEST_NOTE = 1024
"""Characters; the API server's limit."""


def divergence_event(divergence: Divergence, node_name: str, now: datetime) -> dict[str, Any]:
    """Return the event for the pod of `divergence`; `now` is in UTC."""
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": f"{divergence.pod[:200]}-", "namespace": divergence.namespace},
        "eventTime": now.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "type": "Warning",
        "reason": DIVERGED,
        "action": "Allocate",
        "note": f"{divergence}: the kubelet chose otherwise; the GPUs work, but may be linked worse"[
            :LONGEST_NOTE
        ],
        "reportingController": f"mcp2026.io/{DEVICE_PLUGIN_FIELD_MANAGER}",
        "reportingInstance": node_name,
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": divergence.namespace,
            "name": divergence.pod,
            "uid": divergence.uid,
        },
    }


async def send_event(cluster: Cluster, event: dict[str, Any]) -> None:
    """Create `event`.

    Raises:
        ApiServerError: the server cannot be reached, or refuses.

    """
    namespace = event["metadata"]["namespace"]
    await cluster.create(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", event)


def utc_now() -> datetime:
    """Return the time of day."""
    return datetime.now(UTC)
