"""What each policy chooses on known machines, by hand."""

import pytest

from bench.simulation.fleet import Node, fleet_of
from bench.simulation.jobs import Job
from bench.simulation.policies import Placement, Policy, plain_policies
from bench.simulation.product import ProductPolicy
from mcp2026.topology.bitmasks import mask_of, positions_of

EIGHT_IN_PAIRS = "8xa100-pcie-nv12-pairs-all-sys"
"""Bridged are 0+2, 1+3, 4+5, 6+7; all else goes between sockets."""
FOUR_IN_PAIRS = "4xa100-pcie-nvlink-pairs"
ONE_OFF_FABRIC = "hgx-b200-8gpu-one-off-fabric"
"""GPU 2 has no NVLink; 0 to 3 and 4 to 7 are in one NUMA node each."""


def policy(name: str, fleet: tuple[Node, ...]) -> Policy:
    every = {each.name: each for each in (*plain_policies(fleet), ProductPolicy(fleet))}
    return every[name]


def choose(name: str, kind: str, free: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Return the GPUs taken of one machine, the others of which are held before."""
    fleet = fleet_of({kind: 1})
    placed = policy(name, fleet).place(Job("job", 0, size, 1), [mask_of(free)])
    assert placed is not None
    return tuple(positions_of(placed.gpus))


@pytest.mark.parametrize(
    ("name", "kind", "free", "size", "chosen"),
    [
        pytest.param("first fit", EIGHT_IN_PAIRS, (1, 2, 5, 6), 2, (1, 2), id="first fit: the lowest"),
        pytest.param("best fit", EIGHT_IN_PAIRS, (1, 2, 5, 6), 2, (1, 2), id="best fit: the lowest"),
        pytest.param(
            "NVIDIA-like, pack", EIGHT_IN_PAIRS, tuple(range(8)), 2, (0, 2), id="NVIDIA: a bridged pair"
        ),
        pytest.param(
            "NVIDIA-like, pack", EIGHT_IN_PAIRS, (0, 1, 4, 5, 6), 3, (4, 5, 6), id="NVIDIA: whole sets only"
        ),
        pytest.param(
            "NVIDIA-like, pack", EIGHT_IN_PAIRS, (2, 3, 4, 5), 1, (2,), id="NVIDIA: one is the first"
        ),
        pytest.param(
            "NVIDIA-like, pack", ONE_OFF_FABRIC, (1, 2, 5), 2, (1, 2), id="NVIDIA: blind to NVSwitches"
        ),
        pytest.param("HAMi-like", ONE_OFF_FABRIC, (1, 2, 5), 2, (1, 5), id="HAMi: sees NVSwitches"),
        pytest.param(
            "HAMi-like", EIGHT_IN_PAIRS, (0, 2, 5), 1, (5,), id="HAMi: one is that with least links"
        ),
        pytest.param("HAMi-like", EIGHT_IN_PAIRS, (0, 1, 4, 5, 6), 2, (4, 5), id="HAMi: the best sum"),
    ],
)
def test_gpus_on_a_node(
    name: str, kind: str, free: tuple[int, ...], size: int, chosen: tuple[int, ...]
) -> None:
    assert choose(name, kind, free, size) == chosen


@pytest.mark.parametrize(
    ("name", "node"),
    [
        pytest.param("first fit", 0, id="the first that fits"),
        pytest.param("best fit", 2, id="fewest left"),
        pytest.param("NVIDIA-like, spread", 0, id="most free"),
        pytest.param("NVIDIA-like, pack", 2, id="fewest free"),
        pytest.param("HAMi-like", 2, id="fewest free, whatever the links"),
    ],
)
def test_nodes(name: str, node: int) -> None:
    fleet = fleet_of({FOUR_IN_PAIRS: 4})
    free = [0b1111, 0b0111, 0b0110, 0b0001]
    placed = policy(name, fleet).place(Job("job", 0, 2, 1), free)
    assert placed is not None
    assert placed.node == node


@pytest.mark.parametrize("name", ["first fit", "best fit", "NVIDIA-like, pack", "HAMi-like", "ours"])
def test_no_room_is_no_placement(name: str) -> None:
    fleet = fleet_of({FOUR_IN_PAIRS: 1})
    chooses = policy(name, fleet)
    assert chooses.place(Job("job", 0, 5, 1), [0b1111]) is None


def test_ours_keeps_its_own_account() -> None:
    """A single GPU leaves a pair whole; a pair that is asked for then is a bridged one; what ends is free."""
    fleet = fleet_of({FOUR_IN_PAIRS: 1})
    ours = ProductPolicy(fleet)
    one, pair, another = Job("one", 0, 1, 1), Job("pair", 0, 2, 1), Job("another", 0, 1, 1)
    assert ours.place(one, []) == Placement(0, 0b0001)
    assert ours.place(pair, []) == Placement(0, 0b1100)
    assert ours.place(another, []) == Placement(0, 0b0010)
    assert ours.place(Job("late", 0, 1, 1), []) is None
    ours.ended(pair)
    assert ours.place(Job("later", 0, 2, 1), []) == Placement(0, 0b1100)
