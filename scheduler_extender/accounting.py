"""What is free on a node, from its `GPUTopology` and the pods bound to it. Pure.

A pod that the topology shows as a holder has what it shows. One that it does not show yet takes exactly what
was reserved for it when it was bound; if nothing was (it came by another scheduler), as many as it asks for.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from mcp2026.api.gpu_devices import DeviceKind, parse_device_id
from mcp2026.api.scheduling_context import QosClass
from mcp2026.scheduler_extender.cluster_events import ObservedParts, ObservedPod, ObservedTopology
from mcp2026.scheduler_extender.parts_placement import Parts
from mcp2026.scheduler_extender.snapshot import NodeGpus, PlacedPod, Tenants
from mcp2026.topology.affinity import AffinityGraph


def node_gpus(
    graph: AffinityGraph,
    topology: ObservedTopology,
    pods: Mapping[str, ObservedPod],
    departed: Collection[str] = (),
) -> NodeGpus:
    """Return what `topology`, whose graph is `graph`, has to give.

    `pods` are those bound to the node, by ``namespace/name``; `departed` are holders that have ended although
    the topology still shows them.
    """
    holders = {key: gpus for key, gpus in topology.holders.items() if key not in departed}
    held = set().union(*holders.values())
    promised = []
    for key, pod in pods.items():
        lacking = pod.gpus - len(holders.get(key, ()))
        if lacking <= 0:
            continue
        reserved = _reserved_gpus(pod, topology) if key not in holders else set()
        held |= reserved
        if lacking > len(reserved):
            promised.append(lacking - len(reserved))
    parts: dict[str, list[Parts]] = {}
    promised_parts: Counter[str] = Counter()
    for observed in topology.parts:
        parts.setdefault(observed.resource, []).append(_free_parts(observed, topology, pods, departed))
    for resource in parts:
        promised_parts[resource] = sum(
            _unplaced_units(resource, key, pod, topology) for key, pod in pods.items()
        )
    return NodeGpus(
        graph=graph,
        fingerprint=topology.fingerprint,
        indices=topology.indices,
        uuids=topology.uuids,
        held=frozenset(held),
        unhealthy=topology.unhealthy,
        not_whole=topology.not_whole,
        promised=tuple(sorted(promised, reverse=True)),
        parts={resource: tuple(found) for resource, found in parts.items()},
        promised_parts=+promised_parts,
        products=topology.products,
        cut=topology.cut,
        tenants=_tenants(topology, pods) if topology.parts else (),
    )


def tenants_of(pods: Iterable[ObservedPod]) -> Tenants:
    """Count `pods` by their QoS class; one of which nothing is known is not counted."""
    known = [pod.qos is QosClass.GUARANTEED for pod in pods if pod.qos is not None]
    return Tenants(sum(known), len(known) - sum(known))


def _tenants(topology: ObservedTopology, pods: Mapping[str, ObservedPod]) -> tuple[Tenants, ...]:
    """Return the pods on each GPU of the node."""
    placed = tuple(placed_pods(topology, pods))
    return tuple(
        tenants_of(each.pod for each in placed if each.is_on(position))
        for position in range(len(topology.uuids))
    )


def placed_pods(topology: ObservedTopology, pods: Mapping[str, ObservedPod]) -> Iterator[PlacedPod]:
    """Yield what each of `pods` holds of the node, or has reserved where the topology does not show it."""
    for key, pod in pods.items():
        parts: dict[str, dict[int, int]] = {}
        for observed in topology.parts:
            if _shown(observed.resource, key, topology):
                units = observed.taken.get(key, 0)
            else:
                units = _reserved_units(pod, observed, topology)
            if units:
                parts.setdefault(observed.resource, {})[observed.position] = units
        gpus = topology.holders.get(key) or frozenset(_reserved_gpus(pod, topology))
        yield PlacedPod(pod, gpus, parts, shown=key in topology.holding)


def _reserved_units(pod: ObservedPod, observed: ObservedParts, topology: ObservedTopology) -> int:
    if observed.devices:
        return len(set(observed.devices).intersection(_reserved_devices(pod, observed.resource)))
    return _reserved_memory(pod, observed.resource, topology.uuids[observed.position])


def _reserved_devices(pod: ObservedPod, resource: str) -> Iterable[str]:
    for devices in pod.assignment.values():
        yield from devices.get(resource, ())


def _reserved_gpus(pod: ObservedPod, topology: ObservedTopology) -> set[int]:
    """Return the positions of the whole GPUs reserved for `pod` that this node has."""
    positions = {uuid: position for position, uuid in enumerate(topology.uuids)}
    return {
        positions[device]
        for demand in pod.demands
        if demand.kind is DeviceKind.GPU
        for device in _reserved_devices(pod, demand.resource)
        if device in positions
    }


def _free_parts(
    observed: ObservedParts,
    topology: ObservedTopology,
    pods: Mapping[str, ObservedPod],
    departed: Collection[str],
) -> Parts:
    taken = sum(units for key, units in observed.taken.items() if key not in departed)
    devices = {name for key, names in observed.taken_devices.items() if key not in departed for name in names}
    for key, pod in pods.items():
        if _shown(observed.resource, key, topology):
            continue
        if observed.devices:
            reserved = set(observed.devices).intersection(_reserved_devices(pod, observed.resource)) - devices
            taken += len(reserved)
            devices |= reserved
        else:
            taken += _reserved_memory(pod, observed.resource, topology.uuids[observed.position])
    if observed.position in topology.unhealthy:
        return Parts(observed.position, observed.total, 0, together=observed.together)
    return Parts(
        position=observed.position,
        total=observed.total,
        free=max(0, observed.total - taken),
        devices=tuple(device for device in observed.devices if device not in devices),
        together=observed.together,
    )


def _reserved_memory(pod: ObservedPod, resource: str, uuid: str) -> int:
    """Return the GiB of the GPU `uuid` that are reserved for `pod`."""
    return sum(1 for device in _reserved_devices(pod, resource) if parse_device_id(device).uuid == uuid)


def _shown(resource: str, key: str, topology: ObservedTopology) -> bool:
    """Tell whether the topology shows that the pod holds any of `resource`."""
    return any(part.resource == resource and key in part.taken for part in topology.parts)


def _unplaced_units(resource: str, key: str, pod: ObservedPod, topology: ObservedTopology) -> int:
    """Return how many units the pod will take, though it is not known which."""
    if _shown(resource, key, topology):
        return 0
    asked = sum(demand.units for demand in pod.demands if demand.resource == resource)
    return max(0, asked - len(tuple(_reserved_devices(pod, resource))))
