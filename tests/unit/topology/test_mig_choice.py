"""Which MIG devices a container gets: those whose GPUs lose least by it."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp2026.topology.errors import NoSuchDevicesError
from mcp2026.topology.mig.capacity import Occupancy, capacity
from mcp2026.topology.mig.choice import CutGpu, choose_mig
from mcp2026.topology.mig.geometry import MigInstance
from mcp2026.topology.mig.tables import A100_80
from tests.fakes.mig_layouts import cut_gpus

BY_NAME = {profile.name: profile for profile in A100_80.profiles}


def mig(gpu: str, start: int, profile: str = "1g.10gb") -> MigInstance:
    return MigInstance(f"{gpu}{start}", profile, start, BY_NAME[profile].size, start, 0)


def cut(*instances: MigInstance, degraded: bool = False) -> CutGpu:
    return CutGpu(instances, A100_80, degraded)


TWO = {0: cut(mig("a", 0), mig("a", 1), mig("a", 5)), 1: cut(mig("b", 4), mig("b", 6))}


@pytest.mark.parametrize(
    ("gpus", "held", "available", "size", "expected"),
    [
        pytest.param(TWO, ["b4"], ["a0", "a1", "a5", "b6"], 1, ["b6"], id="where the GPU is broken up"),
        pytest.param(TWO, ["a5"], ["a0", "b4"], 1, ["a0"], id="a GPU in use before an idle one"),
        pytest.param(
            {0: cut(mig("a", 0), degraded=True), 1: cut(mig("b", 0), mig("b", 5))},
            ["b5"],
            ["a0", "b0"],
            1,
            ["b0"],
            id="a sound GPU, though it loses more",
        ),
        pytest.param(
            {0: CutGpu((mig("a", 0), mig("a", 1))), 1: CutGpu((mig("b", 3),))},
            [],
            ["a0", "a1", "b3"],
            2,
            ["b3", "a0"],
            id="of GPUs that no table knows, those with fewest left",
        ),
        pytest.param(
            {1: cut(mig("b", 0)), 0: cut(mig("a", 0))}, [], ["b0", "a0"], 1, ["a0"], id="by position"
        ),
    ],
)
def test_the_device_that_is_chosen(
    gpus: dict[int, CutGpu], held: list[str], available: list[str], size: int, expected: list[str]
) -> None:
    assert list(choose_mig(gpus, held, available, [], size).ids) == expected


def test_what_speaks_against_a_gpu_goes_before_what_is_lost() -> None:
    available = ["a0", "a1", "a5", "b6"]
    chosen = choose_mig(TWO, ["b4"], available, [], 4, {1: (0, 1)})
    assert chosen.ids[-1] == "b6", "the last place is taken nevertheless"
    assert chosen.units == {0: 3, 1: 1}


@pytest.mark.parametrize(
    ("available", "must", "size", "problem"),
    [
        (["a0"], [], 2, "2 asked, 1 available"),
        (["a0"], ["a0", "a1"], 1, "2 must be included"),
        (["z"], [], 1, "not of this machine: z"),
    ],
)
def test_what_cannot_be_chosen_is_refused(
    available: list[str], must: list[str], size: int, problem: str
) -> None:
    with pytest.raises(NoSuchDevicesError, match=problem):
        choose_mig(TWO, [], available, must, size)


def _capacity(gpu: CutGpu, held: Sequence[str]) -> int:
    taken = Occupancy()
    for instance in gpu.instances:
        if instance.uuid in held:
            taken = taken.with_instance(BY_NAME[instance.profile], instance.start)
    return capacity(A100_80.profiles, taken)


@settings(deadline=None)
@given(cut_gpus(A100_80), st.data())
def test_one_device_is_the_cheapest_of_all_and_all_are_told_at_their_price(
    gpus: dict[int, CutGpu], data: st.DataObject
) -> None:
    profile = data.draw(st.sampled_from(sorted({i.profile for gpu in gpus.values() for i in gpu.instances})))
    of_profile = [i.uuid for gpu in gpus.values() for i in gpu.instances if i.profile == profile]
    available = data.draw(st.lists(st.sampled_from(of_profile), min_size=1, unique=True))
    others = [i.uuid for gpu in gpus.values() for i in gpu.instances if i.uuid not in available]
    held = data.draw(st.sets(st.sampled_from(others))) if others else set()
    size = data.draw(st.integers(1, len(available)))
    must = data.draw(st.lists(st.sampled_from(available), max_size=size, unique=True))
    gpu_of = {i.uuid: gpu for gpu in gpus.values() for i in gpu.instances}

    chosen = choose_mig(gpus, held, available, must, size)

    assert len(set(chosen.ids)) == size
    assert set(must) <= set(chosen.ids) <= set(available)
    after = {*held, *chosen.ids}
    assert chosen.lost == sum(
        _capacity(gpu, sorted(held)) - _capacity(gpu, sorted(after)) for gpu in gpus.values()
    )
    if size == 1 and not must:
        costs = {
            uuid: _capacity(gpu_of[uuid], sorted(held)) - _capacity(gpu_of[uuid], sorted({*held, uuid}))
            for uuid in available
        }
        assert chosen.lost == min(costs.values())
    shuffled = data.draw(st.permutations(available))
    assert choose_mig(gpus, held, shuffled, must, size) == chosen
