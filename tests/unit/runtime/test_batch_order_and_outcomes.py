"""Who goes first, who is given up, and that one request's fate is not another's."""

from mcp2026.runtime.batching import Lane
from tests.unit.runtime.simulated_engine import MS, SimulatedEngine, config


def test_equal_deadlines_run_in_order_of_arrival() -> None:
    engine = SimulatedEngine(config(max_rows=4))
    for number in range(12):
        engine.arrive(number)
    engine.finish()
    assert engine.order() == list(range(12))


def test_an_earlier_deadline_overtakes() -> None:
    engine = SimulatedEngine(config(max_rows=4))
    engine.arrive(0, rows=4)
    engine.arrive(1, rows=4, deadline=900 * MS)
    engine.arrive(2, rows=4, deadline=500 * MS)
    engine.arrive(3, rows=4, deadline=700 * MS)
    engine.finish()
    assert engine.order() == [0, 2, 3, 1]


def test_the_lane_with_the_most_urgent_head_goes_first() -> None:
    engine = SimulatedEngine(config())
    engine.arrive(0)
    engine.arrive(1, deadline=900 * MS)
    engine.arrive(2, lane=Lane(engine.model), deadline=500 * MS)
    engine.finish()
    assert engine.order() == [0, 2, 1]


def test_a_deadline_is_kept_while_the_engine_is_stuck() -> None:
    engine = SimulatedEngine(config(), run_ns=5_000 * MS)
    engine.arrive(0)
    engine.arrive(1, deadline=50 * MS)
    engine.advance(60 * MS)
    assert engine.outcomes == {1: ["expired"]}
    assert engine.finished_at[1] == 50 * MS


def test_a_request_that_runs_too_long_expires_and_its_result_is_dropped() -> None:
    engine = SimulatedEngine(config(), run_ns=100 * MS)
    engine.arrive(0, deadline=50 * MS)
    engine.finish()
    assert engine.outcomes == {0: ["expired"]}


def test_a_request_that_arrives_too_late_expires_and_never_runs() -> None:
    engine = SimulatedEngine(config(), now=100)
    engine.arrive(0, deadline=100)
    assert engine.outcomes == {0: ["expired"]}
    assert engine.batches == []


def test_a_cancelled_request_does_not_run_and_hurts_nobody() -> None:
    engine = SimulatedEngine(config())
    for number in range(4):
        engine.arrive(number)
    engine.cancel(2)
    engine.finish()
    assert engine.order() == [0, 1, 3]
    assert engine.outcomes == {0: ["answered"], 1: ["answered"], 3: ["answered"]}


def test_a_caller_who_leaves_during_the_run_leaves_its_batchmates_their_rows() -> None:
    engine = SimulatedEngine(config())
    engine.arrive(0)
    for number in range(1, 4):
        engine.arrive(number)
    engine.advance(15 * MS)
    engine.cancel(2)
    engine.finish()
    assert [part.row for part in engine.batches[1].parts] == [0, 1, 2]
    assert engine.outcomes == {0: ["answered"], 1: ["answered"], 3: ["answered"]}


def test_cancelling_twice_or_after_the_answer_is_harmless() -> None:
    engine = SimulatedEngine(config())
    engine.arrive(0)
    engine.finish()
    engine.cancel(0)
    engine.cancel(0)
    engine.cancel(77)
    assert engine.outcomes == {0: ["answered"]}


def test_one_bad_request_fails_alone() -> None:
    engine = SimulatedEngine(config(), failing=frozenset({2}))
    engine.arrive(0)
    for number in range(1, 5):
        engine.arrive(number)
    engine.finish()
    assert engine.outcomes == {
        0: ["answered"],
        1: ["answered"],
        2: ["failed"],
        3: ["answered"],
        4: ["answered"],
    }


def test_a_full_queue_refuses_and_takes_again_when_there_is_room() -> None:
    engine = SimulatedEngine(config(max_rows=4, ahead=0), queued_rows=8)
    for number in range(4):
        engine.arrive(number, rows=4)  # the first runs, two wait
    assert engine.outcomes == {3: ["refused"]}
    engine.advance(10 * MS)
    engine.arrive(4, rows=4)
    engine.finish()
    assert engine.outcomes[4] == ["answered"]


def test_the_queue_is_bounded_in_bytes_too_but_always_takes_a_first_request() -> None:
    engine = SimulatedEngine(config(ahead=0), queued_bytes=100)
    engine.arrive(0, rows=8)
    engine.arrive(1, size=1_000)
    engine.arrive(2, size=1)
    assert engine.outcomes == {2: ["refused"]}
    waiting = engine.scheduler._waiting
    assert (waiting.rows, waiting.bytes) == (1, 1_000)
    engine.finish()
    assert (waiting.rows, waiting.bytes) == (0, 0)


def test_departed_requests_leave_nothing_behind() -> None:
    engine = SimulatedEngine(config(), queued_rows=10_000, run_ns=10**12)
    engine.arrive(0)
    for number in range(1, 5_000):
        engine.arrive(number, deadline=10**12 + number)
        engine.cancel(number)
    assert len(engine.scheduler._expiry._line) + len(engine.scheduler._expiry._others) < 100
    assert engine.scheduler.queued_rows == 0
    for number in range(5_000, 6_000):
        engine.arrive(number)
        if number % 100:
            engine.cancel(number)
    (backlog,) = engine.lane.backlogs.values()
    assert len(backlog._line) + len(backlog._others) < 100
