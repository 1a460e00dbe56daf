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
from mcp2026.topology.bitmasks import mask_of
from mcp2026.topology.errors import NoSuchSetError
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
    """
    members = mask_of(chosen)
    return score_of(bands_of(graph), members, members | mask_of(free), circumstances)


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

    """
    required = mask_of(must_include)
    available = mask_of(free) | required
    if not required.bit_count() <= size <= available.bit_count():
        raise NoSuchSetError(size, available.bit_count())
    return best_choice(graph, Request(available, required, size), circumstances)
