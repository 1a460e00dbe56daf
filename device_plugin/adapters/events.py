"""Tells administrators, by events on the node, that a GPU failed or came back."""

from datetime import datetime
from typing import Any

from mcp2026.api.names import DEVICE_PLUGIN_FIELD_MANAGER
from mcp2026.device_plugin.devices import GpuCondition
from mcp2026.topology.machine import Gpu

EVENTS_PATH = "/apis/events.k8s.io/v1/namespaces/default/events"
"""Where events of objects without a namespace are."""
LONGEST_NOTE = 1024
"""Characters; the API server's limit."""


def gpu_event(gpu: Gpu, condition: GpuCondition | None, node_name: str, now: datetime) -> dict[str, Any]:
    """Return the event that `gpu` is as `condition` says, None: healthy again. `now` is in UTC."""
    reason = "GpuHealthy" if condition is None else f"Gpu{condition.health}"
    what = "it is healthy again" if condition is None else condition.message
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": f"{node_name[:200]}-gpu-", "namespace": "default"},
        "eventTime": now.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "type": "Normal" if condition is None else "Warning",
        "reason": reason,
        "action": "Monitor",
        "note": f"GPU {gpu.index} ({gpu.uuid}): {what}"[:LONGEST_NOTE],
        "reportingController": f"mcp2026.io/{DEVICE_PLUGIN_FIELD_MANAGER}",
        "reportingInstance": node_name,
        "regarding": {"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": node_name},
    }
