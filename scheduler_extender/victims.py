"""Which pods must go so that a node has the GPUs asked, and belonging together, at the least cost? Pure.

The order in which sets are compared, and why, is in docs/decisions/0110.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from mcp2026.topology.affinity import AffinityGraph
from mcp2026.topology.score import score_gpu_set

LOWEST_PRIORITY = -(2**31)
"""Of Kubernetes' priorities; where nobody goes, nobody is important."""
WEAKEST_LINK = "weakest-link"
"""The term of a score that stands above the number of victims."""


@dataclass(frozen=True, slots=True)
class Occupant:
    """A pod on the node that may be evicted: its priority is lower than that of the pod that needs room.

    `gpus` are the positions of the GPUs that it holds, `milli_cpu` and `memory` (bytes) its requests.
    `protected`: evicting it would break a PodDisruptionBudget.
    """

    uid: str
    priority: int
    gpus: frozenset[int]
    protected: bool = False
    milli_cpu: int = 0
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Eviction:
    """Who goes, for which GPUs. `cost` compares evictions of one node: the lower, the better."""

    victims: tuple[Occupant, ...]
    gpus: tuple[int, ...]
    cost: tuple[int, ...]

    @property
    def budgets_broken(self) -> int:
        """How many victims are protected by a PodDisruptionBudget."""
        return sum(victim.protected for victim in self.victims)


def cheapest_eviction(
    graph: AffinityGraph, free: Iterable[int], occupants: Sequence[Occupant], size: int
) -> Eviction | None:
    """Return the best set of `size` GPUs out of `free` and those of `occupants`, and who must go for it.

    None where there are not enough. GPUs held by several occupants are free only when all of these go.
    """
    holders: dict[int, int] = dict.fromkeys(free, 0)
    for place, occupant in enumerate(occupants):
        for gpu in occupant.gpus:
            holders[gpu] = holders.get(gpu, 0) | 1 << place
    candidates = sorted(holders)
    evictions: dict[int, tuple[Occupant, ...]] = {}
    best: Eviction | None = None
    for gpus in combinations(candidates, size):
        mask = 0
        for gpu in gpus:
            mask |= holders[gpu]
        victims = evictions.get(mask)
        if victims is None:
            victims = evictions[mask] = tuple(_members(occupants, mask))
        severity = _severity(victims)
        if best is not None and severity > best.cost[:2]:
            continue
        freed = {gpu for gpu in candidates if not holders[gpu] & ~mask}
        cost = (*severity, *_cost_of_the_set(graph, gpus, freed, victims))
        if best is None or cost < best.cost:
            best = Eviction(victims, gpus, cost)
    return best


def _members(occupants: Sequence[Occupant], mask: int) -> Iterable[Occupant]:
    return (occupant for place, occupant in enumerate(occupants) if mask >> place & 1)


def _severity(victims: tuple[Occupant, ...]) -> tuple[int, int]:
    highest = max((victim.priority for victim in victims), default=LOWEST_PRIORITY)
    return sum(victim.protected for victim in victims), highest


def _cost_of_the_set(
    graph: AffinityGraph, gpus: tuple[int, ...], freed: set[int], victims: tuple[Occupant, ...]
) -> tuple[int, ...]:
    terms = score_gpu_set(graph, gpus, freed).terms
    weakest = sum(term.value for term in terms if term.name == WEAKEST_LINK)
    return (
        -weakest,
        sum(victim.priority - LOWEST_PRIORITY for victim in victims),
        len(victims),
        len(freed) - len(gpus),
        *(-term.value for term in terms if term.name != WEAKEST_LINK),
    )


def with_what_the_scheduler_needs(
    victims: Sequence[Occupant], proposed: Sequence[Occupant]
) -> tuple[Occupant, ...]:
    """Return `victims` and those `proposed` victims that cannot be spared, each once.

    kube-scheduler proposed them for all resources together. Those without GPUs stay; those with GPUs go on
    living if `victims` free as much CPU and memory as all of them do.
    """
    ours = {victim.uid: victim for victim in victims}
    without_gpus = [victim for victim in proposed if not victim.gpus]
    chosen = {**ours, **{victim.uid: victim for victim in without_gpus}}
    enough_cpu = _sum_cpu(chosen.values()) >= _sum_cpu(proposed)
    enough_memory = _sum_memory(chosen.values()) >= _sum_memory(proposed)
    if not (enough_cpu and enough_memory):
        chosen |= {victim.uid: victim for victim in proposed}
    return tuple(chosen.values())


def _sum_cpu(occupants: Iterable[Occupant]) -> int:
    return sum(occupant.milli_cpu for occupant in occupants)


def _sum_memory(occupants: Iterable[Occupant]) -> int:
    return sum(occupant.memory for occupant in occupants)
