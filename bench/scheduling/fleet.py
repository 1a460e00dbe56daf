"""What nodes have to give, and whether what was given was theirs and was given once. Pure.

Nothing of the extender's own accounting is used here: this is what it is checked by.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from mcp2026.api.gpu_assignment import GpuAssignment
from mcp2026.api.gpu_devices import DeviceId, DeviceKind, mig_resource, parse_device_id
from mcp2026.api.gpu_topology import GPUTopologyStatus
from mcp2026.api.names import GPU_MEMORY_RESOURCE, GPU_RESOURCE, GPU_SHARED_RESOURCE

PROBLEMS_KEPT = 20


@dataclass(frozen=True, slots=True)
class Offer:
    """What one node has: the devices of each resource by name, and the GiB of each GPU sold by memory."""

    devices: Mapping[str, frozenset[str]]
    gib: Mapping[str, int]

    @property
    def amounts(self) -> dict[str, int]:
        """What a device plugin would tell the kubelet that there is, by resource."""
        memory = sum(self.gib.values())
        found = {resource: len(names) for resource, names in self.devices.items()}
        return found | ({GPU_MEMORY_RESOURCE: memory} if memory else {})


def offer_of(status: GPUTopologyStatus) -> Offer:
    """Return what a node with this `status` has."""
    devices: dict[str, set[str]] = {}
    gib: dict[str, int] = {}
    for gpu in status.gpus:
        if gpu.sharing.mode == "Exclusive":
            devices.setdefault(GPU_RESOURCE, set()).add(gpu.uuid)
        elif gpu.sharing.mode == "MIG":
            for device in gpu.mig_devices:
                devices.setdefault(mig_resource(device.profile), set()).add(device.uuid)
        elif gpu.sharing.unit == "Memory":
            gib[gpu.uuid] = gpu.memory_mi_b // 1024
        else:
            shares = (str(DeviceId(gpu.uuid, DeviceKind.SHARE, n)) for n in range(gpu.sharing.replicas or 0))
            devices.setdefault(GPU_SHARED_RESOURCE, set()).update(shares)
    return Offer({resource: frozenset(names) for resource, names in devices.items()}, gib)


@dataclass(frozen=True, slots=True)
class Change:
    """What the API server told of a pod: where it is bound (empty: nowhere), what it asked for and got."""

    at: float
    """Seconds of a monotonic clock."""
    name: str
    uid: str
    node: str
    asked: Mapping[str, int]
    assignment: GpuAssignment
    gone: bool = False
    """It was deleted, or has ended."""


@dataclass(slots=True)
class Replay:
    """Plays changes in the order in which the API server made them, and counts what must not be."""

    offers: Mapping[str, Offer]
    doubles: int = 0
    """Devices, and GiB, that were given to a pod while another one had them."""
    wrong: int = 0
    """Pods that were given devices that the node does not have, or other than as many as they asked for."""
    moved: int = 0
    """Pods that were bound a second time."""
    bound: int = 0
    problems: list[str] = field(default_factory=list)
    """The first few, in words."""
    _nodes: dict[str, str] = field(default_factory=dict)
    _holders: dict[tuple[str, str], str] = field(default_factory=dict)
    _gib: dict[str, Counter[str]] = field(default_factory=dict)

    def play(self, changes: Iterable[Change]) -> "Replay":
        """Play `changes` after those before."""
        for change in changes:
            if change.gone:
                self._release(change)
            elif change.node and change.uid not in self._nodes:
                self._take(change)
            elif change.node != self._nodes.get(change.uid, ""):
                self.moved += 1
                self._tell(f"{change.name} is on {change.node}, was on {self._nodes.get(change.uid)}")
        return self

    def _take(self, change: Change) -> None:
        self._nodes[change.uid] = change.node
        self.bound += 1
        given: Counter[str] = Counter()
        for resource, device in _devices(change.assignment):
            given[resource] += 1
            if resource == GPU_MEMORY_RESOURCE:
                self._take_gib(change, parse_device_id(device).uuid)
            else:
                self._take_device(change, resource, device)
        if given != change.asked:
            self.wrong += 1
            self._tell(f"{change.name} asked for {dict(change.asked)}, was given {dict(given)}")

    def _take_device(self, change: Change, resource: str, device: str) -> None:
        if device not in self.offers[change.node].devices.get(resource, ()):
            self.wrong += 1
            self._tell(f"{change.node} has no {resource} {device}, which {change.name} was given")
        holder = self._holders.setdefault((change.node, device), change.uid)
        if holder != change.uid:
            self.doubles += 1
            self._tell(f"{device} of {change.node} was given to {change.name}, while pod {holder} has it")

    def _take_gib(self, change: Change, uuid: str) -> None:
        taken = self._gib.setdefault(uuid, Counter())
        taken[change.uid] += 1
        room = self.offers[change.node].gib.get(uuid, 0)
        if taken.total() > room:
            self.doubles += 1
            self._tell(f"GiB {taken.total()} of {room} of {uuid} was given to {change.name}")

    def _release(self, change: Change) -> None:
        node = self._nodes.get(change.uid)
        if node is None:
            return
        for resource, device in _devices(change.assignment):
            if resource == GPU_MEMORY_RESOURCE:
                self._gib.get(parse_device_id(device).uuid, Counter()).pop(change.uid, None)
            elif self._holders.get((node, device)) == change.uid:
                del self._holders[node, device]

    def _tell(self, problem: str) -> None:
        if len(self.problems) < PROBLEMS_KEPT:
            self.problems.append(problem)


def _devices(assignment: GpuAssignment) -> Iterator[tuple[str, str]]:
    for by_resource in assignment.values():
        for resource, devices in by_resource.items():
            for device in devices:
                yield resource, device
