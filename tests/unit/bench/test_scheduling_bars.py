"""The lines of a scheduling run's table: what was measured, what is asked, and whether that is met."""

import msgspec
import pytest

from bench.machine import Machine
from bench.scheduling.bars import Attempted, Figures, Replayed, Times, all_met, rows, table

MACHINE = Machine("a processor", 2, 4.0, "6.1", 0.5, "2026-01-01 00:00")
GOOD = Replayed(100, 0, 0, 0, 0)


def figures() -> Figures:
    return Figures(
        MACHINE,
        "abc",
        "python -m bench.scheduling",
        nodes=10,
        pods=100,
        kills=2,
        cold_start_s=3.0,
        alone_per_s=[50.0, 60.0],
        per_s=49.0,
        times=[Times(True, 10, 1.0, 0.5)] * 100,
        alone=Attempted(100, 20.0, 1.0, 16.0, 32.0),
        attempted=Attempted(100, 30.0, 11.0, 32.0, 64.0),
        memory_mib=150.0,
        replayed=GOOD,
        replayed_over_kills=GOOD,
        restarts_s=[3.0, 4.0],
    )


def verdicts(seen: Figures) -> dict[str, bool | None]:
    return {row.what: row.met for row in rows(seen)}


def test_a_good_run_meets_all_that_is_asked() -> None:
    assert set(verdicts(figures()).values()) == {True, None}
    assert all_met(figures())


@pytest.mark.parametrize(
    ("change", "line"),
    [
        pytest.param(
            {"times": [Times(True, 10, 9.0, 2.0)] * 100},
            "filter and prioritize at the webhook, p99",
            id="the verbs are added up",
        ),
        pytest.param({"per_s": 40.0}, "pods scheduled with the extender", id="slower than without"),
        pytest.param(
            {"memory_over_kills_mib": 700.0},
            "memory of the extender, peak",
            id="memory over the kills counts",
        ),
        pytest.param({"cold_start_s": 16.0}, "start to ready", id="a slow start"),
        pytest.param(
            {"attempted": Attempted(100, 60.0, 30.0, 64.0, 64.0)},
            "kube-scheduler's time for its calls, mean",
            id="the scheduler's own figure",
        ),
    ],
)
def test_a_bar_that_is_missed_is_told(change: dict[str, object], line: str) -> None:
    seen = msgspec.structs.replace(figures(), **change)
    missed = [what for what, met in verdicts(seen).items() if met is False]
    assert missed == [line]
    assert "**missed**" in table(seen)
    assert all_met(seen)


def test_200_pods_a_second_are_enough_however_fast_the_scheduler_is_alone() -> None:
    seen = msgspec.structs.replace(figures(), per_s=200.0, alone_per_s=[400.0])
    assert verdicts(seen)["pods scheduled with the extender"] is True


@pytest.mark.parametrize("field", ["replayed", "replayed_over_kills"])
@pytest.mark.parametrize("bad", [Replayed(100, 1, 0, 0, 0), Replayed(100, 0, 1, 0, 0, ["GPU-a twice"])])
def test_a_lost_pod_or_a_gpu_given_twice_fails_the_run(field: str, bad: Replayed) -> None:
    seen = msgspec.structs.replace(figures(), **{field: bad})
    assert not all_met(seen)
    assert all(problem in table(seen) for problem in bad.problems)


def test_a_run_that_was_cut_short_shows_what_it_has() -> None:
    begun = Figures(MACHINE, "abc", "x", nodes=1, pods=1, kills=0)
    assert rows(begun) == []
    assert "a processor" in table(begun)
