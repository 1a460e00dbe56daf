"""The cluster at one moment, unchangeable: every decision is made on a snapshot.

GPUs are told by their position in the node's affinity graph; `indices` gives the numbers that NVML and
people use.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from mcp2026.api.gpu_devices import DeviceKind
from mcp2026.scheduler_extender.cluster_events import ObservedBudget, ObservedPod
from mcp2026.scheduler_extender.parts_placement import Parts, has_room
from mcp2026.scheduler_extender.request import Demand
from mcp2026.topology.affinity import AffinityGraph
from mcp2026.topology.mig.choice import CutGpu


class Tenants(NamedTuple):
    """How many pods there are, by the QoS class of Kubernetes: Guaranteed, and all others."""

    guaranteed: int = 0
    others: int = 0


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """The GPUs of one node.

    `fingerprint` is equal for equal graphs, so that nodes of one kind are scored once. `not_whole` are GPUs
    that are not sold whole, `parts` what is sold of them, by resource.

    `promised` has, for each pod bound here that does not hold all its GPUs yet and that nothing was reserved
    for, how many it still lacks, greatest first: these are taken, though not yet known which.
    `promised_parts` is the same of parts, by resource.

    `products` names each GPU's product; `cut` has those that are sold as MIG devices; `tenants` counts the
    pods on each GPU, and is empty where none is sold in parts.
    """

    graph: AffinityGraph
    fingerprint: str
    indices: tuple[int, ...]
    uuids: tuple[str, ...] = ()
    held: frozenset[int] = frozenset()
    unhealthy: frozenset[int] = frozenset()
    not_whole: frozenset[int] = frozenset()
    promised: tuple[int, ...] = ()
    parts: Mapping[str, tuple[Parts, ...]] = field(default_factory=dict)
    promised_parts: Mapping[str, int] = field(default_factory=dict)
    products: tuple[str, ...] = ()
    cut: Mapping[int, CutGpu] = field(default_factory=dict)
    tenants: tuple[Tenants, ...] = ()
    free: tuple[int, ...] = field(init=False)
    """Healthy, sold whole and held by nobody, ascending; may include GPUs promised to pods that start."""
    available: int = field(init=False)
    """How many can be given to one more pod: `free` less what is promised, at least 0."""
    state: str = field(init=False)
    """Equal for nodes whose GPUs no score can tell apart: same machine, same free GPUs, same promises."""
    room: str = field(init=False)
    """For people: ``1 of 4 free (0,1 held, 2 unhealthy)``."""
    words: str = field(init=False)
    """Equal for nodes that no answer of ours can tell apart."""

    def __post_init__(self) -> None:
        taken = self.held | self.unhealthy | self.not_whole
        free = tuple(gpu for gpu in range(len(self.graph)) if gpu not in taken)
        object.__setattr__(self, "free", free)
        object.__setattr__(self, "available", max(0, len(free) - sum(self.promised)))
        products = self.products[:1] if len(set(self.products)) == 1 else self.products
        state = f"{self.fingerprint} {products} {free} {self.promised}"
        if self.parts:
            counts = {
                name: [(part.position, part.free, part.together) for part in self.parts[name]]
                for name in self.parts
            }
            state += f" {counts} {dict(self.promised_parts)} {[tuple(each) for each in self.tenants]}"
        if self.cut:
            free_devices = self.free_mig_devices
            state += f" {[(place, gpu.layout(free_devices)) for place, gpu in self.cut.items()]}"
        object.__setattr__(self, "state", state)
        object.__setattr__(self, "room", self._describe_room())
        sick, split = sorted(self.unhealthy), sorted(self.not_whole)  # one may be held as well
        totals = {name: [part.total for part in parts] for name, parts in self.parts.items()}
        object.__setattr__(self, "words", f"{self.room} {self.state} {self.indices} {sick} {split} {totals}")

    @property
    def total(self) -> int:
        """How many GPUs the node sells whole, in whatever state."""
        return len(self.graph) - len(self.not_whole)

    @property
    def free_mig_devices(self) -> frozenset[str]:
        """The UUIDs of the MIG devices that are free, of all profiles."""
        return frozenset(
            device
            for those in self.parts.values()
            for part in those
            if part.position in self.cut
            for device in part.devices
        )

    @property
    def healthy(self) -> int:
        """How many of these could serve at all, free or held."""
        return self.total - len(self.unhealthy - self.not_whole)

    def numbers(self, positions: frozenset[int]) -> str:
        """Return the GPUs at `positions` as people name them: ``0,1,3``."""
        return ",".join(str(self.indices[position]) for position in sorted(positions))

    def fits(self, demand: Demand) -> bool:
        """Tell whether there is room for `demand` now."""
        if demand.kind is DeviceKind.GPU:
            return demand.units <= self.available
        parts = self.parts.get(demand.resource, ())
        return demand.units <= self.free_parts(demand.resource) and has_room(demand, parts)

    def could_fit(self, demand: Demand) -> bool:
        """Tell whether there would be room for `demand` if every pod went."""
        if demand.kind is DeviceKind.GPU:
            return demand.units <= self.healthy
        empty = [
            replace(part, free=part.total)
            for part in self.parts.get(demand.resource, ())
            if part.position not in self.unhealthy
        ]
        return has_room(demand, empty)

    def free_parts(self, resource: str) -> int:
        """Return how many parts of `resource` are free, less those that starting pods will take."""
        free = sum(part.free for part in self.parts.get(resource, ()))
        return max(0, free - self.promised_parts.get(resource, 0))

    def room_for(self, demand: Demand) -> str:
        """Say for people what there is of what `demand` asks for."""
        if demand.kind is DeviceKind.GPU:
            return self.room
        parts = self.parts.get(demand.resource, ())
        if not parts:
            return f"no GPU here is sold as {demand.resource}"
        each = ", ".join(
            f"{part.free} of {part.total} on GPU {self.indices[part.position]}" for part in parts
        )
        promised = self.promised_parts.get(demand.resource, 0)
        return f"free: {each}" + (f"; {promised} promised to pods that are starting" if promised else "")

    def _describe_room(self) -> str:
        causes = []
        if self.held:
            causes.append(f"{self.numbers(self.held)} held")
        if sick := self.unhealthy - self.held - self.not_whole:
            causes.append(f"{self.numbers(sick)} unhealthy")
        if self.not_whole:
            causes.append(f"{self.numbers(self.not_whole)} shared")
        if self.promised:
            causes.append(f"{sum(self.promised)} promised to pods that are starting")
        return f"{self.available} of {self.total} free" + (f" ({', '.join(causes)})" if causes else "")


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod on a node with what it holds, or has reserved, there: whole GPUs, and units of parts.

    `parts` maps a resource to the units of each GPU, by position. `shown`: the node's `GPUTopology` shows it.
    """

    pod: ObservedPod
    gpus: frozenset[int]
    parts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    shown: bool = False

    def is_on(self, position: int) -> bool:
        """Tell whether the pod has anything of the GPU at `position`."""
        return position in self.gpus or any(position in units for units in self.parts.values())


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """One node: its GPUs, or in words why they are not known, and the pods that have any of them."""

    name: str
    gpus: NodeGpus | None
    problem: str = ""
    pods: tuple[PlacedPod, ...] = ()

    @property
    def state(self) -> str:
        """Equal for nodes that no score can tell apart."""
        return self.problem if self.gpus is None else self.gpus.state

    @property
    def words(self) -> str:
        """Equal for nodes that no answer of ours can tell apart."""
        return self.problem if self.gpus is None else self.gpus.words


@dataclass(frozen=True, slots=True)
class Crowds:
    """How many pods of one kind each node has; one without is left out.

    `classes` names for each node the class of those that are in the same state and have as many.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    classes: Mapping[str, str] = field(default_factory=dict)


NO_CROWDS = Crowds()


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """All nodes by name, and what protects pods from being evicted.

    `guaranteed` and `others` tell of the pods with GPUs on each node, by their QoS class.

    `states` are those of the nodes, by name; `alike` has the names of the nodes by their words. A call about
    thousands of nodes thinks about each of the few that differ.
    """

    nodes: Mapping[str, NodeSnapshot]
    states: Mapping[str, str]
    alike: Mapping[str, frozenset[str]]
    budgets: tuple[ObservedBudget, ...] = ()
    guaranteed: Crowds = NO_CROWDS
    others: Crowds = NO_CROWDS
