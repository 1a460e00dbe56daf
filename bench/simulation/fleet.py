"""The nodes of a simulated cluster: their links, and what the best of these could give. GPUs are bitmasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, zip_longest

from bench.errors import BenchError
from bench.placement import FIXTURES
from mcp2026.topology.affinity import AffinityGraph, affinity_graph
from mcp2026.topology.bitmasks import mask_of, positions_of
from mcp2026.topology.errors import MachineFormatError
from mcp2026.topology.machine import Machine, machine_from_file


@dataclass(frozen=True, slots=True)
class Node:
    """One machine of the fleet. Hashed by kind: nodes of one kind have the same links."""

    name: str
    kind: str
    machine: Machine
    graph: AffinityGraph

    def __len__(self) -> int:
        return len(self.graph)

    @property
    def every_gpu(self) -> int:
        """All its GPUs."""
        return (1 << len(self.graph)) - 1

    def weakest_link(self, gpus: int) -> int:
        """Return the lowest bandwidth between two of `gpus` in GB/s; 0 for one alone."""
        rows = self.graph.bandwidth
        return min((rows[a][b] for a, b in combinations(positions_of(gpus), 2)), default=0)

    def best_link(self, size: int) -> int:
        """Return the best weakest link of `size` of its GPUs in GB/s; 0 if it has fewer."""
        return _best_link(self.graph, size)

    def sets_by_links(self, free: int, size: int) -> int:
        """Return how many disjoint sets of `size` of `free` have links as good as the machine's best."""
        level = self.best_link(size)
        return _most_sets(_neighbours(self.graph, level), free, size)


def fleet_of(machines: Mapping[str, int]) -> tuple[Node, ...]:
    """Return the nodes; kinds take turns, so that who takes the first that fits prefers none.

    Raises:
        BenchError: there is no such machine in tests/topologies.

    """
    by_kind = [_nodes(kind, count) for kind, count in machines.items()]
    turns = zip_longest(*by_kind)
    return tuple(node for turn in turns for node in turn if node is not None)


def _nodes(kind: str, count: int) -> Sequence[Node]:
    path = FIXTURES / f"{kind}.yaml"
    try:
        machine = machine_from_file(path)
    except MachineFormatError as error:
        known = ", ".join(sorted(each.stem for each in FIXTURES.glob("*.yaml")))
        raise BenchError(f"machines: {error}; known: {known}") from error
    graph = affinity_graph(machine)
    return [Node(f"{kind}-{number:02}", kind, machine, graph) for number in range(count)]


@lru_cache(maxsize=1_024)
def _best_link(graph: AffinityGraph, size: int) -> int:
    if size > len(graph):
        return 0
    rows = graph.bandwidth
    sets = combinations(range(len(graph)), size)
    return max(min((rows[a][b] for a, b in combinations(gpus, 2)), default=0) for gpus in sets)


@lru_cache(maxsize=1_024)
def _neighbours(graph: AffinityGraph, level: int) -> tuple[int, ...]:
    return tuple(
        mask_of(other for other, cell in enumerate(row) if other != place and cell >= level)
        for place, row in enumerate(graph.bandwidth)
    )


@lru_cache(maxsize=65_536)
def _most_sets(neighbours: tuple[int, ...], free: int, size: int) -> int:
    """Return the most disjoint sets of `size` in `free` whose members are all neighbours. Exact."""
    bound = free.bit_count() // size
    if not bound:
        return 0
    first = (free & -free).bit_length() - 1
    best = _most_sets(neighbours, free & (free - 1), size)
    for others in combinations(positions_of(free & neighbours[first]), size - 1):
        if best == bound:
            break
        if all(neighbours[a] >> b & 1 for a, b in combinations(others, 2)):
            members = mask_of((first, *others))
            best = max(best, 1 + _most_sets(neighbours, free & ~members, size))
    return best
