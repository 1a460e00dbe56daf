"""What happened in the cluster, as the cache takes it: typed observations of nodes, pods and topologies."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec

from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.gpu_assignment import GpuAssignment, parse_gpu_assignment
from mcp2026.api.gpu_devices import DeviceId, DeviceKind, mig_resource
from mcp2026.api.gpu_sharing import DEFAULT_REPLICAS, SharingMode
from mcp2026.api.gpu_topology import GpuStatus, GPUTopologyStatus, parse_gpu_topology
from mcp2026.api.names import (
    GPU_ASSIGNMENT_ANNOTATION,
    GPU_MEMORY_RESOURCE,
    GPU_SHARED_RESOURCE,
    MODEL_LABEL,
)
from mcp2026.api.scheduling_context import QosClass
from mcp2026.scheduler_extender.errors import InvalidQuantityError
from mcp2026.scheduler_extender.kube_objects import LabelSelector, Node, Pod, PodDisruptionBudget
from mcp2026.scheduler_extender.promises import Gang, gang_of, promised_latency_us
from mcp2026.scheduler_extender.request import Demand, demands_of, memory_asked, milli_cpu_asked, qos_of
from mcp2026.topology.affinity import AffinityGraph, affinity_graph
from mcp2026.topology.errors import MachineFormatError
from mcp2026.topology.machine import machine_from_topology
from mcp2026.topology.mig.choice import CutGpu
from mcp2026.topology.mig.geometry import MigInstance
from mcp2026.topology.mig.tables import geometry_of

MACHINES_KNOWN = 4_096
"""Machines whose graphs are remembered, told apart by their links, NUMA nodes and health. One takes 3 KiB."""


class Kind(StrEnum):
    """The kinds of objects that the cache is built from, by their names in the API's paths."""

    NODES = "nodes"
    PODS = "pods"
    GPU_TOPOLOGIES = "gputopologies"
    BUDGETS = "poddisruptionbudgets"


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """A node exists."""

    name: str

    @property
    def key(self) -> str:
        """The node's name."""
        return self.name


@dataclass(frozen=True, slots=True)
class ObservedPod:
    """A pod: where it is bound (empty: nowhere yet), what it asks for, whether it has ended.

    `assignment` is what was reserved for it when it was bound, empty if nothing. `milli_cpu` and `memory`
    (bytes) are its requests. `leaving`: it was told to end.
    """

    namespace: str
    name: str
    uid: str
    node: str
    demands: tuple[Demand, ...] = ()
    finished: bool = False
    leaving: bool = False
    priority: int = 0
    milli_cpu: int = 0
    memory: int = 0
    assignment: GpuAssignment = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    qos: QosClass | None = None
    """None where nothing is known of its requests for CPU and memory."""
    slo_us: int | None = None
    """The p95 of its latency that was promised, in µs."""
    gang: Gang | None = None

    def bound_to(self, node: str, assignment: GpuAssignment) -> "ObservedPod":
        """Return the pod as it will be once it is bound to `node` with `assignment`."""
        return replace(self, node=node, assignment=assignment)

    @property
    def model(self) -> str:
        """The name of the InferenceModel that it serves; empty if none."""
        return self.labels.get(MODEL_LABEL, "")

    @property
    def gpus(self) -> int:
        """How many whole GPUs it asks for."""
        return sum(demand.units for demand in self.demands if demand.kind is DeviceKind.GPU)

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ObservedBudget:
    """A PodDisruptionBudget: the pods that `selector` means in its namespace, and how many may still go."""

    namespace: str
    name: str
    selector: LabelSelector | None
    allowed: int
    going: frozenset[str] = frozenset()
    """Names of pods whose eviction is counted already."""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ObservedParts:
    """A GPU that is sold in parts, at `position`: how many there are, and what each pod has of them.

    `devices` names all parts; it is empty for GiB of memory, which are all alike. `together`: what a
    container gets must come from one GPU. `taken` maps pods (``namespace/name``) to how many they hold,
    `taken_devices` to which.
    """

    resource: str
    position: int
    total: int
    devices: tuple[str, ...] = ()
    together: bool = False
    taken: Mapping[str, int] = field(default_factory=dict)
    taken_devices: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ObservedTopology:
    """The GPUs of a node as its device plugin tells; `problem` says why they cannot be read, if so.

    `unhealthy` are positions in `graph`, `holders` the positions that each pod (``namespace/name``) holds
    whole. `not_whole` are positions that are shared, or that are sold as nothing at present; `parts` are
    those that are shared and offer something. `products` names each GPU's product; `cut` has those that are
    sold as MIG devices.
    """

    name: str
    graph: AffinityGraph | None = None
    fingerprint: str = ""
    indices: tuple[int, ...] = ()
    uuids: tuple[str, ...] = ()
    unhealthy: frozenset[int] = frozenset()
    holders: Mapping[str, frozenset[int]] = field(default_factory=dict)
    not_whole: frozenset[int] = frozenset()
    parts: tuple[ObservedParts, ...] = ()
    products: tuple[str, ...] = ()
    cut: Mapping[int, CutGpu] = field(default_factory=dict)
    problem: str = ""

    @property
    def holding(self) -> frozenset[str]:
        """The pods that hold anything, whole GPUs or parts."""
        return frozenset(self.holders).union(*(part.taken for part in self.parts))

    @property
    def key(self) -> str:
        """The node's name."""
        return self.name


Observed = ObservedNode | ObservedPod | ObservedTopology | ObservedBudget


@dataclass(frozen=True, slots=True)
class Listed:
    """The whole truth about one kind: what is not among `objects` does not exist."""

    kind: Kind
    objects: tuple[Observed, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """An object was added or changed."""

    object: Observed


@dataclass(frozen=True, slots=True)
class Gone:
    """The object of this kind and key was deleted, or left what we watch."""

    kind: Kind
    key: str


ClusterEvent = Listed | Seen | Gone


def observe(kind: Kind, document: bytes | msgspec.Raw) -> Observed:
    """Return what the JSON of one object tells.

    Raises:
        msgspec.DecodeError: the API server sent something that is no such object.

    """
    match kind:
        case Kind.NODES:
            return ObservedNode(msgspec.json.decode(document, type=Node).metadata.name)
        case Kind.PODS:
            return observed_pod(msgspec.json.decode(document, type=Pod))
        case Kind.GPU_TOPOLOGIES:
            return observe_topology(msgspec.json.decode(document, type=dict[str, Any]))
        case Kind.BUDGETS:
            budget = msgspec.json.decode(document, type=PodDisruptionBudget)
            return ObservedBudget(
                namespace=budget.metadata.namespace,
                name=budget.metadata.name,
                selector=budget.spec.selector,
                allowed=budget.status.disruptions_allowed,
                going=frozenset(budget.status.disrupted_pods or ()),
            )


def observed_pod(pod: Pod) -> ObservedPod:
    """Return what we keep of a pod."""
    demands: tuple[Demand, ...] = ()
    with suppress(InvalidQuantityError):  # the API server admits no such pod, and it can never run
        demands = demands_of(pod.spec) if pod.spec else ()
    annotations = pod.metadata.annotations or {}
    return ObservedPod(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        node=(pod.spec and pod.spec.node_name) or "",
        demands=demands,
        finished=pod.status is not None and pod.status.phase in ("Succeeded", "Failed"),
        leaving=pod.metadata.deletion_timestamp is not None,
        priority=(pod.spec and pod.spec.priority) or 0,
        milli_cpu=milli_cpu_asked(pod.spec) if demands and pod.spec else 0,
        memory=memory_asked(pod.spec) if demands and pod.spec else 0,
        assignment=_assignment(pod),
        labels=(pod.metadata.labels or {}) if demands else {},
        qos=qos_of(pod.spec) if demands and pod.spec else None,
        slo_us=promised_latency_us(annotations) if demands else None,
        gang=gang_of(annotations) if demands else None,
    )


def _assignment(pod: Pod) -> GpuAssignment:
    """Return what was reserved for the pod; what cannot be read is not ours, and counts as nothing."""
    value = (pod.metadata.annotations or {}).get(GPU_ASSIGNMENT_ANNOTATION)
    if value is None:
        return {}
    try:
        return parse_gpu_assignment(value)
    except InvalidResourceError:
        return {}


def observe_topology(resource: dict[str, Any]) -> ObservedTopology:
    """Return what a `GPUTopology` in JSON shape tells. One that cannot be read has its `problem` set."""
    name = str((resource.get("metadata") or {}).get("name", ""))
    try:
        topology = parse_gpu_topology(resource)
        graph, fingerprint = _graph(topology.status)
    except InvalidResourceError as error:
        return ObservedTopology(name, problem=f"its GPUTopology cannot be read: {error}")
    except MachineFormatError as error:
        problem = f"its GPUTopology cannot be read: GPUTopology {name}: {error.problem}"
        return ObservedTopology(name, problem=problem)
    except IndexError:
        return ObservedTopology(
            name, problem="its GPUTopology cannot be read: pcieAncestors has no entry for each pair of GPUs"
        )
    gpus = topology.status.gpus
    holders: dict[str, frozenset[int]] = {}
    for place, gpu in enumerate(gpus):
        if gpu.held_by:
            key = f"{gpu.held_by.namespace}/{gpu.held_by.pod}"
            holders[key] = holders.get(key, frozenset()) | {place}
    return ObservedTopology(
        name=topology.name,
        graph=graph,
        fingerprint=fingerprint,
        indices=tuple(gpu.index for gpu in gpus),
        uuids=tuple(gpu.uuid for gpu in gpus),
        unhealthy=frozenset(place for place, gpu in enumerate(gpus) if gpu.health == "Unhealthy"),
        holders=holders,
        not_whole=frozenset(place for place, gpu in enumerate(gpus) if not _sold_as(gpu, "Exclusive")),
        parts=tuple(part for place, gpu in enumerate(gpus) for part in _parts(place, gpu)),
        products=tuple(gpu.product for gpu in gpus),
        cut={place: _cut(gpu) for place, gpu in enumerate(gpus) if _sold_as(gpu, "MIG")},
    )


def _graph(status: GPUTopologyStatus) -> tuple[AffinityGraph, str]:
    """Return the graph of a machine, and what is equal for equal graphs.

    Raises:
        MachineFormatError: the GPUs' indices or PCIe ancestors are those of no machine.

    """
    links = tuple(
        GpuStatus(
            index=gpu.index,
            uuid="",
            product="",
            memory_mi_b=0,
            pci_bus_id="",
            numa_node=gpu.numa_node,
            health=gpu.health,
            nvlinks=gpu.nvlinks,
        )
        for gpu in status.gpus
    )
    return _known_graph(GPUTopologyStatus(gpus=links, pcie_ancestors=status.pcie_ancestors))


@lru_cache(MACHINES_KNOWN)
def _known_graph(links: GPUTopologyStatus) -> tuple[AffinityGraph, str]:
    """Return the graph of `links`: a cluster has thousands of nodes, of few kinds of machines."""
    graph = affinity_graph(machine_from_topology("", links))
    return graph, hashlib.blake2b(repr(graph).encode(), digest_size=16).hexdigest()


def _sold_as(gpu: GpuStatus, *modes: SharingMode) -> bool:
    return gpu.sharing.mode in modes and gpu.sharing.state == "Active"


def _cut(gpu: GpuStatus) -> CutGpu:
    instances = (
        MigInstance(device.uuid, device.profile, device.start, device.size, 0, 0, device.memory_mi_b)
        for device in gpu.mig_devices
    )
    return CutGpu(tuple(instances), geometry_of(gpu.product, gpu.memory_mi_b), gpu.health == "Degraded")


def _parts(position: int, gpu: GpuStatus) -> Iterator[ObservedParts]:
    if _sold_as(gpu, "MIG"):
        for profile in sorted({device.profile for device in gpu.mig_devices}):
            devices = tuple(device.uuid for device in gpu.mig_devices if device.profile == profile)
            yield _with_holders(ObservedParts(mig_resource(profile), position, len(devices), devices), gpu)
    elif _sold_as(gpu, "TimeSlice", "MPS") and gpu.sharing.unit == "Memory":
        gib = gpu.memory_mi_b // 1024
        yield _with_holders(ObservedParts(GPU_MEMORY_RESOURCE, position, gib, together=True), gpu)
    elif _sold_as(gpu, "TimeSlice", "MPS"):
        numbers = range(gpu.sharing.replicas or DEFAULT_REPLICAS)
        shares = tuple(str(DeviceId(gpu.uuid, DeviceKind.SHARE, number)) for number in numbers)
        # A process speaks to one MPS daemon, and there is one for each GPU.
        together = gpu.sharing.mode == "MPS"
        yield _with_holders(
            ObservedParts(GPU_SHARED_RESOURCE, position, len(shares), shares, together=together), gpu
        )


def _with_holders(parts: ObservedParts, gpu: GpuStatus) -> ObservedParts:
    taken: dict[str, int] = {}
    devices: dict[str, frozenset[str]] = {}
    for allocation in gpu.allocations:
        if allocation.resource == parts.resource:
            key = f"{allocation.namespace}/{allocation.pod}"
            taken[key] = taken.get(key, 0) + allocation.units
            devices[key] = devices.get(key, frozenset()).union(allocation.devices)
    return replace(parts, taken=taken, taken_devices=devices)
