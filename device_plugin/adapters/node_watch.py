"""What the API server says of this node: the spec of its `GPUTopology`, and what is reserved for its pods."""

import logging
from collections.abc import Callable
from typing import Any

from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.gpu_assignment import GpuAssignment, parse_gpu_assignment
from mcp2026.api.names import GPU_ASSIGNMENT_ANNOTATION
from mcp2026.device_plugin.adapters.cluster import Cluster
from mcp2026.device_plugin.adapters.object_watch import ObjectWatch, WatchedObject
from mcp2026.device_plugin.adapters.topology_writer import TOPOLOGIES_PATH
from mcp2026.device_plugin.reservations import Reservation
from mcp2026.device_plugin.resource_names import ResourceNames
from mcp2026.device_plugin.wishes import SeenSpec

log = logging.getLogger(__name__)


class WatchedTopology(WatchedObject):
    """Of a `GPUTopology`, what somebody else writes."""

    spec: Any = None


def watch_spec(
    cluster: Cluster, node_name: str, changed: Callable[[SeenSpec], None]
) -> ObjectWatch[WatchedTopology]:
    """Return a watch that calls `changed` with the spec, at first and whenever it is another one."""
    last: SeenSpec | None = None

    def tell(objects: tuple[WatchedTopology, ...]) -> None:
        nonlocal last
        seen = SeenSpec(objects[0].spec, objects[0].metadata.generation) if objects else SeenSpec()
        if seen != last:  # most events are of the status, which this plugin writes itself
            last = seen
            changed(seen)

    return ObjectWatch(cluster, TOPOLOGIES_PATH, f"metadata.name={node_name}", WatchedTopology, tell)


def watch_reservations(
    cluster: Cluster,
    node_name: str,
    names: ResourceNames,
    changed: Callable[[tuple[Reservation, ...]], None],
) -> ObjectWatch[WatchedObject]:
    """Return a watch that calls `changed` with what is reserved for the pods of the node that live.

    Of a pod only the metadata is asked for.
    """
    selector = f"spec.nodeName={node_name},status.phase!=Succeeded,status.phase!=Failed"
    refused: set[str] = set()

    def tell(objects: tuple[WatchedObject, ...]) -> None:
        reservations = []
        for pod in objects:
            value = (pod.metadata.annotations or {}).get(GPU_ASSIGNMENT_ANNOTATION)
            if value is None:
                continue
            try:
                reservations.append(_reservation(pod, value, names))
            except InvalidResourceError as error:
                if pod.metadata.uid not in refused:
                    log.warning("pod %s/%s: %s", pod.metadata.namespace, pod.metadata.name, error)
                refused.add(pod.metadata.uid)
        refused.intersection_update(pod.metadata.uid for pod in objects)
        changed(tuple(sorted(reservations, key=lambda each: (each.created, each.uid))))

    return ObjectWatch(cluster, "/api/v1/pods", selector, WatchedObject, tell, metadata_only=True)


def _reservation(pod: WatchedObject, value: str, names: ResourceNames) -> Reservation:
    metadata = pod.metadata
    assignment: GpuAssignment = {
        container: {names.inside(resource): devices for resource, devices in resources.items()}
        for container, resources in parse_gpu_assignment(value).items()
    }
    return Reservation(
        metadata.namespace, metadata.name, metadata.uid, metadata.creation_timestamp, assignment
    )
