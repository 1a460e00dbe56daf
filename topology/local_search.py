"""A good set of GPUs where there are too many to look at all: greedy growth, then exchanges of one GPU.

The two highest bands are equal for all sets that are looked at here: what may be taken is restricted before.
"""

from mcp2026.topology.bands import Circumstances, GraphBands
from mcp2026.topology.bitmasks import positions_of

MOST_EXCHANGES = 64
STARTS_IMPROVED = 4
"""The best of the grown sets are improved; each is the start of one descent."""

_Links = tuple[int, int]


def improved_set(
    bands: GraphBands, free: int, allowed: int, required: int, size: int, circumstances: Circumstances
) -> int:
    """Return a set of `size` out of `allowed` with all of `required` that no exchange of one GPU improves.

    The answer depends on the arguments alone. Time grows with the square of the number of GPUs.
    """
    if required.bit_count() >= size:
        return required
    search = _LocalSearch(bands, free, allowed, required, circumstances)
    starts = [required] if required else [1 << place for place in positions_of(allowed)]
    grown = {search.grown(start, size) for start in starts}
    best_first = sorted(grown, key=search.rank, reverse=True)
    return max((search.exchanged(members) for members in best_first[:STARTS_IMPROVED]), key=search.rank)


class _LocalSearch:
    """One question: what may be taken, what must be, and what is known."""

    def __init__(
        self, bands: GraphBands, free: int, allowed: int, required: int, circumstances: Circumstances
    ) -> None:
        self._bands = bands
        self._free = free
        self._allowed = allowed
        self._required = required
        self._neighbours = circumstances.neighbours(len(bands.graph))
        self._capacity = bands.capacity(circumstances.mix)

    def links(self, members: int) -> _Links:
        """Return the two bands of links."""
        return self._bands.weakest_link(members), self._bands.total_links(members)

    def lower_bands(self, members: int) -> tuple[int, ...]:
        """Return the bands below links; that of later requests takes longest."""
        left = self._free & ~members
        return (
            -sum(self._neighbours[place] for place in positions_of(members)),
            -self._bands.numa_nodes(members),
            self._capacity.of(left),
            -self._bands.split_nvlink(members, left),
        )

    def rank(self, members: int) -> tuple[_Links, tuple[int, ...], int]:
        """Return all bands, and last what decides between equal sets."""
        return self.links(members), self.lower_bands(members), -members

    def grown(self, start: int, size: int) -> int:
        """Add one GPU after the other, each the best by links, neighbours and NUMA node."""
        bandwidth, numa = self._bands.graph.bandwidth, self._bands.graph.numa
        members = start
        weakest = [1 << 62] * len(numa)
        total = [0] * len(numa)
        nodes = set()
        newest = list(positions_of(start))
        while True:
            for member in newest:
                nodes.add(numa[member])
                for place in positions_of(self._allowed & ~members):
                    weakest[place] = min(weakest[place], bandwidth[member][place])
                    total[place] += bandwidth[member][place]
            if members.bit_count() == size:
                return members
            best = max(
                positions_of(self._allowed & ~members),
                key=lambda place: (
                    weakest[place],
                    total[place],
                    -self._neighbours[place],
                    numa[place] in nodes,
                    -place,
                ),
            )
            members |= 1 << best
            newest = [best]

    def exchanged(self, members: int) -> int:
        """Make the best exchange of one GPU as long as it is better, at most `MOST_EXCHANGES` times."""
        for _ in range(MOST_EXCHANGES):
            better = self._best_exchange(members)
            if better == members:
                return members
            members = better
        return members

    def _best_exchange(self, members: int) -> int:
        bandwidth = self._bands.graph.bandwidth
        best, links = members, self.links(members)
        lower: tuple[int, ...] | None = None
        """Of the best, once it was needed."""
        others = list(positions_of(self._allowed & ~members))
        for old in positions_of(members & ~self._required):
            rest = members & ~(1 << old)
            places = list(positions_of(rest))
            rest_weakest, rest_total = self.links(rest)
            for new in others:
                gains = [bandwidth[new][place] for place in places]
                slowest = min(gains, default=0)
                weakest = min(rest_weakest, slowest) if len(gains) > 1 else slowest
                candidate = weakest, rest_total + sum(gains)
                if candidate < links:
                    continue
                changed = rest | 1 << new
                if candidate > links:
                    best, links, lower = changed, candidate, None
                    continue
                if lower is None:
                    lower = self.lower_bands(best)
                its = self.lower_bands(changed)
                if its > lower:
                    best, lower = changed, its
        return best
