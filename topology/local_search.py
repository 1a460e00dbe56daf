"""A good set of GPUs where there are too many to look at all: greedy growth, then exchanges of one GPU."""

from collections.abc import Callable

from mcp2026.topology.bands import Circumstances, GraphBands, score_of
from mcp2026.topology.bitmasks import positions_of

MOST_EXCHANGES = 64
STARTS_IMPROVED = 4
"""The best of the grown sets are improved; each is the start of one descent."""


def improved_set(
    bands: GraphBands, free: int, allowed: int, required: int, size: int, circumstances: Circumstances
) -> int:
    """Return a set of `size` out of `allowed` with all of `required` that no exchange of one GPU improves.

    The answer depends on the arguments alone. Time grows with the square of the number of GPUs: some
    100 ms for 64.
    """

    def key(members: int) -> tuple[int, ...]:
        return score_of(bands, members, free, circumstances).key

    if required.bit_count() >= size:
        return required
    starts = [required] if required else [1 << place for place in positions_of(allowed)]
    grown = {_grown(bands, allowed, start, size, circumstances) for start in starts}
    best_first = sorted(grown, key=lambda members: (tuple(-value for value in key(members)), members))
    improved = [_exchanged(key, allowed, required, members) for members in best_first[:STARTS_IMPROVED]]
    return max(improved, key=lambda members: (key(members), -members))


def _grown(bands: GraphBands, allowed: int, start: int, size: int, circumstances: Circumstances) -> int:
    """Add one GPU after the other, each the best by links, neighbours and NUMA node."""
    bandwidth, numa = bands.graph.bandwidth, bands.graph.numa
    neighbours = circumstances.neighbours(len(numa))
    members = start
    weakest = [1 << 62] * len(numa)
    total = [0] * len(numa)
    nodes = set()
    newest = list(positions_of(start))
    while True:
        for member in newest:
            nodes.add(numa[member])
            for place in positions_of(allowed & ~members):
                weakest[place] = min(weakest[place], bandwidth[member][place])
                total[place] += bandwidth[member][place]
        if members.bit_count() == size:
            return members
        place = max(
            positions_of(allowed & ~members),
            key=lambda place: (
                weakest[place],
                total[place],
                -neighbours[place],
                numa[place] in nodes,
                -place,
            ),
        )
        members |= 1 << place
        newest = [place]


def _exchanged(key: Callable[[int], tuple[int, ...]], allowed: int, required: int, members: int) -> int:
    """Exchange one GPU as long as that is better, at most `MOST_EXCHANGES` times."""
    best = key(members)
    for _ in range(MOST_EXCHANGES):
        better = None
        for old in positions_of(members & ~required):
            for new in positions_of(allowed & ~members):
                candidate = members & ~(1 << old) | 1 << new
                value = key(candidate)
                if value > best:
                    best, better = value, candidate
        if better is None:
            return members
        members = better
    return members
