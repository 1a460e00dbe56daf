"""The one scorer: which set of GPUs is best for a request, and why.

A score is a list of named terms in bands. Terms are compared from the first to the last, so that a lower
band decides only where all bands above it are equal. Every term is "more is better".
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from mcp2026.topology.affinity import AffinityGraph
from mcp2026.topology.errors import NoSuchSetError


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
        """The values alone: scores of requests of one size compare by it."""
        return tuple(term.value for term in self.terms)

    def __str__(self) -> str:
        return ", ".join(f"{term.name} {term.value} {term.unit}".rstrip() for term in self.terms)


@dataclass(frozen=True, slots=True)
class Choice:
    """The best set, as ascending positions in the graph, with its score."""

    gpus: tuple[int, ...]
    score: Score


def score_gpu_set(graph: AffinityGraph, chosen: Iterable[int], free: Iterable[int]) -> Score:
    """Score taking `chosen` out of `free` (positions in the graph; `free` includes `chosen`).

    Bands, from the highest: the set's weakest link and the sum of its links (GB/s; 0 for a single GPU, which
    has none), how few NUMA nodes it spans (negative), and the NVLink bandwidth between the set and the GPUs
    left free, which later requests lose (negative): a single request does not split a bridged pair. It is
    a loss and not a remainder so that the sets of different machines compare too.
    """
    members = sorted(chosen)
    left = sorted(set(free).difference(members))
    links = [graph.bandwidth[a][b] for a, b in combinations(members, 2)]
    return Score(
        (
            Term("weakest-link", min(links, default=0), "GB/s"),
            Term("total-links", sum(links), "GB/s"),
            Term("numa-nodes", -len({graph.numa[gpu] for gpu in members}), ""),
            Term("split-nvlink", -sum(graph.nvlink[a][b] for a in members for b in left), "GB/s"),
        )
    )


def best_gpu_set(
    graph: AffinityGraph, free: Iterable[int], size: int, must_include: Iterable[int] = ()
) -> Choice:
    """Return the best set of `size` GPUs out of `free` that holds all of `must_include`.

    Equal scores are decided by the lowest positions, so that the answer depends on nothing but the arguments.

    Raises:
        NoSuchSetError: `free` and `must_include` together have fewer than `size` GPUs, or the latter more.

    """
    required = tuple(sorted(set(must_include)))
    candidates = sorted(set(free).difference(required))
    available = sorted({*candidates, *required})
    missing = size - len(required)
    if missing < 0 or missing > len(candidates):
        raise NoSuchSetError(size, len(available))
    best: Choice | None = None
    for added in combinations(candidates, missing):
        members = tuple(sorted((*required, *added)))
        score = score_gpu_set(graph, members, available)
        if best is None or score.key > best.score.key:
            best = Choice(members, score)
    assert best is not None
    return best
