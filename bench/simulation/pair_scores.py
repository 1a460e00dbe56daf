"""GPUs by sums of pair scores: PCIe level, and 100 for each NVLink, as NVIDIA's policy and HAMi count."""

from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations

from bench.simulation.fleet import Node
from mcp2026.topology.bitmasks import mask_of, positions_of
from mcp2026.topology.machine import Machine, PcieAncestor

PCIE_SCORES = {
    PcieAncestor.SYSTEM: 10,
    PcieAncestor.NODE: 20,
    PcieAncestor.HOSTBRIDGE: 30,
    PcieAncestor.MULTIPLE: 40,
    PcieAncestor.SINGLE: 50,
    PcieAncestor.INTERNAL: 60,
}
NVLINK_SCORE = 100

Scores = tuple[tuple[int, ...], ...]


def best_effort_set(node: Node, free: int, size: int) -> int:
    """Choose as NVIDIA's best-effort policy is described.

    Of all partitions of the free GPUs into sets of `size` that with the highest total, and its best set; a
    rest too few for a set counts in the total and is not chosen. NVLinks to NVSwitches are not counted. A
    single GPU is the first.
    """
    if size == 1:
        return free & -free
    return _best_of_best_partition(pair_scores(node.machine, switches=False), free, size)


def best_summed_set(node: Node, free: int, size: int) -> int:
    """Choose as HAMi's topology-aware allocation is described.

    The set with the highest sum of pair scores, of equal ones the lowest; a single GPU is that with the
    lowest sum to the other free ones. Links to NVSwitches count, the lesser number of both.
    """
    return _best_sum(pair_scores(node.machine, switches=True), free, size)


def pair_scores(machine: Machine, *, switches: bool) -> Scores:
    """Return the score of each pair; `switches`: two GPUs on NVSwitches are joined by their lesser number."""
    peers = [[link.peer for link in gpu.nvlinks] for gpu in machine.gpus]

    def score(a: int, b: int) -> int:
        if a == b:
            return 0
        one, other = machine.gpus[a].index, machine.gpus[b].index
        links = min(peers[a].count(other), peers[b].count(one))
        if switches:
            links += min(peers[a].count(None), peers[b].count(None))
        return PCIE_SCORES[machine.pcie_ancestors[a][b] or PcieAncestor.SYSTEM] + NVLINK_SCORE * links

    size = range(len(machine.gpus))
    return tuple(tuple(score(a, b) for b in size) for a in size)


def _sum(scores: Scores, gpus: int) -> int:
    return sum(scores[a][b] for a, b in combinations(positions_of(gpus), 2))


@lru_cache(maxsize=65_536)
def _best_sum(scores: Scores, free: int, size: int) -> int:
    if size == 1:
        return 1 << min(positions_of(free), key=lambda gpu: sum(scores[gpu][b] for b in positions_of(free)))
    return max(map(mask_of, combinations(positions_of(free), size)), key=lambda gpus: _sum(scores, gpus))


@lru_cache(maxsize=65_536)
def _best_of_best_partition(scores: Scores, free: int, size: int) -> int:
    def total(sets: tuple[int, ...]) -> int:
        return sum(_sum(scores, gpus) for gpus in sets)

    rests = map(mask_of, combinations(positions_of(free), free.bit_count() % size))
    partitions = ((rest, sets) for rest in rests for sets in _partitions(free & ~rest, size))
    _, best = max(partitions, key=lambda found: total((found[0], *found[1])))
    return max(best, key=lambda gpus: _sum(scores, gpus))


def _partitions(gpus: int, size: int) -> Iterator[tuple[int, ...]]:
    """Yield the partitions of `gpus` into sets of `size`, which divides their number."""
    if not gpus:
        yield ()
        return
    first = gpus & -gpus
    for others in combinations(positions_of(gpus ^ first), size - 1):
        chosen = first | mask_of(others)
        for further in _partitions(gpus & ~chosen, size):
            yield (chosen, *further)
