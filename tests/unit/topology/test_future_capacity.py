"""Capacity for later requests: islands beside the exact packing of sets of GPUs."""

from functools import cache
from itertools import combinations
from pathlib import Path

import pytest

from mcp2026.topology.affinity import AffinityGraph, affinity_graph
from mcp2026.topology.demand import DEFAULT_MIX, FutureCapacity
from mcp2026.topology.machine import machine_from_file

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
FIXTURES = sorted(TOPOLOGIES.glob("*.yaml"))
NOT_NESTED = {"dgx-1v-8xv100", "hgx-b200-8gpu-one-off-fabric"}


def exact_capacity(graph: AffinityGraph, free: int) -> int:
    """The greatest sum of weakest links of disjoint sets, for each size of the mix, in percents of GB/s."""

    def packed(size: int) -> int:
        sets = [
            (sum(1 << gpu for gpu in gpus), min(graph.bandwidth[a][b] for a, b in combinations(gpus, 2)))
            for gpus in combinations(range(len(graph)), size)
        ]

        @cache
        def best(left: int) -> int:
            if left.bit_count() < size:
                return 0
            lowest = left & -left
            with_it = [
                weakest + best(left ^ gpus) for gpus, weakest in sets if gpus & lowest and not gpus & ~left
            ]
            return max([best(left ^ lowest), *with_it])

        return best(free)

    return sum(share * packed(size) for size, share in DEFAULT_MIX.shares if size > 1)


@pytest.mark.parametrize(
    "path", [path for path in FIXTURES if path.stem != "dgx-2-16xv100"], ids=lambda path: path.stem
)
def test_islands_are_exact_where_links_nest_and_never_too_few(path: Path) -> None:
    graph = affinity_graph(machine_from_file(path))
    capacity = FutureCapacity(graph, DEFAULT_MIX)
    everything = (1 << len(graph)) - 1
    for free in range(0, everything + 1, 3):
        islands, exact = capacity.of(free), exact_capacity(graph, free)
        assert islands >= exact
        assert islands == exact or path.stem in NOT_NESTED


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_taking_gpus_never_adds_capacity(path: Path) -> None:
    graph = affinity_graph(machine_from_file(path))
    capacity = FutureCapacity(graph, DEFAULT_MIX)
    for free in range(1, 1 << len(graph), 61):
        for gpu in range(len(graph)):
            assert capacity.of(free & ~(1 << gpu)) <= capacity.of(free)


def test_answers_are_remembered_up_to_a_limit() -> None:
    graph = affinity_graph(machine_from_file(TOPOLOGIES / "dgx-2-16xv100.yaml"))
    capacity = FutureCapacity(graph, DEFAULT_MIX)
    for free in range(5_000):
        capacity.of(free)
    assert len(capacity._known) <= 4_096
