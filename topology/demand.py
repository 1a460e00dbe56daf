"""What later requests will ask for, and how well free GPUs can serve them: fragmentation as lost capacity."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from mcp2026.topology.affinity import AffinityGraph
from mcp2026.topology.bitmasks import positions_of
from mcp2026.topology.errors import DemandMixError

MB_PER_S = 10
"""A percent of a GB/s, the unit in which capacities are counted, in MB/s."""

_KEPT_ANSWERS = 4_096


@dataclass(frozen=True, slots=True)
class DemandMix:
    """How many GPUs later requests will ask for: pairs of a size and its share in percent, by size."""

    shares: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, percent: Mapping[int, int]) -> Self:
        """Return the mix in which a request is of size s in `percent[s]` of 100 cases.

        Raises:
            DemandMixError: a size is below 1, a share below 0, or the shares do not sum to 100.

        """
        for size, share in percent.items():
            if size < 1:
                raise DemandMixError(f"size {size}: allowed: at least 1")
            if share < 0:
                raise DemandMixError(f"share {share} of size {size}: allowed: at least 0")
        if sum(percent.values()) != 100:
            raise DemandMixError(f"the shares sum to {sum(percent.values())}; allowed: 100")
        return cls(tuple(sorted((size, share) for size, share in percent.items() if share)))


DEFAULT_MIX = DemandMix.of({1: 40, 2: 30, 4: 20, 8: 10})
"""An assumption, not a measurement: most pods want one GPU, tensor parallelism takes powers of two."""


class FutureCapacity:
    """How much of a demand mix any set of free GPUs of one machine can serve. Remembers its answers.

    At each bandwidth that the machine has, free GPUs fall into islands: sets that links of at least that
    bandwidth connect. An island of m GPUs holds m // d requests of d GPUs. The capacity for requests of d
    GPUs is the sum over bandwidths of the step from the next lower one (GB/s) times the requests that fit.
    """

    def __init__(self, graph: AffinityGraph, mix: DemandMix) -> None:
        size = len(graph)
        everything = (1 << size) - 1
        self._shares = tuple((asked, share) for asked, share in mix.shares if asked > 1)
        self._levels: list[tuple[int, tuple[int, ...] | None]] = []
        """Step in GB/s, and the neighbours of each GPU; None where all are neighbours of all."""
        below = 0
        for level in sorted({cell for row in graph.bandwidth for cell in row if cell}):
            rows = tuple(
                sum(1 << other for other, cell in enumerate(row) if cell >= level) for row in graph.bandwidth
            )
            complete = all(row | 1 << place == everything for place, row in enumerate(rows))
            self._levels.append((level - below, None if complete else rows))
            below = level
        self._known: dict[int, int] = {}

    def of(self, free: int) -> int:
        """Return the capacity of the set `free`, in percents of a GB/s (10 MB/s)."""
        known = self._known.get(free)
        if known is not None:
            return known
        capacity = 0
        for step, rows in self._levels:
            for island in (free.bit_count(),) if rows is None else _islands(free, rows):
                capacity += step * sum(share * (island // asked) for asked, share in self._shares)
        if len(self._known) >= _KEPT_ANSWERS:
            self._known.clear()
        self._known[free] = capacity
        return capacity


def _islands(free: int, neighbours: tuple[int, ...]) -> list[int]:
    """Return the sizes of the connected parts of `free`."""
    sizes = []
    while free:
        island = 0
        frontier = free & -free
        while frontier:
            island |= frontier
            reached = 0
            for place in positions_of(frontier):
                reached |= neighbours[place]
            frontier = reached & free & ~island
        sizes.append(island.bit_count())
        free &= ~island
    return sizes
