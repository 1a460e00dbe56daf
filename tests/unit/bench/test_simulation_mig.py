"""Static GPUs and MIG slices: the queue against a known formula, and who gets which slice."""

from dataclasses import replace
from statistics import fmean

import pytest

from bench.simulation.memory_shares import shared_by_memory
from bench.simulation.serving_queue import ServedModel, latencies_ms
from bench.simulation.slicing import (
    GPU_MEMORY_MIB,
    PROFILES,
    SEVEN,
    Arrangement,
    by_memory,
    fixed_layout,
    planned,
    static_shares,
    whole_gpus,
)
from bench.simulation.static_and_mig import headline_models, mixed_models, outcome
from mcp2026.topology.mig.planner import plan_layout

MODEL = ServedModel("model", 9_000, 50, 0, 10, 0.5, 1, 100)


def test_one_at_a_time_waits_as_the_formula_says() -> None:
    """Pollaczek and Khinchine: runs of 10 ms and a load of 0.5 make a mean wait of 0.5 * 10 / 2 / 0.5 ms."""
    (found,) = latencies_ms([MODEL], 7, seconds=600, seed=1).values()
    assert fmean(found) == pytest.approx(15, rel=0.03)
    assert min(found) == pytest.approx(10)


def test_a_slice_is_slower_by_its_loss() -> None:
    model = replace(MODEL, fixed_ms=8, row_ms=4, loss=1.0, largest_batch=8)
    assert model.run_ms(2, 7) == pytest.approx(8 + 2 * 4)
    assert model.run_ms(2, 1) == pytest.approx(8 + 2 * 4 * 7)
    assert model.load(7) == pytest.approx(50 * (8 + 8 * 4) / 8 / 1_000)


def test_all_that_wait_run_together_up_to_the_largest_batch() -> None:
    """So much comes that every run is full: 8 in 16 ms. The last one comes at 1 s."""
    model = replace(MODEL, rate_per_s=10_000, fixed_ms=8, row_ms=1, largest_batch=8)
    (found,) = latencies_ms([model], 7, seconds=1, seed=1).values()
    assert len(found) == pytest.approx(9_000, rel=0.05)
    assert max(found) == pytest.approx(10_000 / 8 * 16 - 1_000, rel=0.05)


def test_requests_are_the_same_alone_and_in_company() -> None:
    other = replace(MODEL, name="other", rate_per_s=20)
    alone = latencies_ms([MODEL], 7, seconds=20, seed=3)
    together = latencies_ms([other, MODEL], 7, seconds=20, seed=3)
    assert len(alone["model"]) == len(together["model"])
    assert fmean(together["model"]) > fmean(alone["model"])
    assert latencies_ms([MODEL], 7, seconds=20, seed=3) == alone


def test_the_headline_s_sizes_come_to_its_shares() -> None:
    models = headline_models()
    static, seven = static_shares(models, 1), fixed_layout(models, 1, SEVEN)
    assert (len(static.hosted), round(static.memory_use, 3)) == (3, 0.420)
    assert (len(seven.hosted), round(seven.memory_use, 3)) == (7, 0.890)
    assert len(whole_gpus(models, 1).hosted) == 1


def test_the_lowest_place_leaves_a_hole_that_the_planner_avoids() -> None:
    """The large slice comes third: at memory slice 2 it leaves slice 7, where no small one can be."""
    models = headline_models()
    assert len(by_memory(models, 1).hosted) == 6
    assert len(planned(models, 1, predict=lambda model, slices: 0.0).hosted) == 7


@pytest.mark.parametrize("seed", range(5))
def test_every_layout_can_be_had_and_no_model_is_twice(seed: int) -> None:
    models = mixed_models(seed)

    def faster_on_more(model: ServedModel, compute_slices: float) -> float:
        return 200 / compute_slices

    for arrangement in (
        fixed_layout(models, 4),
        by_memory(models, 4),
        planned(models, 4, faster_on_more),
    ):
        names = [model.name for model in arrangement.hosted]
        assert len(names) == len(set(names))
        check_layouts(arrangement)


def check_layouts(arrangement: Arrangement) -> None:
    memory_mib = {profile.name: profile.memory_mib for profile in PROFILES}
    for gpu in range(arrangement.gpus):
        servers = [server for server in arrangement.servers if server.gpu == gpu]
        plan_layout(PROFILES, (), (), [server.profile for server in servers])
        for server in servers:
            assert sum(model.memory_mib for model in server.models) <= memory_mib[server.profile]


def by_slices(model: ServedModel, compute_slices: float) -> float:
    return {1: 150.0, 2: 80.0}.get(compute_slices, 60.0)


def test_who_would_break_its_promise_gets_the_smallest_slice_that_keeps_it() -> None:
    arrangement = planned([MODEL], 1, by_slices)
    assert [(server.profile, server.compute_slices) for server in arrangement.servers] == [("2g.20gb", 2)]


def test_room_for_all_goes_before_promises() -> None:
    seven = [replace(MODEL, name=f"model-{number}") for number in range(7)]
    assert len(planned(seven, 1, by_slices).hosted) == 7
    assert {server.profile for server in planned(seven, 1, by_slices).servers} == {"1g.10gb"}


def test_requests_of_models_without_room_are_missed() -> None:
    models = [MODEL, replace(MODEL, name="other")]
    found = outcome(models, whole_gpus(models, 1), seconds=100, seed=1)
    assert (found.models, found.offered) == (1, 2)
    assert found.missed == pytest.approx(0.5, abs=0.02)


SMALL = headline_models()[0]


def test_no_eight_of_the_headline_s_models_with_the_larger_one_fit_on_a_gpu() -> None:
    """So no scheduler places more than seven of them: what is left over holds no eighth."""
    left = GPU_MEMORY_MIB - sum(model.memory_mib for model in headline_models())
    assert left < SMALL.memory_mib
    eight = [*headline_models(), replace(SMALL, name="model-7")]
    assert [model.name for model in shared_by_memory(eight, 1).hosted] == [model.name for model in eight[:7]]


def test_eight_small_models_share_a_gpu_by_memory() -> None:
    arrangement = shared_by_memory([replace(SMALL, name=f"model-{number}") for number in range(9)], 1)
    assert len(arrangement.hosted) == 8
    assert arrangement.memory_use == pytest.approx(0.940, abs=0.001)
    assert {server.profile for server in arrangement.servers} == {"12 % of threads"}
    assert sum(server.compute_slices for server in arrangement.servers) <= 7


@pytest.mark.parametrize("seed", range(3))
def test_what_shares_gpus_by_memory_never_has_more_than_there_is(seed: int) -> None:
    arrangement = shared_by_memory(mixed_models(seed), 4)
    for gpu in range(4):
        here = [server for server in arrangement.servers if server.gpu == gpu]
        assert sum(model.memory_mib for server in here for model in server.models) <= GPU_MEMORY_MIB
        assert sum(server.compute_slices for server in here) <= 7
