"""How long does the choice of k of n GPUs take, beside trying every set with the same scores?

That both give the same answer is checked. *first* is the first request of a size on a machine, which lists
its sets; *next* any later one.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb
from pathlib import Path
from random import Random
from statistics import median

from bench.errors import BenchError
from bench.peers.peer import ROOT
from mcp2026.topology.affinity import AffinityGraph, affinity_graph
from mcp2026.topology.bands import NOTHING_KNOWN, bands_of, score_of
from mcp2026.topology.bitmasks import mask_of
from mcp2026.topology.machine import machine_from_file
from mcp2026.topology.score import best_gpu_set

FIXTURES = ROOT / "tests" / "topologies"
SIZES = (1, 2, 4, 8)
CALLS = 20
"""Of later requests, in each round."""
FEW_SETS = 500
"""Up to so many, all sets are tried in each round; more only in the first."""
COLUMNS = ("machine", "GPUs", "of", "sets", "all sets ms", "first ms", "next ms", "all / first", "all / next")


@dataclass(frozen=True, slots=True)
class Times:
    """Of one question: how many GPUs of how many, how many sets there are, and medians in seconds."""

    machine: str
    size: int
    gpus: int
    all_sets: float
    first: float
    later: float

    @property
    def row(self) -> tuple[str, ...]:
        """The cells of a table."""
        return (
            self.machine,
            str(self.size),
            str(self.gpus),
            str(comb(self.gpus, self.size)),
            *(f"{1_000 * value:.3f}" for value in (self.all_sets, self.first, self.later)),
            f"{self.all_sets / self.first:.0f}",
            f"{self.all_sets / self.later:.0f}",
        )


def placement(rounds: int) -> list[Times]:
    """Measure all machines: the fixtures with 8 GPUs or more, and two of 16 that are made up.

    Raises:
        BenchError: an answer is not the best of all sets.

    """
    return [
        _measure(name, graph, size, rounds)
        for name, graph in _machines()
        for size in SIZES
        if size < len(graph)
    ]


def _machines() -> list[tuple[str, AffinityGraph]]:
    known = [(path.stem, affinity_graph(machine_from_file(path))) for path in _fixtures()]
    return [*known, ("16 in bridged pairs", _pairs(16)), ("16 without symmetry", _uneven(16))]


def _fixtures() -> Sequence[Path]:
    return [path for path in sorted(FIXTURES.glob("*.yaml")) if path.stem.startswith(("8x", "dgx", "hgx"))]


def _pairs(size: int) -> AffinityGraph:
    matrix = tuple(
        tuple(0 if a == b else 300 if a // 2 == b // 2 else 10 for b in range(size)) for a in range(size)
    )
    return AffinityGraph(matrix, matrix, matrix, tuple(2 * gpu // size for gpu in range(size)))


def _uneven(size: int) -> AffinityGraph:
    random = Random(size)
    cells = [[0] * size for _ in range(size)]
    for a, b in combinations(range(size), 2):
        cells[a][b] = cells[b][a] = random.choice([10, 16, 24, 50, 300])
    matrix = tuple(map(tuple, cells))
    return AffinityGraph(matrix, matrix, matrix, tuple(random.choice([0, 1]) for _ in range(size)))


def _measure(name: str, graph: AffinityGraph, size: int, rounds: int) -> Times:
    all_sets, first, later = [], [], []
    for number in range(rounds):
        free = list(range(len(graph)))
        if size < len(graph) - 1:
            free.remove(number % len(graph))
        unseen = _unseen(graph, number)
        start = time.perf_counter()
        chosen = best_gpu_set(unseen, free, size).gpus
        first.append(time.perf_counter() - start)
        start = time.perf_counter()
        for _ in range(CALLS):
            best_gpu_set(unseen, free, size)
        later.append((time.perf_counter() - start) / CALLS)
        if number == 0 or comb(len(free), size) < FEW_SETS:
            start = time.perf_counter()
            best = _best_of_all(graph, free, size)
            all_sets.append(time.perf_counter() - start)
            if chosen != best:
                raise BenchError(f"{name}: {size} of {free}: {chosen}, the best of all sets is {best}")
    return Times(name, size, len(graph), median(all_sets), median(first), median(later))


def _unseen(graph: AffinityGraph, number: int) -> AffinityGraph:
    """Return a graph that the scorer has not seen: another latency, which does not count."""
    return replace(graph, latency=((number, time.perf_counter_ns()),))


def _best_of_all(graph: AffinityGraph, free: Sequence[int], size: int) -> tuple[int, ...]:
    known = bands_of(graph)
    everything = mask_of(free)
    best: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    for members in combinations(free, size):
        key = score_of(known, mask_of(members), everything, NOTHING_KNOWN).key
        if best is None or key > best[0]:
            best = key, members
    assert best is not None
    return best[1]
