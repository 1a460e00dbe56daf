"""What the terms of a score are, and their values for a set of GPUs given as a bitmask.

A score is a list of named terms in bands. Terms are compared from the first to the last, so that a lower
band decides only where all bands above it are equal. Every term is "more is better".
"""

from dataclasses import dataclass
from functools import lru_cache

from mcp2026.topology.affinity import AffinityGraph
from mcp2026.topology.bitmasks import mask_of, positions_of
from mcp2026.topology.demand import DEFAULT_MIX, MB_PER_S, DemandMix, FutureCapacity

BANDS = (
    ("slo-shortfall", "µs"),
    ("degraded-gpus", ""),
    ("weakest-link", "GB/s"),
    ("total-links", "GB/s"),
    ("neighbours", ""),
    ("numa-nodes", ""),
    ("future-loss", "MB/s"),
    ("split-nvlink", "GB/s"),
)
"""Name and unit of each term, from the highest band to the lowest."""

_KEPT_GRAPHS = 16


@dataclass(frozen=True, slots=True)
class Term:
    """One criterion and its value in the unit named."""

    name: str
    value: int
    unit: str


@dataclass(frozen=True, slots=True)
class Score:
    """Terms from the highest band to the lowest."""

    terms: tuple[Term, ...]

    @property
    def key(self) -> tuple[int, ...]:
        """The values alone: scores of requests of one size compare by it, over machines too."""
        return tuple(term.value for term in self.terms)

    def __str__(self) -> str:
        """Leave out the terms that a caller supplies and that are neutral."""
        told = [term for term in self.terms if term.value or term.name not in _SUPPLIED]
        return ", ".join(f"{term.name} {term.value} {term.unit}".rstrip() for term in told)


_SUPPLIED = ("slo-shortfall", "degraded-gpus", "neighbours")


@dataclass(frozen=True, slots=True)
class Choice:
    """The best set, as ascending positions in the graph, with its score.

    `exact` is False when not all sets could be looked at (more than 16 GPUs, hardly any of them alike).
    """

    gpus: tuple[int, ...]
    score: Score
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a caller knows beside the machine's links. Sequences are by position; empty: nothing is known.

    `tenants` counts other tenants on or next to each GPU, at least 0. `headroom_us` is by how much the
    predicted latency on each GPU stays below what was promised, in µs, negative where it breaks the promise;
    None where nothing is predicted, which is neutral. `degraded` adds to the graph's degraded positions.
    `mix` is what later requests will ask for.
    """

    tenants: tuple[int, ...] = ()
    headroom_us: tuple[int | None, ...] = ()
    degraded: tuple[int, ...] = ()
    mix: DemandMix = DEFAULT_MIX

    def shortfalls(self, size: int) -> tuple[int, ...]:
        """Return by how much each of `size` GPUs breaks the promise, negative, in µs; 0 where it does not."""
        if not self.headroom_us:
            return (0,) * size
        return tuple(min(0, headroom or 0) for headroom in self.headroom_us)

    def neighbours(self, size: int) -> tuple[int, ...]:
        """Return the number of other tenants of each of `size` GPUs."""
        return self.tenants or (0,) * size


NOTHING_KNOWN = Circumstances()


class GraphBands:
    """The bands that follow from the graph alone, by bitmask."""

    def __init__(self, graph: AffinityGraph) -> None:
        self.graph = graph
        self._numa = tuple(
            mask_of(place for place, its in enumerate(graph.numa) if its == node)
            for node in dict.fromkeys(graph.numa)
        )
        self.degraded = mask_of(graph.degraded)
        self.twins = _twin_classes(graph)
        self._capacities: dict[DemandMix, FutureCapacity] = {}

    def weakest_link(self, members: int) -> int:
        """Return the lowest bandwidth between two of `members`; 0 for one alone."""
        places = list(positions_of(members))
        bandwidth = self.graph.bandwidth
        return min((bandwidth[a][b] for a in places for b in places if a < b), default=0)

    def total_links(self, members: int) -> int:
        """Return the sum of bandwidths over all pairs of `members`."""
        places = list(positions_of(members))
        return sum(sum(map(self.graph.bandwidth[a].__getitem__, places)) for a in places) // 2

    def numa_nodes(self, members: int) -> int:
        """Return how many NUMA nodes `members` span, the unknown one among them."""
        return sum(1 for node in self._numa if node & members)

    def split_nvlink(self, members: int, left: int) -> int:
        """Return the NVLink bandwidth between `members` and `left`."""
        others = list(positions_of(left))
        return sum(sum(map(self.graph.nvlink[a].__getitem__, others)) for a in positions_of(members))

    def capacity(self, mix: DemandMix) -> FutureCapacity:
        """Return what measures the capacity for `mix`."""
        known = self._capacities.get(mix)
        if known is None:
            if len(self._capacities) >= _KEPT_GRAPHS:
                self._capacities.clear()
            known = self._capacities[mix] = FutureCapacity(self.graph, mix)
        return known


@lru_cache(maxsize=_KEPT_GRAPHS)
def bands_of(graph: AffinityGraph) -> GraphBands:
    """Return the bands of `graph`, made once for equal graphs."""
    return GraphBands(graph)


def score_of(bands: GraphBands, members: int, free: int, circumstances: Circumstances) -> Score:
    """Score taking the set `members` out of the set `free`, which includes it."""
    size = len(bands.graph)
    places = list(positions_of(members))
    left = free & ~members
    shortfalls = circumstances.shortfalls(size)
    neighbours = circumstances.neighbours(size)
    degraded = bands.degraded | mask_of(circumstances.degraded)
    capacity = bands.capacity(circumstances.mix)
    values = (
        min((shortfalls[place] for place in places), default=0),
        -(members & degraded).bit_count(),
        bands.weakest_link(members),
        bands.total_links(members),
        -sum(neighbours[place] for place in places),
        -bands.numa_nodes(members),
        MB_PER_S * (capacity.of(left) - capacity.of(free)),
        -bands.split_nvlink(members, left),
    )
    return Score(tuple(Term(name, value, unit) for (name, unit), value in zip(BANDS, values, strict=True)))


def _twin_classes(graph: AffinityGraph) -> tuple[tuple[int, ...], ...]:
    """Return the classes of GPUs that can be exchanged without changing anything, positions ascending."""
    classes: list[list[int]] = []
    for gpu in range(len(graph)):
        for twins in classes:
            if _are_twins(graph, twins[0], gpu):
                twins.append(gpu)
                break
        else:
            classes.append([gpu])
    return tuple(map(tuple, classes))


def _are_twins(graph: AffinityGraph, a: int, b: int) -> bool:
    alone = graph.numa.count(graph.numa[a]) == graph.numa.count(graph.numa[b]) == 1
    if graph.numa[a] != graph.numa[b] and not alone:
        return False
    return all(
        matrix[a][:a] + matrix[a][a + 1 : b] + matrix[a][b + 1 :]
        == matrix[b][:a] + matrix[b][a + 1 : b] + matrix[b][b + 1 :]
        for matrix in (graph.bandwidth, graph.nvlink)
    )
