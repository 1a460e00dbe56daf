"""A cluster's life: every job runs once, no GPU is held twice, and tiny lives come out as by hand."""

from collections.abc import Sequence

import msgspec
import pytest

from bench.errors import BenchError
from bench.simulation.cluster import History, live
from bench.simulation.comparison import shipped_scenarios
from bench.simulation.figures import Spread, figures_of, quantile
from bench.simulation.fleet import Node, fleet_of
from bench.simulation.jobs import Job
from bench.simulation.policies import Placement, Policy, plain_policies
from bench.simulation.product import ProductPolicy
from bench.simulation.traces import read_description, synthetic
from mcp2026.topology.bitmasks import mask_of

PAIRS = "4xa100-pcie-nvlink-pairs"
"""GPUs 0 and 1 are bridged with 300 GB/s, 2 and 3 too; between the pairs 10 GB/s."""
NUMBER_OF_POLICIES = 6


def policies(fleet: tuple[Node, ...]) -> tuple[Policy, ...]:
    return (*plain_policies(fleet), ProductPolicy(fleet))


def jobs_of(scenario: int, fleet: tuple[Node, ...], seed: int, count: int = 150) -> list[Job]:
    described = msgspec.structs.replace(read_description(shipped_scenarios()[scenario]), jobs=count)
    return synthetic(described, sum(map(len, fleet)), seed)


@pytest.mark.parametrize("number", range(NUMBER_OF_POLICIES))
@pytest.mark.parametrize("seed", [1, 2])
def test_every_job_runs_once_and_no_gpu_is_held_twice(number: int, seed: int) -> None:
    fleet = fleet_of({PAIRS: 2, "dgx-1v-8xv100": 2, "hgx-h100-8gpu": 1})
    jobs = jobs_of(0, fleet, seed)
    history = live(fleet, jobs, policies(fleet)[number])
    assert sorted(run.job.name for run in history.runs) == [job.name for job in jobs]
    assert all(run.started_s >= run.job.arrival_s for run in history.runs)
    assert all(run.placement.gpus.bit_count() == run.job.gpus for run in history.runs)
    assert held_at_once(history) == []


def held_at_once(history: History) -> list[tuple[str, str]]:
    """Return pairs of jobs that held one GPU at the same time, by comparing all with all."""
    return [
        (one.job.name, other.job.name)
        for place, one in enumerate(history.runs)
        for other in history.runs[:place]
        if one.placement.node == other.placement.node
        and one.placement.gpus & other.placement.gpus
        and one.started_s < other.ended_s
        and other.started_s < one.ended_s
    ]


@pytest.mark.parametrize("number", range(NUMBER_OF_POLICIES))
def test_equal_seeds_give_equal_lives(number: int) -> None:
    fleet = fleet_of({PAIRS: 2, "dgx-1v-8xv100": 1})
    first, second = (live(fleet, jobs_of(1, fleet, 7), policies(fleet)[number]) for _ in range(2))
    assert first == second


def test_another_seed_gives_other_jobs() -> None:
    fleet = fleet_of({PAIRS: 2})
    assert jobs_of(0, fleet, 1) != jobs_of(0, fleet, 2)


LIFE = (
    Job("all", 0, 4, 10),
    Job("two", 1, 2, 5),
    Job("urgent", 2, 1, 2, priority=5),
    Job("all again", 3, 4, 1),
)
"""By hand: at 10 s all GPUs come free; `urgent` goes first, then `two`; the last waits until both ended."""


@pytest.mark.parametrize("number", range(NUMBER_OF_POLICIES))
def test_who_waits_goes_by_priority_then_arrival(number: int) -> None:
    fleet = fleet_of({PAIRS: 1})
    history = live(fleet, LIFE, policies(fleet)[number])
    assert [(run.job.name, run.started_s, run.ended_s) for run in history.runs] == [
        ("all", 0, 10),
        ("urgent", 10, 12),
        ("two", 10, 15),
        ("all again", 15, 16),
    ]
    figures = figures_of(fleet, history)
    assert figures.wait_mean_s == pytest.approx((0 + 8 + 9 + 12) / 4)
    assert (figures.wait_p50_s, figures.wait_p99_s) == (8, 12)
    assert figures.utilisation == 1.0


def test_who_does_not_fit_is_passed_over() -> None:
    fleet = fleet_of({PAIRS: 1})
    jobs = (Job("three", 0, 3, 10), Job("two", 1, 2, 10), Job("one", 2, 1, 1))
    history = live(fleet, jobs, ProductPolicy(fleet))
    assert [(run.job.name, run.started_s) for run in history.runs] == [("three", 0), ("one", 2), ("two", 10)]


class Fixed:
    """Gives each job the next of some placements."""

    name = "fixed"

    def __init__(self, *placements: Placement) -> None:
        self._placements = iter(placements)

    def place(self, job: Job, free: Sequence[int]) -> Placement | None:
        return next(self._placements)

    def ended(self, job: Job) -> None: ...


@pytest.mark.parametrize(
    "placements",
    [
        pytest.param((Placement(0, 0b11), Placement(0, 0b110)), id="a GPU that is held"),
        pytest.param((Placement(0, 0b111),), id="more GPUs than asked"),
        pytest.param((Placement(0, 0b110000),), id="GPUs that the node has not"),
    ],
)
def test_a_policy_that_gives_what_it_may_not_is_refused(placements: tuple[Placement, ...]) -> None:
    jobs = [Job("a", 0, 2, 10), Job("b", 1, 2, 10)]
    with pytest.raises(BenchError, match="asks for 2 GPUs and was given"):
        live(fleet_of({PAIRS: 1}), jobs, Fixed(*placements))


def test_a_job_larger_than_every_node_is_refused() -> None:
    fleet = fleet_of({PAIRS: 3})
    with pytest.raises(BenchError, match="gpus: 5; allowed: at most 4"):
        live(fleet, [Job("five", 0, 5, 1)], ProductPolicy(fleet))


@pytest.mark.parametrize(
    ("gpus", "serving", "ended_s", "missed"),
    [
        pytest.param(0b0011, False, 10.0, 0, id="batch on the bridge: as on 300 GB/s"),
        pytest.param(0b0101, False, 39.0, 0, id="batch between pairs: 0.9 + 0.1 * 300 / 10 times"),
        pytest.param(0b0101, True, 10.0, 1, id="a service runs as long, but 3.9 times as slow as promised"),
    ],
)
def test_slow_links_prolong_batch_jobs_and_break_promises(
    gpus: int, serving: bool, ended_s: float, missed: float
) -> None:
    fleet = fleet_of({PAIRS: 1})
    job = Job("job", 0, 2, 10, serving=serving, collective_share=0.1, slo_slowdown=1.5)
    history = live(fleet, [job], Fixed(Placement(0, gpus)))
    assert history.runs[0].ended_s == pytest.approx(ended_s)
    figures = figures_of(fleet, history)
    assert figures.slo_misses == missed
    assert figures.link_of_machine == pytest.approx(1.0 if gpus == 0b0011 else 10 / 300)


def test_free_gpus_that_make_no_set_are_stranded() -> None:
    """GPUs 0 and 2 are held for 10 s: 1 and 3 make a pair by number, and none over a bridge."""
    fleet = fleet_of({PAIRS: 1})
    jobs = [Job("two", 0, 2, 10), Job("last", 10, 4, 1)]
    figures = figures_of(fleet, live(fleet, jobs, Fixed(Placement(0, 0b0101), Placement(0, 0b1111))))
    assert (figures.stranded_by_number[2], figures.stranded_by_links[2]) == (0.0, 1.0)
    assert (figures.stranded_by_number[4], figures.stranded_by_links[4]) == (1.0, 1.0)
    assert figures.utilisation == 0.5


@pytest.mark.parametrize(
    ("kind", "free", "size", "sets"),
    [
        pytest.param("dgx-1v-8xv100", range(8), 2, 4, id="four double links without a common GPU"),
        pytest.param("dgx-1v-8xv100", (0, 3, 4), 2, 1, id="0-3 and 0-4 are double, and share GPU 0"),
        pytest.param("dgx-1v-8xv100", range(8), 4, 2, id="two quads that are all linked"),
        pytest.param("dgx-1v-8xv100", (0, 1, 2, 4, 5, 6), 4, 0, id="none of six that are all linked"),
        pytest.param("hgx-b200-8gpu-one-off-fabric", range(8), 2, 3, id="seven on the fabric"),
        pytest.param(PAIRS, range(4), 8, 0, id="more than the machine has"),
    ],
)
def test_sets_by_links_are_cliques_of_the_best_links(
    kind: str, free: Sequence[int], size: int, sets: int
) -> None:
    (node,) = fleet_of({kind: 1})
    assert node.sets_by_links(mask_of(free), size) == sets


def test_an_unknown_machine_is_named_with_those_known() -> None:
    with pytest.raises(BenchError, match=r"machines: .*no-such.*known: .*dgx-1v-8xv100"):
        fleet_of({"no-such": 1})


def test_kinds_of_machines_take_turns() -> None:
    fleet = fleet_of({PAIRS: 2, "1xgh200": 1})
    assert [node.kind for node in fleet] == [PAIRS, "1xgh200", PAIRS]


def test_quantiles_are_values_that_occur() -> None:
    assert [quantile([1, 2, 3, 4], share) for share in (0.0, 0.25, 0.5, 0.51, 1.0)] == [1, 1, 2, 3, 4]
    assert quantile([], 0.5) == 0.0
    assert Spread.of([3, 1, 2]) == Spread(2, 1, 3)
