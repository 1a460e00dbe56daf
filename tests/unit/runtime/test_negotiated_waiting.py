"""Callers that have agreed to wait: how long they do, what ends the wait, and why each batch left."""

from dataclasses import dataclass
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp2026.runtime.batching import Lane
from mcp2026.runtime.batching.causes import Cause
from mcp2026.runtime.batching.patience import SLACK
from tests.unit.runtime.simulated_engine import MS, SimulatedEngine, config

AGREED = {"enough_rows": 4, "patience": 20 * MS}


def without_company(engine: SimulatedEngine) -> SimulatedEngine:
    """Let the engine learn nothing of callers that come back: that wait has tests of its own."""
    engine.lane.company.answered = lambda *_: None  # type: ignore[method-assign]
    return engine


def causes(engine: SimulatedEngine) -> list[tuple[int, str]]:
    return [(batch.rows, batch.cause.value) for batch in engine.batches]


def test_a_batch_leaves_as_soon_as_its_rows_suffice() -> None:
    engine = SimulatedEngine()
    for number in range(3):
        engine.arrive(number, **AGREED)
        engine.advance(engine.now + MS)
    assert engine.batches == []
    engine.arrive(3, **AGREED)
    assert causes(engine) == [(4, "size")]
    assert engine.started_at == [3 * MS]


def test_rows_count_and_not_requests() -> None:
    engine = SimulatedEngine()
    engine.arrive(0, rows=5, **AGREED)
    assert causes(engine) == [(5, "size")]


def test_a_batch_leaves_when_the_first_has_waited_long_enough() -> None:
    engine = SimulatedEngine()
    engine.arrive(0, **AGREED)
    engine.advance(15 * MS)
    engine.arrive(1, **AGREED)
    engine.finish()
    assert causes(engine) == [(2, "delay")]
    assert engine.started_at == [20 * MS]


def test_the_shortest_patience_and_the_fewest_rows_decide() -> None:
    engine = SimulatedEngine()
    engine.arrive(0, enough_rows=8, patience=50 * MS)
    engine.arrive(1, enough_rows=8, patience=10 * MS)
    engine.advance(30 * MS)
    assert causes(engine) == [(2, "delay")]
    assert engine.started_at == [10 * MS]
    engine.arrive(2, enough_rows=8, patience=50 * MS)
    engine.arrive(3, enough_rows=2, patience=50 * MS)
    assert causes(engine)[1:] == [(2, "size")]


def test_who_has_agreed_to_nothing_leaves_at_once_and_takes_the_others() -> None:
    engine = SimulatedEngine()
    engine.arrive(0, **AGREED)
    engine.advance(MS)
    engine.arrive(1)
    assert causes(engine) == [(2, "idle")]
    assert engine.started_at == [MS]


def test_no_delay_is_no_wait() -> None:
    engine = SimulatedEngine()
    engine.arrive(0, enough_rows=4, patience=0)
    assert causes(engine) == [(1, "delay")]


def test_nobody_waits_while_the_server_drains() -> None:
    engine = SimulatedEngine()
    engine.arrive(0, **AGREED)
    engine.drain()
    assert causes(engine) == [(1, "drain")]
    engine.finish()
    engine.arrive(1, **AGREED)
    assert causes(engine)[1:] == [(1, "drain")]
    engine.finish()
    engine.arrive(2)
    assert causes(engine)[2:] == [(1, "idle")]


def test_a_full_batch_leaves_whatever_was_agreed() -> None:
    engine = SimulatedEngine(config(max_rows=2))
    for number in range(2):
        engine.arrive(number, **AGREED)
    assert causes(engine) == [(2, "full")]


def test_what_the_model_asks_of_all_holds_besides() -> None:
    engine = SimulatedEngine(config(min_rows=6, delay_ms=10))
    for number in range(4):
        engine.arrive(number, **AGREED)
    engine.advance(30 * MS)
    assert causes(engine) == [(4, "delay")]
    assert engine.started_at == [10 * MS]
    engine.arrive(4, **AGREED)
    engine.advance(80 * MS)
    assert causes(engine)[1:] == [(1, "delay")]
    assert engine.started_at[1] == 50 * MS


def test_the_models_own_waits_have_causes_too() -> None:
    engine = SimulatedEngine(config(min_rows=3, delay_ms=10))
    for number in range(3):
        engine.arrive(number)
    engine.finish()
    engine.arrive(3)
    engine.finish()
    engine.arrive(4, deadline=engine.now + 8 * MS)
    engine.finish()
    assert causes(engine) == [(3, "size"), (1, "delay"), (1, "deadline")]


@pytest.mark.parametrize(("left_ms", "spare_ms"), [(18, 5), (30, 5), (48, 6)])
def test_a_deadline_ends_a_wait_early_enough(left_ms: int, spare_ms: int) -> None:
    engine = without_company(SimulatedEngine(run_ns=10 * MS))
    for number in range(10):  # run times are known from now on
        engine.arrive(number)
        engine.advance(engine.now + 20 * MS)
    began = engine.now
    deadline = began + left_ms * MS
    engine.arrive(99, enough_rows=4, patience=50 * MS, deadline=deadline, named=True)
    engine.finish()
    assert engine.outcomes[99] == ["answered"]
    assert engine.batches[-1].cause is Cause.DEADLINE
    assert engine.started_at[-1] == pytest.approx(deadline - (12.5 + spare_ms) * MS, abs=1_000)


def test_where_run_times_are_not_known_half_of_the_time_is_kept_for_them() -> None:
    engine = SimulatedEngine(run_ns=10 * MS)
    engine.arrive(0, deadline=30 * MS, **AGREED)
    engine.finish()
    assert engine.started_at == [15 * MS]
    assert causes(engine) == [(1, "deadline")]


def test_the_rest_of_a_large_request_does_not_wait_again() -> None:
    engine = SimulatedEngine(config(max_rows=4), run_ns=MS)
    engine.arrive(0, rows=5, **AGREED)
    engine.finish()
    assert engine.finished_at[0] == 2 * MS


def test_a_request_that_runs_again_alone_keeps_its_cause() -> None:
    engine = SimulatedEngine(failing=frozenset([1]))
    for number in range(4):
        engine.arrive(number, **AGREED)
    engine.finish()
    assert causes(engine) == [(4, "size")] + [(1, "size")] * 4


def test_requests_that_left_are_forgotten_while_none_waits_for_company() -> None:
    """Batches that leave full never ask who is patient."""
    engine = SimulatedEngine(config(max_rows=2), run_ns=MS)
    for number in range(1_000):
        engine.arrive(number, **AGREED)
        if number % 8 == 7:
            engine.finish()
    assert len(engine.lane.patience) <= 2 * 8 + SLACK
    assert {cause for _, cause in causes(engine)} == {"full"}


def test_callers_that_leave_do_not_count() -> None:
    engine = SimulatedEngine()
    for number in range(3):
        engine.arrive(number, **AGREED)
    engine.cancel(0)
    engine.arrive(3, **AGREED)
    assert engine.batches == []
    engine.finish()
    assert causes(engine) == [(3, "delay")]
    assert not engine.lane.patience or engine.scheduler.queued_rows == 0


def test_lanes_wait_each_for_itself() -> None:
    engine = SimulatedEngine(config(instances=2), threads=2)
    other = Lane(engine.model)
    for number in range(3):
        engine.arrive(number, **AGREED)
        engine.arrive(10 + number, lane=other, **AGREED)
    assert engine.batches == []
    engine.finish()
    assert causes(engine) == [(3, "delay"), (3, "delay")]


@dataclass
class Waiting:
    """A request as the rules below see it; times in ns."""

    number: int
    at: int
    rows: int
    enough: int
    patience: int


def batches_by_the_rules(arrivals: list[Waiting], run_ns: int, most: int) -> list[tuple[int, list[int]]]:
    """Return when each batch starts and who is in it: the rules written down plainly, event by event."""
    waiting: list[Waiting] = []
    batches: list[tuple[int, list[int]]] = []
    free_at = now = 0
    while arrivals or waiting:
        rows = sum(request.rows for request in waiting)
        due = [request.at if rows >= request.enough else request.at + request.patience for request in waiting]
        start = max(free_at, now, now if rows >= most else min(due)) if waiting else None
        if arrivals and (start is None or arrivals[0].at < start):
            waiting.append(arrivals.pop(0))
            now = waiting[-1].at
            continue
        assert start is not None
        batch: list[Waiting] = []
        while waiting and sum(request.rows for request in batch) + waiting[0].rows <= most:
            batch.append(waiting.pop(0))
        batches.append((start, [request.number for request in batch]))
        now, free_at = start, start + run_ns
    return batches


@given(
    st.lists(
        st.tuples(
            st.integers(0, 80), st.integers(1, 5), st.sampled_from([0, 1, 3, 6, 20]), st.integers(0, 30)
        ),
        min_size=1,
        max_size=25,
    ),
    st.integers(1, 15),
)
def test_batches_are_those_of_the_rules_taken_one_by_one(
    drawn: list[tuple[int, int, int, int]], run_ms: int
) -> None:
    """One lane, one engine, no deadlines. No two events come at the same time: their order would be open."""
    run_ns = run_ms * MS + 7
    arrivals = [
        Waiting(number, at * MS + number * 1_000, rows, enough, patience * MS + 500)
        for number, (at, rows, enough, patience) in enumerate(sorted(drawn))
    ]
    engine = without_company(SimulatedEngine(config(max_rows=8, ahead=0), run_ns=run_ns))
    for one in arrivals:
        agreed = {"enough_rows": one.enough, "patience": one.patience}
        engine.at(one.at, partial(engine.arrive, one.number, one.rows, **agreed))
    engine.advance(2_000 * MS)
    found = [[part.request.call for part in batch.parts] for batch in engine.batches]
    expected = batches_by_the_rules(list(arrivals), run_ns, 8)
    assert list(zip(engine.started_at, found, strict=True)) == expected
