"""Shares, GiB and MIG devices: which ones a container gets."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from mcp2026.api.gpu_devices import DeviceId, DeviceKind, parse_device_id
from mcp2026.topology.affinity import affinity_graph
from mcp2026.topology.errors import NoSuchDevicesError
from mcp2026.topology.machine import Machine, machine_from_file
from mcp2026.topology.sharing import (
    DeviceChoice,
    Packing,
    SharedGpus,
    choose_memory,
    choose_shares,
)

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
PAIRS = machine_from_file(TOPOLOGIES / "4xa100-pcie-nvlink-pairs.yaml")
"""NVLink bridges join 0 with 1 and 2 with 3."""


def shared(in_use: Mapping[int, int] | None = None, machine: Machine = PAIRS) -> SharedGpus:
    by_uuid = {machine.gpus[place].uuid: count for place, count in (in_use or {}).items()}
    return SharedGpus(machine, affinity_graph(machine), by_uuid)


def share(gpu: int, number: int, machine: Machine = PAIRS) -> str:
    return str(DeviceId(machine.gpus[gpu].uuid, DeviceKind.SHARE, number))


def memory(gpu: int, number: int) -> str:
    return str(DeviceId(PAIRS.gpus[gpu].uuid, DeviceKind.MEMORY, number))


def free_shares(room: Mapping[int, int]) -> list[str]:
    return [share(gpu, 4 - 1 - number) for gpu, count in room.items() for number in range(count)]


def gpus_of(choice: DeviceChoice) -> list[int]:
    places = {gpu.uuid: place for place, gpu in enumerate(PAIRS.gpus)}
    return sorted(places[parse_device_id(each).uuid] for each in choice.ids)


@pytest.mark.parametrize(
    ("room", "in_use", "size", "packing", "expected"),
    [
        pytest.param({0: 4, 1: 4, 2: 4, 3: 4}, {}, 2, Packing.SPREAD, [0, 1], id="two of a linked pair"),
        pytest.param(
            {0: 3, 1: 4, 2: 4, 3: 4}, {0: 1}, 2, Packing.SPREAD, [2, 3], id="spread: of the idle linked pair"
        ),
        pytest.param(
            {0: 4, 1: 4, 2: 3, 3: 3}, {2: 1, 3: 1}, 2, Packing.PACK, [2, 3], id="pack: of the pair in use"
        ),
        pytest.param(
            {0: 4, 1: 4, 2: 3, 3: 4}, {2: 1}, 2, Packing.PACK, [2, 3], id="pack: one in use and its partner"
        ),
        pytest.param(
            {0: 3, 1: 4, 2: 3, 3: 4},
            {0: 1, 2: 1},
            2,
            Packing.PACK,
            [0, 2],
            id="pack: whole GPUs stay free, though links are slower",
        ),
        pytest.param(
            {0: 3, 1: 4, 2: 4, 3: 4}, {0: 1}, 1, Packing.SPREAD, [1], id="spread: one, on an idle GPU"
        ),
        pytest.param(
            {0: 3, 1: 4, 2: 1, 3: 4}, {0: 1, 2: 3}, 1, Packing.PACK, [2], id="pack: one, on the fullest"
        ),
        pytest.param({0: 4, 1: 4, 2: 4, 3: 4}, {}, 4, Packing.SPREAD, [0, 1, 2, 3], id="four of four"),
    ],
)
def test_shares_are_of_different_gpus_that_belong_together(
    room: dict[int, int], in_use: dict[int, int], size: int, packing: Packing, expected: list[int]
) -> None:
    choice = choose_shares(shared(in_use), free_shares(room), [], size, packing)
    assert gpus_of(choice) == expected
    assert choice.as_wished


def test_a_share_that_must_be_included_brings_its_partner() -> None:
    must = share(3, 0)
    choice = choose_shares(shared(), [must, *free_shares({0: 4, 1: 4, 2: 4})], [must], 2)
    assert must in choice.ids
    assert gpus_of(choice) == [2, 3]


def test_more_shares_than_gpus_are_spread_evenly_and_it_is_said() -> None:
    choice = choose_shares(shared(), free_shares({0: 4, 1: 4}), [], 5)
    assert gpus_of(choice) in ([0, 0, 0, 1, 1], [0, 0, 1, 1, 1])
    assert not choice.as_wished


def test_two_shares_of_one_gpu_that_must_be_included_are_not_as_wished() -> None:
    must = [share(0, 0), share(0, 1)]
    choice = choose_shares(shared(), must, must, 2)
    assert set(choice.ids) == set(must)
    assert not choice.as_wished


@pytest.mark.parametrize(
    ("room", "size", "expected"),
    [
        ({0: 2, 1: 3}, 3, [1, 1, 1]),
        ({0: 2, 1: 3}, 4, [0, 1, 1, 1]),
        ({0: 1, 1: 1, 2: 1}, 3, [0, 1, 2]),
    ],
)
def test_shares_that_need_not_be_distinct_are_of_as_few_gpus_as_can_be(
    room: dict[int, int], size: int, expected: list[int]
) -> None:
    choice = choose_shares(shared(), free_shares(room), [], size, distinct=False)
    assert gpus_of(choice) == expected
    assert choice.as_wished


def test_a_degraded_gpu_is_used_last_also_when_packing() -> None:
    hot = replace(PAIRS, gpus=(replace(PAIRS.gpus[0], degraded=True), *PAIRS.gpus[1:]))
    room = free_shares({0: 3, 1: 4})
    assert gpus_of(choose_shares(shared({0: 1}, hot), room, [], 1, Packing.PACK)) == [1]
    units = [memory(0, 0), memory(0, 1), *(memory(1, number) for number in range(9))]
    assert gpus_of(choose_memory(shared(machine=hot), units, [], 2)) == [1, 1]


@pytest.mark.parametrize("packing", Packing)
@pytest.mark.parametrize("distinct", [True, False])
def test_whatever_is_offered_is_answered_from_it(packing: Packing, distinct: bool) -> None:
    random = Random(7)
    for _ in range(200):
        room = {gpu: random.randint(0, 4) for gpu in range(4)}
        offered = free_shares(room)
        if not offered:
            continue
        size = random.randint(1, len(offered))
        must = random.sample(offered, random.randint(0, size))
        choice = choose_shares(
            shared({0: 2, 2: 1}), random.sample(offered, len(offered)), must, size, packing, distinct=distinct
        )
        assert len(set(choice.ids)) == size
        assert set(must) <= set(choice.ids) <= set(offered)
        again = choose_shares(shared({0: 2, 2: 1}), offered, must, size, packing, distinct=distinct)
        assert set(again.ids) == set(choice.ids), "the order of what is offered does not matter"


def _units(room: Mapping[int, int]) -> list[str]:
    return [memory(gpu, number) for gpu, count in room.items() for number in range(count)]


@pytest.mark.parametrize(
    ("room", "in_use", "size", "expected"),
    [
        pytest.param({0: 80, 1: 30, 2: 20, 3: 80}, {}, 16, 2, id="best fit"),
        pytest.param({0: 80, 1: 16, 2: 20, 3: 80}, {}, 16, 1, id="an exact fit"),
        pytest.param({0: 80, 1: 70, 2: 10, 3: 80}, {1: 10}, 40, 1, id="whole GPUs stay free"),
        pytest.param({0: 80, 2: 80, 3: 80}, {1: 80}, 8, 0, id="of equal GPUs the one whose partner is gone"),
        pytest.param({2: 80, 3: 80, 0: 80}, {}, 8, 0, id="in whatever order they are listed"),
    ],
)
def test_memory_is_of_one_gpu_by_best_fit(
    room: dict[int, int], in_use: dict[int, int], size: int, expected: int
) -> None:
    choice = choose_memory(shared(in_use), _units(room), [], size)
    assert gpus_of(choice) == [expected] * size
    assert choice.as_wished


def test_memory_stays_on_the_gpu_of_what_must_be_included() -> None:
    must = [memory(3, 5)]
    choice = choose_memory(shared(), _units({0: 8, 3: 80}), must, 8)
    assert gpus_of(choice) == [3] * 8
    assert must[0] in choice.ids


def test_memory_that_no_gpu_has_is_taken_from_few_and_it_is_said() -> None:
    choice = choose_memory(shared(), _units({0: 3, 1: 6, 2: 5}), [], 10)
    assert gpus_of(choice) == [1] * 6 + [2] * 4
    assert not choice.as_wished


@pytest.mark.parametrize(
    ("available", "must", "size", "problem"),
    [
        pytest.param([share(0, 0)], [], 2, "2 asked, 1 available", id="too few"),
        pytest.param([share(0, 0)], [share(0, 0), share(0, 1)], 1, "2 must be included", id="too many musts"),
        pytest.param(["GPU-gone::1"], [], 1, "not of this machine: GPU-gone::1", id="of an unknown GPU"),
    ],
)
def test_what_cannot_be_chosen_is_refused(
    available: list[str], must: list[str], size: int, problem: str
) -> None:
    for choose in (choose_shares, choose_memory):
        with pytest.raises(NoSuchDevicesError) as refused:
            choose(shared(), available, must, size)
        assert problem in str(refused.value)
