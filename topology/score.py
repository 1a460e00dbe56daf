"""The one scorer: which set of GPUs is best for a request, and why.

The device plugin, the scheduler extender and the command line call these two functions, so that they cannot
disagree. The answer is a pure function of its arguments: `snapshot` writes them down and asks again.
"""

from collections.abc import Iterable

from mcp2026.topology.affinity import AffinityGraph
from mcp2026.topology.bands import (
    NOTHING_KNOWN,
    Choice,
    Circumstances,
    Score,
    Term,
    bands_of,
    score_of,
)
from mcp2026.topology.errors import NoSuchPositionError, NoSuchSetError
from mcp2026.topology.search import Request, best_choice, prepare

__all__ = ["Choice", "Circumstances", "Score", "Term", "best_gpu_set", "prepare", "score_gpu_set"]


def score_gpu_set(
    graph: AffinityGraph,
    chosen: Iterable[int],
    free: Iterable[int],
    circumstances: Circumstances = NOTHING_KNOWN,
) -> Score:
    """Score taking `chosen` out of `free` (positions in the graph; `free` includes `chosen`).

    The bands and their order: docs/decisions/0101-one-scorer-in-eight-bands.md. What later requests lose is
    a loss and not a remainder, so that the sets of different machines compare too.

    Raises:
        NoSuchPositionError: a position or what is known of one is not of the graph.

    """
    members = _mask(graph, "chosen", chosen)
    everything = members | _mask(graph, "free", free)
    _check(graph, circumstances)
    return score_of(bands_of(graph), members, everything, circumstances)


def best_gpu_set(
    graph: AffinityGraph,
    free: Iterable[int],
    size: int,
    must_include: Iterable[int] = (),
    circumstances: Circumstances = NOTHING_KNOWN,
) -> Choice:
    """Return the best set of `size` GPUs out of `free` that holds all of `must_include`.

    Equal scores are decided by the lowest positions, so that the answer depends on nothing but the arguments.

    Raises:
        NoSuchSetError: `free` and `must_include` together have fewer than `size` GPUs, or the latter more.
        NoSuchPositionError: a position or what is known of one is not of the graph.

    """
    required = _mask(graph, "must_include", must_include)
    available = _mask(graph, "free", free) | required
    _check(graph, circumstances)
    if not required.bit_count() <= size <= available.bit_count():
        raise NoSuchSetError(size, available.bit_count())
    return best_choice(graph, Request(available, required, size), circumstances)


def _mask(graph: AffinityGraph, field: str, positions: Iterable[int]) -> int:
    """Return the set of `positions`, all of them in the graph."""
    size = len(graph)
    mask = 0
    for position in positions:
        if not 0 <= position < size:
            raise NoSuchPositionError(field, f"no position {position}", size)
        mask |= 1 << position
    return mask


def _check(graph: AffinityGraph, circumstances: Circumstances) -> None:
    size = len(graph)
    for field, values in (("tenants", circumstances.tenants), ("headroom_us", circumstances.headroom_us)):
        if values and len(values) != size:
            raise NoSuchPositionError(field, f"{len(values)} values", size)
    _mask(graph, "degraded", circumstances.degraded)
