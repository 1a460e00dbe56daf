"""Whom to evict for a set of GPUs: cases with a name, and random nodes against a search over all subsets."""

from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp2026.scheduler_extender.victims import (
    LOWEST_PRIORITY,
    WEAKEST_LINK,
    Eviction,
    Occupant,
    cheapest_eviction,
    with_what_the_scheduler_needs,
)
from mcp2026.topology.affinity import AffinityGraph, affinity_graph
from mcp2026.topology.machine import machine_from_file
from mcp2026.topology.score import score_gpu_set

TOPOLOGIES = Path(__file__).parents[2] / "topologies"


def graph(name: str) -> AffinityGraph:
    return affinity_graph(machine_from_file(TOPOLOGIES / f"{name}.yaml"))


PAIRS = graph("4xa100-pcie-nvlink-pairs")
"""Bridges join 0 with 1 and 2 with 3."""
CUBE = graph("dgx-1v-8xv100")


def pod(uid: str, priority: int, *gpus: int, protected: bool = False) -> Occupant:
    return Occupant(uid, priority, frozenset(gpus), protected, milli_cpu=1000, memory=2**30)


def uids(eviction: Eviction | None) -> set[str] | None:
    return None if eviction is None else {victim.uid for victim in eviction.victims}


@pytest.mark.parametrize(
    ("free", "occupants", "size", "victims", "gpus"),
    [
        pytest.param({0, 1}, [pod("a", 0, 2, 3)], 2, set(), (0, 1), id="a free pair costs nobody"),
        pytest.param(
            {0},
            [pod("b", 0, 2), pod("c", 0, 3), pod("a", 0, 1)],
            2,
            {"a"},
            (0, 1),
            id="who has the other half",
        ),
        pytest.param(
            set(),
            [pod("a", 0, 0), pod("b", 0, 2), pod("c", 0, 1), pod("d", 0, 3)],
            2,
            {"a", "c"},
            (0, 1),
            id="the two that share a bridge go, not the first two",
        ),
        pytest.param(
            {0},
            [pod("a", 5, 1), pod("b", 3, 2, 3)],
            2,
            {"b"},
            (2, 3),
            id="the least important, though it has more",
        ),
        pytest.param(
            {0},
            [pod("a", 3, 1, protected=True), pod("b", 9, 2, 3)],
            2,
            {"b"},
            (2, 3),
            id="a budget is kept before a priority",
        ),
        pytest.param(
            {0},
            [pod("a", 3, 1, protected=True)],
            2,
            {"a"},
            (0, 1),
            id="a budget is broken if nothing else helps",
        ),
        pytest.param({0}, [pod("a", 0, 1)], 3, None, None, id="not enough, whoever goes"),
        pytest.param(
            {3}, [pod("a", 1, 0, 1), pod("b", 1, 2)], 2, {"b"}, (2, 3), id="fewer GPUs are taken from others"
        ),
    ],
)
def test_the_cheapest_pods_that_free_a_linked_set_go(
    free: set[int],
    occupants: list[Occupant],
    size: int,
    victims: set[str] | None,
    gpus: tuple[int, ...] | None,
) -> None:
    eviction = cheapest_eviction(PAIRS, free, occupants, size)
    assert uids(eviction) == victims
    assert (eviction.gpus if eviction else None) == gpus


def test_a_gpu_that_two_pods_hold_is_free_when_both_go() -> None:
    eviction = cheapest_eviction(PAIRS, {0}, [pod("a", 0, 1), pod("b", 2, 1)], 2)
    assert uids(eviction) == {"a", "b"}


def by_trying_everything(
    machine: AffinityGraph, free: set[int], occupants: list[Occupant], size: int
) -> tuple[int, ...] | None:
    """Every subset of the pods, every set of what it frees; only subsets that the set needs count."""
    costs = []
    for count in range(len(occupants) + 1):
        for victims in combinations(occupants, count):
            staying: set[int] = set().union(*(other.gpus for other in occupants if other not in victims))
            freed = (free | set().union(*(victim.gpus for victim in victims))) - staying
            for gpus in combinations(sorted(freed), size):
                if any(not victim.gpus & set(gpus) for victim in victims):
                    continue
                terms = score_gpu_set(machine, gpus, freed).terms
                costs.append(
                    (
                        sum(victim.protected for victim in victims),
                        max((victim.priority for victim in victims), default=LOWEST_PRIORITY),
                        -next(term.value for term in terms if term.name == WEAKEST_LINK),
                        sum(victim.priority - LOWEST_PRIORITY for victim in victims),
                        len(victims),
                        len(freed) - size,
                        *(-term.value for term in terms if term.name != WEAKEST_LINK),
                    )
                )
    return min(costs, default=None)


@st.composite
def nodes(draw: st.DrawFn) -> tuple[AffinityGraph, set[int], list[Occupant], int]:
    machine = draw(st.sampled_from([PAIRS, CUBE]))
    owner = draw(st.lists(st.integers(-2, 4), min_size=len(machine), max_size=len(machine)))
    free = {gpu for gpu, who in enumerate(owner) if who == -1}
    occupants = [
        Occupant(
            uid=str(who),
            priority=draw(st.integers(-1, 2)),
            gpus=frozenset(gpu for gpu, holder in enumerate(owner) if holder == who),
            protected=draw(st.booleans()),
        )
        for who in sorted(set(owner) - {-1, -2})
    ]
    return machine, free, occupants, draw(st.integers(1, 4))


@given(nodes())
def test_no_cheaper_eviction_exists(node: tuple[AffinityGraph, set[int], list[Occupant], int]) -> None:
    machine, free, occupants, size = node
    eviction = cheapest_eviction(machine, free, occupants, size)
    assert (eviction.cost if eviction else None) == by_trying_everything(machine, free, occupants, size)
    if eviction is not None:
        held_by_others = set().union(*(other.gpus for other in occupants if other not in eviction.victims))
        assert not held_by_others & set(eviction.gpus)


def test_pods_that_stand_in_the_way_for_cpu_alone_still_go() -> None:
    eviction = cheapest_eviction(PAIRS, {0}, [pod("a", 0, 1)], 2)
    assert eviction is not None
    chosen = with_what_the_scheduler_needs(eviction.victims, [pod("cpu", 0)])
    assert [victim.uid for victim in chosen] == ["a", "cpu"]


@pytest.mark.parametrize(
    ("milli_cpu", "memory", "kept"),
    [(1000, 2**30, ["a"]), (4000, 2**30, ["a", "b"]), (1000, 2**33, ["a", "b"])],
    ids=["ours free as much", "more CPU is needed", "more memory is needed"],
)
def test_a_proposed_victim_is_spared_if_ours_free_as_much(
    milli_cpu: int, memory: int, kept: list[str]
) -> None:
    eviction = cheapest_eviction(PAIRS, {0}, [pod("a", 0, 1)], 2)
    assert eviction is not None
    proposed = Occupant("b", 0, frozenset({2}), milli_cpu=milli_cpu, memory=memory)
    assert [victim.uid for victim in with_what_the_scheduler_needs(eviction.victims, [proposed])] == kept
