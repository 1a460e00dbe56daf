"""The bands written anew from their description, as plainly as can be, and machines made at random.

Nothing here shares code with the scorer: sets are frozensets, islands come from joining one GPU after the
other, and the best set is found by trying all.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from random import Random

from mcp2026.topology.affinity import AffinityGraph
from mcp2026.topology.machine import Gpu, Machine, NvLink, PcieAncestor

Bands = tuple[int, ...]


@dataclass
class Reference:
    """A graph and what is known beside it."""

    graph: AffinityGraph
    tenants: Sequence[int] = ()
    headroom: Sequence[int | None] = ()
    degraded: Collection[int] = ()
    mix: dict[int, int] = field(default_factory=lambda: {1: 40, 2: 30, 4: 20, 8: 10})
    _capacities: dict[frozenset[int], int] = field(default_factory=dict)

    def islands(self, gpus: frozenset[int], bandwidth: int) -> list[set[int]]:
        """Sets that links of at least `bandwidth` connect."""
        found: list[set[int]] = []
        for gpu in gpus:
            joined = {gpu}
            apart = []
            for island in found:
                if any(self.graph.bandwidth[gpu][other] >= bandwidth for other in island):
                    joined |= island
                else:
                    apart.append(island)
            found = [*apart, joined]
        return found

    def capacity(self, gpus: frozenset[int]) -> int:
        """In MB/s."""
        if gpus not in self._capacities:
            total, below = 0, 0
            for level in sorted({cell for row in self.graph.bandwidth for cell in row} - {0}):
                for island in self.islands(gpus, level):
                    for size, percent in self.mix.items():
                        if size > 1:
                            total += (level - below) * (len(island) // size) * percent * 10
                below = level
            self._capacities[gpus] = total
        return self._capacities[gpus]

    def bands(self, members: tuple[int, ...], free: frozenset[int]) -> Bands:
        """From the highest to the lowest."""
        left = free - set(members)
        pairs = [self.graph.bandwidth[a][b] for a, b in combinations(members, 2)]
        shortfalls = [min(0, self.headroom[gpu] or 0) for gpu in members] if self.headroom else []
        sick = set(self.graph.degraded) | set(self.degraded)
        return (
            min(shortfalls, default=0),
            -len(sick.intersection(members)),
            min(pairs, default=0),
            sum(pairs),
            -sum(self.tenants[gpu] for gpu in members) if self.tenants else 0,
            -len({self.graph.numa[gpu] for gpu in members}),
            self.capacity(left) - self.capacity(free),
            -sum(self.graph.nvlink[a][b] for a in members for b in left),
        )

    def best(self, free: Collection[int], size: int, required: Collection[int] = ()) -> tuple[int, ...]:
        """Ties go to the lowest positions."""
        pool = frozenset(free) | frozenset(required)
        sets = [members for members in combinations(sorted(pool), size) if set(required).issubset(members)]
        best = max(self.bands(members, pool) for members in sets)
        return min(members for members in sets if self.bands(members, pool) == best)


def random_machine(random: Random, size: int) -> Machine:
    """Bridges, switches or neither; dead, one-sided and uneven links; NUMA nodes that are not told."""
    style = random.choice(["pcie", "bridges", "mesh", "weak mesh", "switched", "switched", "mixed"])
    ends: list[list[NvLink]] = [[] for _ in range(size)]

    def add(gpu: int, peer: int | None, links: int) -> None:
        for _ in range(links):
            ends[gpu].append(NvLink(len(ends[gpu]), peer, version))

    version = random.choice([0, 2, 3, 4, 5])
    if style in ("bridges", "mixed"):
        order = random.sample(range(size), size)
        for a, b in zip(order[::2], order[1::2], strict=False):
            links = random.choice([1, 4, 12])
            add(a, b, links)
            add(b, a, links - random.choice([0, 0, 0, 0, 1, links]))
    if style in ("mesh", "weak mesh"):
        for a, b in combinations(range(size), 2):
            links = random.choice([0, 0, 1, 2] if style == "mesh" else [0, 1])
            add(a, b, links)
            add(b, a, max(0, links - random.choice([0, 0, 0, 1])))
    if style in ("switched", "mixed"):
        for gpu in range(size):
            add(gpu, None, 6 - random.choice([0, 0, 0, 0, 1, 6]))
    nodes: list[int | None] = random.choice([[None], [0], [0, 1], [0, 1, None], [0, 1, 2, 3]])
    numa = sorted((random.choice(nodes) for _ in range(size)), key=lambda node: (node is None, node))
    if random.random() < 0.5:
        random.shuffle(numa)
    levels = random.sample(list(PcieAncestor), random.choice([1, 2, 3]))
    if style == "weak mesh":
        levels = [PcieAncestor.INTERNAL]  # as fast as one NVLink, which then counts only for what is split
    ancestors: list[list[PcieAncestor | None]] = [[None] * size for _ in range(size)]
    nested = random.random() < 0.5
    for a, b in combinations(range(size), 2):
        depth = 0 if a // 2 == b // 2 else 1 if a // 4 == b // 4 else 2
        level = sorted(levels)[min(depth, len(levels) - 1)] if nested else random.choice(levels)
        ancestors[a][b] = ancestors[b][a] = level
    gpus = tuple(
        Gpu(
            index=gpu,
            uuid=f"GPU-{gpu}",
            product="P",
            memory_mib=81_920,
            pci_bus_id=f"00000000:{gpu:02X}:00.0",
            numa_node=numa[gpu],
            nvlinks=tuple(ends[gpu]),
            inactive_links=(len(ends[gpu]),) if random.random() < 0.1 else (),
            degraded=random.random() < 0.08,
        )
        for gpu in range(size)
    )
    return Machine("random", gpus, tuple(map(tuple, ancestors)))
