"""The cluster at one moment, unchangeable: every decision is made on a snapshot.

GPUs are told by their position in the node's affinity graph; `indices` gives the numbers that NVML and
people use.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mcp2026.topology.affinity import AffinityGraph


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """The GPUs of one node.

    `fingerprint` is equal for equal graphs, so that nodes of one kind are scored once. `promised` has, for
    each pod bound here that does not hold all its GPUs yet, how many it still lacks, greatest first: these
    are taken, though not yet known which.
    """

    graph: AffinityGraph
    fingerprint: str
    indices: tuple[int, ...]
    held: frozenset[int] = frozenset()
    unhealthy: frozenset[int] = frozenset()
    promised: tuple[int, ...] = ()
    free: tuple[int, ...] = field(init=False)
    """Healthy and held by nobody, ascending; may include GPUs promised to pods that are starting."""
    available: int = field(init=False)
    """How many can be given to one more pod: `free` less what is promised, at least 0."""
    state: str = field(init=False)
    """Equal for nodes that no score can tell apart: same graph, same free GPUs, same promises."""
    room: str = field(init=False)
    """For people: ``1 of 4 free (0,1 held, 2 unhealthy)``."""

    def __post_init__(self) -> None:
        free = tuple(
            gpu for gpu in range(len(self.graph)) if gpu not in self.held and gpu not in self.unhealthy
        )
        object.__setattr__(self, "free", free)
        object.__setattr__(self, "available", max(0, len(free) - sum(self.promised)))
        object.__setattr__(self, "state", f"{self.fingerprint} {free} {self.promised}")
        object.__setattr__(self, "room", self._describe_room())

    @property
    def total(self) -> int:
        """How many GPUs the node has, in whatever state."""
        return len(self.graph)

    @property
    def healthy(self) -> int:
        """How many GPUs could serve at all, free or held."""
        return self.total - len(self.unhealthy)

    def numbers(self, positions: frozenset[int]) -> str:
        """Return the GPUs at `positions` as people name them: ``0,1,3``."""
        return ",".join(str(self.indices[position]) for position in sorted(positions))

    def _describe_room(self) -> str:
        causes = []
        if self.held:
            causes.append(f"{self.numbers(self.held)} held")
        if sick := self.unhealthy - self.held:
            causes.append(f"{self.numbers(sick)} unhealthy")
        if self.promised:
            causes.append(f"{sum(self.promised)} promised to pods that are starting")
        return f"{self.available} of {self.total} free" + (f" ({', '.join(causes)})" if causes else "")


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """One node: its GPUs, or in words why they are not known."""

    name: str
    gpus: NodeGpus | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """All nodes by name."""

    nodes: Mapping[str, NodeSnapshot]
