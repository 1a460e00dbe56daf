"""What holds for every sequence of arrivals, cancellations, failures and pauses."""

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from mcp2026.api.serving import Priorities, QueuePolicy, ServingConfig
from mcp2026.runtime.batching import Batch, Lane
from mcp2026.runtime.batching.causes import Cause
from tests.unit.runtime.simulated_engine import MS, SimulatedEngine, config

arrivals = st.tuples(
    st.just("arrive"),
    st.integers(1, 20),
    st.integers(0, 3),
    st.integers(0, 120),
    st.integers(1, 50),
    st.integers(0, 3),
    st.sampled_from(["", "a", "b", "unknown"]),
    st.sampled_from([0, 0, 2, 5, 20]),
    st.integers(0, 50),
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
configs = st.builds(
    config,
    max_rows=st.just(8),
    min_rows=st.integers(1, 8),
    delay_ms=st.integers(0, 60),
    ahead=st.integers(2, 4),
    queue=st.builds(QueuePolicy, max_rows=st.integers(0, 30)),
    priorities=st.just(Priorities(levels=3, default=2, queues={1: QueuePolicy(max_rows=12)})),
    tenants=st.sampled_from([{}, {"a": 3, "b": 1}]),
    padded=st.sampled_from([(), (4, 8), (2, 6, 16)]),
    instances=st.integers(1, 2),
)


@given(configs, steps, st.frozensets(st.integers(0, 60), max_size=5), st.integers(1, 3))
def test_every_sequence(
    chosen: ServingConfig,
    sequence: list[tuple],  # type: ignore[type-arg]
    failing: frozenset[int],
    threads: int,
) -> None:
    engine = SimulatedEngine(chosen, failing=failing, threads=threads, queued_rows=40, queued_bytes=400)
    other = engine.serve(config(max_rows=8, name="other"))
    lanes = [engine.lane, Lane(engine.model), Lane(other), Lane(engine.model, shared=False)]
    rows_of: dict[int, int] = {}
    cancelled: set[int] = set()
    running_at_most = 0
    for step in sequence:
        match step:
            case ("arrive", rows, lane, timeout_ms, size, priority, tenant, enough, patience_ms):
                number = len(rows_of)
                rows_of[number] = rows if lanes[lane].shared else 1
                deadline = engine.now + timeout_ms * MS
                agreed = {"enough_rows": enough, "patience": patience_ms * MS}
                engine.arrive(
                    number, rows_of[number], lanes[lane], deadline, size, priority, tenant, **agreed
                )
            case ("cancel", number) if number in rows_of:
                if number not in engine.outcomes:
                    cancelled.add(number)
                engine.cancel(number)
            case ("wait", pause_ms):
                engine.advance(engine.now + pause_ms * MS)
            case ("drain",):
                engine.drain()
        running_at_most = max(running_at_most, engine.model.running)
    engine.finish()

    assert running_at_most <= chosen.execution.instances
    for number, rows in rows_of.items():
        request = engine.requests[number]
        outcomes = engine.outcomes.get(number, [])
        if number in cancelled:
            assert outcomes == [], "nothing is said to a caller who has gone"
            continue
        assert len(outcomes) == 1, "every request gets exactly one outcome"
        if outcomes == ["expired"]:
            assert engine.finished_at[number] == max(request.deadline, engine.arrived_at[number])
        elif outcomes != ["refused"]:
            assert engine.finished_at[number] <= request.deadline
        if outcomes == ["failed"]:
            assert number in failing
        if outcomes == ["answered"]:
            assert number not in failing
            assert answered_rows(engine.batches, number, failing) == list(range(rows))

    for batch in engine.batches:
        assert {part.request.lane for part in batch.parts} == {batch.lane}, "shapes and versions never mix"
        assert batch.rows == sum(part.rows for part in batch.parts) <= 8
        assert batch.run_rows == engine.model.policy.run_rows(batch.rows) or batch.lane.model is other
        starts = [part.row for part in batch.parts]
        assert starts == [sum(p.rows for p in batch.parts[:i]) for i in range(len(starts))]
        assert batch.lane.shared or len(batch.parts) == 1
        assert batch.cause in Cause
        for one, two in zip(batch.parts, batch.parts[1:], strict=False):
            first, second = one.request, two.request
            assert first.level <= second.level, "higher levels first"
            if (first.level, first.tenant) == (second.level, second.tenant):
                assert (first.deadline, first.number) <= (second.deadline, second.number)

    waiting = engine.scheduler._waiting
    assert (waiting.rows, waiting.bytes, waiting.lanes) == (0, 0, {})
    assert engine.scheduler.unsettled == 0
    assert not engine.scheduler._retries
    assert engine.scheduler._formed == engine.model.ahead == other.ahead == 0
    assert engine.model.running == other.running == 0
    for level in waiting.levels.values():
        assert not level.waiting
        assert not any(account.waits for account in level.accounts.values())
    queues = {request.queue for request in engine.requests.values()}
    assert all(queue.rows == 0 for queue in queues)
    assert all(lane.rows == 0 and not lane.backlogs for lane in lanes)


def answered_rows(batches: list[Batch], number: int, failing: frozenset[int]) -> list[int]:
    """The rows of a request that ran in batches which did not fail, each once."""
    return sorted(
        row
        for batch in batches
        if not any(part.request.call in failing for part in batch.parts)
        for part in batch.parts
        if part.request.call == number
        for row in range(part.first, part.first + part.rows)
    )


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(200, 300)), min_size=1, max_size=40))
def test_what_waits_together_leaves_by_deadline_then_arrival(requests: list[tuple[int, int]]) -> None:
    engine = SimulatedEngine(config(ahead=0), run_ns=1)
    engine.arrive(0)
    for number, (rows, deadline_ms) in enumerate(requests, 1):
        engine.arrive(number, rows, deadline=deadline_ms * MS)
    engine.finish()
    expected = sorted(range(1, len(requests) + 1), key=lambda n: (requests[n - 1][1], n))
    assert engine.order() == [0, *expected]


WEIGHTS = {"a": 1, "b": 2, "c": 3}


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.sampled_from("abc"), st.integers(500, 520), st.integers(0, 2)),
        min_size=1,
        max_size=20,
    )
)
def test_the_order_is_that_of_the_rules_taken_one_by_one(requests: list[tuple[int, str, int, int]]) -> None:
    """Runs of one row in 10 ms, all waiting from the start: compared with the rules written down plainly."""
    chosen = config(max_rows=1, ahead=0, tenants=WEIGHTS, priorities=Priorities(levels=4, default=4))
    engine = SimulatedEngine(chosen)
    lanes = [engine.lane, *(Lane(engine.serve(chosen)) for _ in range(2))]
    for number in range(3):
        engine.arrive(1_000 + number, lane=lanes[number])  # run times are known from now on
        engine.advance(engine.now + 20 * MS)
    engine.arrive(999)
    engine.batches.clear()
    waiting = []
    for number, (level, tenant, deadline_s, lane) in enumerate(requests):
        deadline = deadline_s * 1_000 * MS
        engine.arrive(number, lane=lanes[lane], deadline=deadline, priority=level, tenant=tenant)
        waiting.append((level, tenant, deadline, number))
    engine.finish()

    debts: dict[tuple[int, str], float] = {}
    expected = []
    while waiting:
        highest = min(level for level, *_ in waiting)
        of_level = [each for each in waiting if each[0] == highest]
        least = min(debts.get(each[:2], 0.0) for each in of_level)
        turn = [each for each in of_level if debts.get(each[:2], 0.0) <= least + 1e-3]
        level, tenant, _, number = one = min(turn, key=lambda each: each[2:])
        expected.append(number)
        waiting.remove(one)
        debts[level, tenant] = debts.get((level, tenant), 0.0) + 10 / WEIGHTS[tenant]
    assert engine.order() == expected


@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(1, 12), st.integers(1, 3), st.booleans()),
        min_size=1,
        max_size=30,
    ),
    st.integers(1, 3),
)
def test_no_engine_is_idle_while_something_may_run(
    requests: list[tuple[int, int, int, bool]], threads: int
) -> None:
    engine = SimulatedEngine(config(instances=2), threads=threads)
    lanes = (engine.lane, Lane(engine.serve(config(instances=1, name="other"))))
    for number, (at_ms, rows, priority, first) in enumerate(requests):
        arrive = partial(engine.arrive, number, rows, lanes[first], priority=priority)
        engine.at(at_ms * MS, arrive)
    for at_ms in range(400):
        engine.advance(at_ms * MS)
        if engine.look_again_at is None:  # else: a permitted wait
            assert engine.busy == threads or not any(lane.rows and lane.model.free for lane in lanes)
    engine.finish()
    assert all(outcome == ["answered"] for outcome in engine.outcomes.values())
