"""What holds for every sequence of arrivals, cancellations, failures and pauses."""

from hypothesis import given
from hypothesis import strategies as st

from mcp2026.runtime.batching import DrainStarted, Lane
from tests.unit.runtime.simulated_engine import MS, SimulatedEngine, limits

LANES = (Lane("1", ((4,),)), Lane("1", ((5,),)), Lane("2", ((4,),)), Lane("3", ((2, 2),), shared=False))

arrivals = st.tuples(
    st.just("arrive"),
    st.integers(1, 8),
    st.sampled_from(LANES),
    st.integers(0, 120),
    st.integers(1, 50),
)
steps = st.lists(
    st.one_of(
        arrivals,
        arrivals,
        st.tuples(st.just("cancel"), st.integers(0, 60)),
        st.tuples(st.just("wait"), st.integers(0, 40)),
        st.tuples(st.just("drain")),
    ),
    max_size=60,
)
settings = st.builds(
    limits,
    max_rows=st.just(8),
    min_rows=st.integers(1, 8),
    delay_ms=st.integers(0, 60),
    ahead=st.integers(0, 4),
    queued_rows=st.integers(8, 40),
    queued_bytes=st.integers(20, 400),
)


@given(settings, steps, st.frozensets(st.integers(0, 60), max_size=5))
def test_every_sequence(chosen: object, sequence: list[tuple], failing: frozenset[int]) -> None:  # type: ignore[type-arg]
    engine = SimulatedEngine(chosen, failing=failing)  # type: ignore[arg-type]
    arrived: dict[int, tuple[int, Lane, int, int]] = {}
    cancelled: dict[int, bool] = {}
    for step in sequence:
        match step:
            case ("arrive", rows, lane, timeout_ms, size):
                number = len(arrived)
                rows = rows if lane.shared else 1
                deadline = engine.now + timeout_ms * MS
                arrived[number] = (rows, lane, deadline, engine.now)
                engine.arrive(number, rows, lane, deadline, size)
            case ("cancel", number) if number in arrived:
                cancelled[number] = cancelled.get(number, False) or number not in engine.outcomes
                engine.cancel(number)
            case ("wait", pause_ms):
                engine.advance(engine.now + pause_ms * MS)
            case ("drain",):
                engine.give(DrainStarted())
    engine.finish()

    for number, (rows, _lane, deadline, _) in arrived.items():
        outcomes = engine.outcomes.get(number, [])
        if cancelled.get(number):
            assert outcomes == [], "nothing is said to a caller who has gone"
            continue
        assert len(outcomes) == 1, "every request gets exactly one outcome"
        if outcomes == ["expired"]:
            assert engine.finished_at[number] == max(deadline, arrived[number][3])
        elif outcomes != ["refused"]:
            assert engine.finished_at[number] <= deadline
        if outcomes == ["failed"]:
            assert number in failing
        if outcomes == ["answered"]:
            assert number not in failing
            assert rows >= 1

    for batch in engine.batches:
        lanes = {arrived[member.request_id][1] for member in batch.members}
        assert lanes == {batch.lane}, "shapes and versions never mix"
        assert batch.rows == sum(arrived[member.request_id][0] for member in batch.members) <= 8
        starts = [member.first_row for member in batch.members]
        assert starts == [sum(m.rows for m in batch.members[:i]) for i in range(len(starts))]
        assert batch.lane.shared or len(batch.members) == 1
        urgency = [(arrived[m.request_id][2], m.request_id) for m in batch.members]
        assert urgency == sorted(urgency), "inside a batch the order is deadline, then arrival"

    assert engine.batcher.queued_rows == 0
    assert engine.batcher.queued_bytes == 0
    assert engine.batcher.batches_out == 0
    assert not engine.batcher._requests
    assert not engine.batcher._lanes
    assert not engine.batcher._alone


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(200, 300)), min_size=1, max_size=40))
def test_what_waits_together_leaves_by_deadline_then_arrival(requests: list[tuple[int, int]]) -> None:
    engine = SimulatedEngine(limits(ahead=0, queued_rows=1_000), run_ns=1)
    engine.arrive(0)
    for number, (rows, deadline_ms) in enumerate(requests, 1):
        engine.arrive(number, rows, deadline=deadline_ms * MS)
    engine.finish()
    expected = sorted(range(1, len(requests) + 1), key=lambda n: (requests[n - 1][1], n))
    assert engine.order() == [0, *expected]
