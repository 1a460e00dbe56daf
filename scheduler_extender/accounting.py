"""What is free on a node, from its `GPUTopology` and the pods bound to it. Pure.

A pod that the topology shows as a holder has what it shows. One that it does not show yet takes exactly what
was reserved for it when it was bound; if nothing was (it came by another scheduler), as many as it asks for.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

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
    reservations = _Reservations(topology)
    reserved_parts: dict[tuple[str, int], list[str]] = {}
    promised_parts: Counter[str] = Counter()
    for key, pod in pods.items():
        for resource, by_gpu in reservations.parts(key, pod).items():
            for position, devices in by_gpu.items():
                reserved_parts.setdefault((resource, position), []).extend(devices)
        promised_parts.update(reservations.units_without_a_place(key, pod))
        lacking = pod.gpus - len(holders.get(key, ()))
        if lacking <= 0:
            continue
        reserved = reservations.gpus(pod) if key not in holders else frozenset()
        held |= reserved
        if lacking > len(reserved):
            promised.append(lacking - len(reserved))
    parts: dict[str, list[Parts]] = {}
    for observed in topology.parts:
        reserved_here = reserved_parts.get((observed.resource, observed.position), [])
        parts.setdefault(observed.resource, []).append(
            _free_parts(observed, topology, reserved_here, departed)
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
    on_gpu: list[list[ObservedPod]] = [[] for _ in topology.uuids]
    for placed in placed_pods(topology, pods):
        for position in placed.gpus.union(*placed.parts.values()):
            on_gpu[position].append(placed.pod)
    return tuple(map(tenants_of, on_gpu))


def placed_pods(topology: ObservedTopology, pods: Mapping[str, ObservedPod]) -> Iterator[PlacedPod]:
    """Yield what each of `pods` holds of the node, or has reserved where the topology does not show it."""
    reservations = _Reservations(topology)
    holding = topology.holding
    for key, pod in pods.items():
        parts: dict[str, dict[int, int]] = {}
        for observed in reservations.shown.get(key, ()):
            if units := observed.taken[key]:
                parts.setdefault(observed.resource, {})[observed.position] = units
        for resource, by_gpu in reservations.parts(key, pod).items():
            parts[resource] = {position: len(devices) for position, devices in by_gpu.items()}
        gpus = topology.holders.get(key) or reservations.gpus(pod)
        yield PlacedPod(pod, gpus, parts, shown=key in holding)


class _Reservations:
    """Where the devices lie that were reserved for pods. Made once for a topology, asked for each pod."""

    def __init__(self, topology: ObservedTopology) -> None:
        self._gpus = {uuid: position for position, uuid in enumerate(topology.uuids)}
        self._resources = {part.resource for part in topology.parts}
        self._devices = {
            (part.resource, device): part.position for part in topology.parts for device in part.devices
        }
        self._by_amount: dict[str, set[int]] = {}
        """The GPUs whose devices of a resource have no names of their own: memory, by the GiB."""
        for part in topology.parts:
            if not part.devices:
                self._by_amount.setdefault(part.resource, set()).add(part.position)
        self.shown: dict[str, list[ObservedParts]] = {}
        """By the key of a pod: the parts of which the topology shows that it holds some."""
        for part in topology.parts:
            for key in part.taken:
                self.shown.setdefault(key, []).append(part)

    def gpus(self, pod: ObservedPod) -> frozenset[int]:
        """Return the positions of the whole GPUs reserved for `pod` that this node has."""
        return frozenset(
            self._gpus[device]
            for demand in pod.demands
            if demand.kind is DeviceKind.GPU
            for device in _reserved_devices(pod, demand.resource)
            if device in self._gpus
        )

    def parts(self, key: str, pod: ObservedPod) -> dict[str, dict[int, list[str]]]:
        """Return the parts reserved for `pod`: the devices of each GPU, by resource.

        Resources of which the topology shows what it holds are left out.
        """
        found: dict[str, dict[int, list[str]]] = {}
        for resource in self._not_shown(key):
            for device in _reserved_devices(pod, resource):
                position = self._position_of(resource, device)
                if position is not None:
                    found.setdefault(resource, {}).setdefault(position, []).append(device)
        return found

    def units_without_a_place(self, key: str, pod: ObservedPod) -> dict[str, int]:
        """Return how many units of each resource the pod will take, though it is not known which."""
        asked: Counter[str] = Counter()
        for demand in pod.demands:
            asked[demand.resource] += demand.units
        return {
            resource: max(0, asked[resource] - len(tuple(_reserved_devices(pod, resource))))
            for resource in self._not_shown(key)
        }

    def _not_shown(self, key: str) -> set[str]:
        shown = self.shown.get(key)
        return self._resources - {part.resource for part in shown} if shown else self._resources

    def _position_of(self, resource: str, device: str) -> int | None:
        if resource not in self._by_amount:
            return self._devices.get((resource, device))
        position = self._gpus.get(parse_device_id(device).uuid)
        return position if position in self._by_amount[resource] else None


def _reserved_devices(pod: ObservedPod, resource: str) -> Iterator[str]:
    for devices in pod.assignment.values():
        yield from devices.get(resource, ())


def _free_parts(
    observed: ObservedParts, topology: ObservedTopology, reserved: Sequence[str], departed: Collection[str]
) -> Parts:
    taken = sum(units for key, units in observed.taken.items() if key not in departed)
    devices = {name for key, names in observed.taken_devices.items() if key not in departed for name in names}
    if observed.devices:
        taken += len(set(reserved) - devices)
        devices |= set(reserved)
    else:
        taken += len(reserved)
    if observed.position in topology.unhealthy:
        return Parts(observed.position, observed.total, 0, together=observed.together)
    return Parts(
        position=observed.position,
        total=observed.total,
        free=max(0, observed.total - taken),
        devices=tuple(device for device in observed.devices if device not in devices),
        together=observed.together,
    )
