"""Which requests share an execution, and when it starts."""

import pytest

from mcp2026.runtime.batching import Lane
from tests.unit.runtime.simulated_engine import MS, SimulatedEngine, config


def test_an_idle_engine_takes_a_request_at_once() -> None:
    engine = SimulatedEngine(config())
    engine.arrive(1)
    assert engine.rows_of_batches() == [1]
    engine.finish()
    assert engine.outcomes == {1: ["answered"]}
    assert engine.finished_at[1] == 10 * MS


def test_requests_of_one_round_share_a_batch_though_the_engine_is_idle() -> None:
    engine = SimulatedEngine(config())
    engine.arrive_together(*(engine.request(number) for number in range(5)))
    assert engine.rows_of_batches() == [5]


def test_a_batch_grows_while_the_engine_is_busy() -> None:
    engine = SimulatedEngine(config())
    engine.arrive(0)
    for number in range(1, 6):
        engine.advance(number * MS)
        engine.arrive(number)
    assert engine.rows_of_batches() == [1]
    engine.finish()
    assert engine.rows_of_batches() == [1, 5]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param([3, 3, 3, 3], [6, 6], id="rows are counted and not requests"),
        pytest.param([8, 1], [8, 1], id="a full request leaves no room"),
        pytest.param([5, 5, 1], [5, 6], id="nothing overtakes a head that does not fit"),
        pytest.param([1] * 20, [8, 8, 4], id="single rows fill up to the limit"),
    ],
)
def test_batches_stay_within_the_limit(rows: list[int], expected: list[int]) -> None:
    engine = SimulatedEngine(config(max_rows=8))
    engine.arrive(0, rows=8)  # occupies the engine
    for number, count in enumerate(rows, 1):
        engine.arrive(number, rows=count)
    engine.finish()
    assert engine.rows_of_batches() == [8, *expected]


@pytest.mark.parametrize(("ahead", "formed"), [(0, 0), (1, 1), (3, 3), (8, 5)])
def test_only_full_batches_are_formed_ahead_and_only_so_many(ahead: int, formed: int) -> None:
    engine = SimulatedEngine(config(max_rows=4, ahead=ahead))
    for number in range(6):
        engine.arrive(number, rows=4)
    engine.arrive(99, rows=1)
    assert engine.rows_of_batches() == [4]
    assert [batch.rows for batch in engine.formed] == [4] * formed
    engine.finish()
    assert engine.order() == [0, 1, 2, 3, 4, 5, 99]


def test_a_batch_that_can_still_grow_is_not_formed_ahead() -> None:
    engine = SimulatedEngine(config(max_rows=4, ahead=8))
    engine.arrive(0)
    engine.arrive(1)
    assert engine.formed == []


def test_requests_of_other_shapes_never_share_a_batch() -> None:
    engine = SimulatedEngine(config())
    other = Lane(engine.model)
    engine.arrive(0)
    for number in range(1, 7):
        engine.arrive(number, lane=engine.lane if number % 2 else other)
    engine.finish()
    assert engine.rows_of_batches() == [1, 3, 3]


def test_a_model_without_a_batch_dimension_runs_one_request_at_a_time() -> None:
    engine = SimulatedEngine(config())
    alone = Lane(engine.model, shared=False)
    for number in range(4):
        engine.arrive(number, lane=alone)
    engine.finish()
    assert engine.rows_of_batches() == [1, 1, 1, 1]


def test_an_idle_engine_waits_for_the_minimum_and_leaves_when_it_is_reached() -> None:
    engine = SimulatedEngine(config(min_rows=3, delay_ms=50))
    engine.arrive(0)
    engine.advance(10 * MS)
    engine.arrive(1)
    assert engine.batches == []
    engine.advance(20 * MS)
    engine.arrive(2)
    assert engine.rows_of_batches() == [3]


def test_a_waiting_batch_is_forced_when_the_delay_of_its_oldest_request_is_over() -> None:
    engine = SimulatedEngine(config(min_rows=8, delay_ms=100))
    for number in range(5):
        engine.advance(number * 20 * MS)
        engine.arrive(number)
    assert engine.batches == []
    engine.advance(100 * MS - 1)
    assert engine.batches == []
    engine.advance(100 * MS)
    assert engine.rows_of_batches() == [5]  # the window did not shrink, and did not start anew


def test_waiting_for_company_never_costs_a_request_its_deadline() -> None:
    engine = SimulatedEngine(config(min_rows=8, delay_ms=1_000))
    engine.arrive(0, deadline=40 * MS)
    engine.finish()
    assert engine.outcomes == {0: ["answered"]}
    assert engine.finished_at[0] == 30 * MS  # left half-way to its deadline, ran for 10 ms


def test_the_drain_lets_no_batch_wait() -> None:
    engine = SimulatedEngine(config(min_rows=8, delay_ms=60_000))
    engine.arrive(0)
    engine.drain()
    assert engine.rows_of_batches() == [1]
    engine.finish()
    engine.arrive(1)  # its bytes were on the way: it is served like any other
    engine.finish()
    assert engine.outcomes == {0: ["answered"], 1: ["answered"]}
