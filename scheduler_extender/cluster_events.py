"""What happened in the cluster, as the cache takes it: typed observations of nodes, pods and topologies."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.gpu_topology import parse_gpu_topology
from mcp2026.scheduler_extender.errors import InvalidQuantityError
from mcp2026.scheduler_extender.kube_objects import Node, Pod
from mcp2026.scheduler_extender.request import gpus_asked
from mcp2026.topology.affinity import AffinityGraph, affinity_graph
from mcp2026.topology.errors import MachineFormatError
from mcp2026.topology.machine import machine_from_topology


class Kind(StrEnum):
    """The kinds of objects that the cache is built from, by their names in the API's paths."""

    NODES = "nodes"
    PODS = "pods"
    GPU_TOPOLOGIES = "gputopologies"


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
    """A pod: where it is bound (empty: nowhere yet), the GPUs that it asks for, whether it has ended."""

    namespace: str
    name: str
    uid: str
    node: str
    gpus: int
    finished: bool

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ObservedTopology:
    """The GPUs of a node as its device plugin tells; `problem` says why they cannot be read, if so.

    `unhealthy` are positions in `graph`, `holders` the positions that each pod (``namespace/name``) holds.
    """

    name: str
    graph: AffinityGraph | None = None
    fingerprint: str = ""
    indices: tuple[int, ...] = ()
    unhealthy: frozenset[int] = frozenset()
    holders: Mapping[str, frozenset[int]] = field(default_factory=dict)
    problem: str = ""

    @property
    def key(self) -> str:
        """The node's name."""
        return self.name


Observed = ObservedNode | ObservedPod | ObservedTopology


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
            return _observe_pod(msgspec.json.decode(document, type=Pod))
        case Kind.GPU_TOPOLOGIES:
            return observe_topology(msgspec.json.decode(document, type=dict[str, Any]))


def _observe_pod(pod: Pod) -> ObservedPod:
    try:
        gpus = gpus_asked(pod.spec) if pod.spec else 0
    except InvalidQuantityError:
        gpus = 0  # the API server admits no such pod; a pod that can never run holds nothing
    return ObservedPod(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        node=(pod.spec and pod.spec.node_name) or "",
        gpus=gpus,
        finished=pod.status is not None and pod.status.phase in ("Succeeded", "Failed"),
    )


def observe_topology(resource: dict[str, Any]) -> ObservedTopology:
    """Return what a `GPUTopology` in JSON shape tells. One that cannot be read has its `problem` set."""
    name = str((resource.get("metadata") or {}).get("name", ""))
    try:
        topology = parse_gpu_topology(resource)
        graph = affinity_graph(machine_from_topology(name, topology.status))
    except (InvalidResourceError, MachineFormatError) as error:
        return ObservedTopology(name, problem=f"its GPUTopology cannot be read: {error}")
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
        fingerprint=hashlib.blake2b(repr(graph).encode(), digest_size=16).hexdigest(),
        indices=tuple(gpu.index for gpu in gpus),
        unhealthy=frozenset(place for place, gpu in enumerate(gpus) if gpu.health != "Healthy"),
        holders=holders,
    )
