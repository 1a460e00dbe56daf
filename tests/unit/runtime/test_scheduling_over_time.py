"""Shares, isolation, added latency and steady throughput over simulated seconds and minutes."""

import random
from collections.abc import Callable
from itertools import count

import pytest

from mcp2026.api.serving import Priorities, QueuePolicy
from mcp2026.runtime.batching import Batch, Lane
from tests.unit.runtime.simulated_engine import MS, SECOND, RunTime, SimulatedEngine, config, linear

CPU = linear(10, 2)
"""Most of the time is spent per row."""
GPU = linear(0.2, 4)
"""Most of the time is the same for any batch."""
BETWEEN = linear(2, 8)
MODELS = [pytest.param(CPU, id="cpu"), pytest.param(GPU, id="gpu"), pytest.param(BETWEEN, id="between")]


class Traffic:
    """Callers of one simulated engine, by tenant."""

    def __init__(self, engine: SimulatedEngine, seed: int = 1) -> None:
        self.engine = engine
        self.calls: dict[str, list[int]] = {}
        self._numbers = count()
        self._callers: dict[int, Callable[[], None]] = {}
        self._random = random.Random(seed)
        engine.when_settled = self._settled

    def closed(
        self, tenant: str, callers: int, think_ms: float = 0.0, *, at_most: bool = False, **request: object
    ) -> None:
        """Let so many callers each send their next request after the answer and a pause.

        The pause is `think_ms` on average, or `at_most` that.
        """

        def send() -> None:
            number = next(self._numbers)
            self._callers[number] = send if not think_ms else pause
            self.calls.setdefault(tenant, []).append(number)
            self.engine.arrive(number, tenant=tenant, **request)

        def pause() -> None:
            most = self._random.uniform(0, think_ms * MS)
            pause_ns = int(most if at_most else self._random.expovariate(1 / (think_ms * MS)))
            self.engine.at(self.engine.now + pause_ns, send)

        for _ in range(callers):
            send()

    def closed_through_one_reader(self, callers: int, back_ms: tuple[float, float], read_ms: float) -> None:
        """Let each send its next request so long after the answer; one is read after another."""
        free_at = 0
        calls = self.calls.setdefault("", [])

        def send() -> None:
            nonlocal free_at
            sent_at = self.engine.now
            free_at = max(sent_at, free_at) + int(read_ms * MS)
            self.engine.at(free_at, lambda: arrive(sent_at))

        def arrive(sent_at: int) -> None:
            number = next(self._numbers)
            self._callers[number] = pause
            calls.append(number)
            self.engine.arrive(number)
            self.engine.arrived_at[number] = sent_at

        def pause() -> None:
            self.engine.at(self.engine.now + int(self._random.uniform(*back_ms) * MS), send)

        for _ in range(callers):
            send()

    def open(self, tenant: str, per_second: float, until: int, **request: object) -> None:
        """Let requests arrive at random, at this rate, whatever becomes of them."""
        at = self.engine.now
        while (at := at + int(self._random.expovariate(per_second / SECOND))) < until:
            self.engine.at(at, lambda: self._one(tenant, **request))

    def _one(self, tenant: str, deadline_ms: int = 10**9, **request: object) -> None:
        number = next(self._numbers)
        self.calls.setdefault(tenant, []).append(number)
        self.engine.arrive(number, tenant=tenant, deadline=self.engine.now + deadline_ms * MS, **request)

    def _settled(self, number: int, _outcome: str) -> None:
        self._callers.pop(number, lambda: None)()

    def percentile_ms(self, tenant: str, percent: int, since: int = 0) -> float:
        engine = self.engine
        done = [n for n in self.calls[tenant] if n in engine.finished_at and engine.arrived_at[n] >= since]
        return engine.latencies(done)[len(done) * percent // 100] / MS


@pytest.mark.parametrize("run", MODELS)
@pytest.mark.parametrize("weights", [(3, 1), (1, 1), (10, 1)])
def test_tenants_share_execution_time_by_weight(run: RunTime, weights: tuple[int, int]) -> None:
    tenants = dict(zip("ab", weights, strict=True))
    engine = SimulatedEngine(config(max_rows=32, tenants=tenants), run_ns=run)
    traffic = Traffic(engine)
    for tenant in tenants:
        traffic.closed(tenant, 64)
    engine.advance(10 * SECOND)
    share = engine.run_time["a"] / sum(engine.run_time.values())
    assert share == pytest.approx(weights[0] / sum(weights), abs=0.03)


def test_shares_hold_between_models_of_different_cost_and_rows_of_different_number() -> None:
    tenants = {"a": 3, "b": 1}
    models = {0: linear(2, 8), 1: linear(30, 5)}
    engine = SimulatedEngine(
        config(max_rows=8, tenants=tenants), run_ns=lambda batch: models[lanes.index(batch.lane)](batch)
    )
    lanes = [engine.lane, Lane(engine.serve(config(max_rows=8, tenants=tenants, name="other")))]
    traffic = Traffic(engine)
    traffic.closed("a", 16, lane=lanes[0], rows=3)
    traffic.closed("a", 16, lane=lanes[1])
    traffic.closed("b", 32, lane=lanes[1], rows=2)
    engine.advance(20 * SECOND)
    assert engine.run_time["a"] / sum(engine.run_time.values()) == pytest.approx(0.75, abs=0.03)


def test_what_a_tenant_does_not_use_goes_to_the_others_and_is_not_saved_up() -> None:
    engine = SimulatedEngine(config(max_rows=8, tenants={"a": 1, "b": 1}), run_ns=BETWEEN)
    traffic = Traffic(engine)
    traffic.closed("a", 32)
    engine.advance(5 * SECOND)
    assert engine.run_time == {"a": pytest.approx(5 * SECOND, rel=0.01)}
    traffic.closed("b", 32)  # silent for 5 s: has no claim on the next five
    engine.run_time.clear()
    engine.advance(10 * SECOND)
    assert engine.run_time["a"] / sum(engine.run_time.values()) == pytest.approx(0.5, abs=0.03)


def test_tenants_without_a_name_in_the_configuration_share_one_weight() -> None:
    engine = SimulatedEngine(config(max_rows=8, tenants={"a": 1}), run_ns=BETWEEN)
    traffic = Traffic(engine)
    traffic.closed("a", 32)
    for number in range(20):
        traffic.closed(f"unknown-{number}", 4)
    engine.advance(10 * SECOND)
    assert engine.run_time["a"] / sum(engine.run_time.values()) == pytest.approx(0.5, abs=0.03)
    assert set(engine.run_time) == {"a", ""}


@pytest.mark.parametrize("run", MODELS)
@pytest.mark.parametrize("callers", [1, 4])
def test_a_flood_of_one_tenant_at_most_doubles_the_latency_of_another(run: RunTime, callers: int) -> None:
    p99 = []
    for flood in (0, 256):
        engine = SimulatedEngine(config(max_rows=32, tenants={"a": 1, "b": 1}), run_ns=run)
        traffic = Traffic(engine)
        traffic.closed("b", callers, think_ms=5)
        engine.advance(2 * SECOND)
        traffic.closed("a", flood)
        engine.advance(20 * SECOND)
        p99.append(traffic.percentile_ms("b", 99, since=3 * SECOND))
    assert p99[1] <= 2.0 * p99[0]


@pytest.mark.parametrize("run", MODELS)
def test_half_load_adds_little_to_the_latency_that_starting_at_once_would_have(run: RunTime) -> None:
    """Compared with the same arrivals on an engine whose lanes never wait for company."""
    p99 = []
    for learns in (True, False):
        engine = SimulatedEngine(config(max_rows=32), run_ns=run)
        if not learns:
            engine.lane.company.answered = lambda *_: None  # type: ignore[method-assign]
        traffic = Traffic(engine)
        capacity = 32 * SECOND / (32 * (run(_batch(32)) - run(_batch(16))) / 16 + 2 * run(_batch(1)))
        traffic.open("", capacity / 2, until=30 * SECOND)
        engine.advance(40 * SECOND)
        p99.append(traffic.percentile_ms("", 99))
    assert p99[0] - p99[1] <= 2.0


def _batch(rows: int) -> Batch:
    return Batch(Lane(SimulatedEngine().model), [], rows, rows)


@pytest.mark.parametrize("run", MODELS)
@pytest.mark.parametrize("spread_ms", [0.0, 0.3])
def test_callers_that_come_back_together_are_served_together(run: RunTime, spread_ms: float) -> None:
    """Eight callers, each back a moment after its answer: neither one then seven, nor a long tail."""
    engine = SimulatedEngine(config(max_rows=32), run_ns=run)
    traffic = Traffic(engine)
    traffic.closed("", 8, think_ms=spread_ms, at_most=True)
    engine.advance(20 * SECOND)
    p50, p99 = (traffic.percentile_ms("", percent, since=2 * SECOND) for percent in (50, 99))
    assert p99 <= 1.3 * p50
    best = 8 * SECOND / run(_batch(8))
    answered = sum(1 for number in traffic.calls[""] if engine.finished_at.get(number, 0) >= 2 * SECOND)
    assert answered / 18 >= 0.90 * best


RESNET = (52, 6)
"""A large model on one core, in ms: a·n + b as measured."""
GPU_LIKE = (0.2, 4)
MIDDLE = (2, 8)


@pytest.mark.parametrize(
    ("cost", "callers", "back_ms", "read_ms", "of_best"),
    [
        pytest.param(RESNET, 8, (1, 3), 1.0, 0.95, id="600 kB each, raw"),
        pytest.param(RESNET, 8, (0.5, 1.5), 0.7, 0.95, id="600 kB each, gRPC"),
        pytest.param(RESNET, 8, (1, 5), 15.0, 0.95, id="600 kB each, JSON"),
        pytest.param(RESNET, 8, (0, 60), 1.0, 0.95, id="callers that think about as long as a row runs"),
        pytest.param(RESNET, 3, (1, 3), 1.0, 0.95, id="three callers"),
        pytest.param((52, 20), 8, (1, 3), 1.0, 0.92, id="a wait about as long as what it saves"),
        pytest.param((10, 2), 8, (0.1, 1), 0.7, 0.95, id="little is saved"),
        pytest.param(GPU_LIKE, 8, (0.1, 0.3), 0.02, 0.90, id="much is saved"),
        pytest.param(GPU_LIKE, 8, (0, 1), 0.02, 0.80, id="much is saved by a long wait"),
        pytest.param(GPU_LIKE, 8, (0.1, 0.3), 0.3, 0.55, id="back too late for what is saved"),
        pytest.param(GPU_LIKE, 2, (0.1, 0.5), 0.02, 0.85, id="two callers that would take turns"),
        pytest.param(MIDDLE, 8, (0.1, 0.5), 0.4, 0.85, id="back just in time"),
        pytest.param(MIDDLE, 8, (0.1, 0.5), 0.5, 0.70, id="the last one back just too late"),
    ],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_no_caller_waits_much_longer_than_the_others(
    cost: tuple[float, float],
    callers: int,
    back_ms: tuple[float, float],
    read_ms: float,
    of_best: float,
    seed: int,
) -> None:
    """Requests arrive one after another as one core reads them, and runs vary in length.

    Whether a batch waits for all or starts with whom it has: it must not change its mind again and again.
    """
    per_row, fixed = cost
    noise = random.Random(seed)
    engine = SimulatedEngine(
        config(max_rows=32),
        run_ns=lambda batch: int((per_row * batch.run_rows + fixed) * MS * noise.uniform(1, 1.05)),
    )
    traffic = Traffic(engine, seed)
    traffic.closed_through_one_reader(callers, back_ms, read_ms)
    whole_ms = per_row * callers + fixed
    warm, end = int(100 * whole_ms * MS), int(300 * whole_ms * MS)
    engine.advance(end)
    p50, p99 = (traffic.percentile_ms("", percent, since=warm) for percent in (50, 99))
    assert p99 <= 1.3 * p50
    answered = sum(1 for number in traffic.calls[""] if engine.finished_at.get(number, 0) >= warm)
    assert answered >= of_best * callers * 200 / 1.025


def test_a_single_caller_is_never_waited_for() -> None:
    engine = SimulatedEngine(config(max_rows=32), run_ns=BETWEEN)
    traffic = Traffic(engine)
    traffic.closed("", 1)
    engine.advance(10 * SECOND)
    assert traffic.percentile_ms("", 99) == pytest.approx(10.0)
    assert len(engine.batches) == 1_001


def test_requests_that_expire_cost_the_others_no_throughput() -> None:
    """Five minutes at twice the capacity; every caller gives up after 200 ms."""
    engine = SimulatedEngine(config(max_rows=8), run_ns=CPU)
    traffic = Traffic(engine)
    traffic.open("", 190, until=300 * SECOND, deadline_ms=200, named=True)
    per_minute = []
    for minute in range(1, 6):
        engine.advance(minute * 60 * SECOND)
        per_minute.append(sum(outcome == ["answered"] for outcome in engine.outcomes.values()))
        engine.outcomes.clear()
    assert min(per_minute) >= 0.9 * max(per_minute)
    assert min(per_minute) >= 0.75 * 60 * 8_000 / 82  # of what batches of 8 could do
    engine.finish()
    for number in traffic.calls[""]:
        assert engine.finished_at[number] <= engine.arrived_at[number] + 200 * MS
    assert engine.scheduler.unsettled == engine.scheduler.queued_rows == 0


def test_a_lower_level_moves_only_when_the_higher_is_empty() -> None:
    engine = SimulatedEngine(config(max_rows=4, priorities=Priorities(levels=2, default=2)), run_ns=CPU)
    traffic = Traffic(engine)
    traffic.closed("high", 8, priority=1)
    traffic.closed("low", 8)
    engine.advance(10 * SECOND)
    assert not any(number in engine.finished_at for number in traffic.calls["low"])


def test_a_lower_level_rides_along_where_its_rows_cost_next_to_nothing() -> None:
    engine = SimulatedEngine(config(max_rows=8, priorities=Priorities(levels=2, default=2)), run_ns=GPU)
    traffic = Traffic(engine)
    traffic.closed("high", 4, priority=1)
    traffic.closed("low", 8)
    engine.advance(10 * SECOND)
    assert len([number for number in traffic.calls["low"] if number in engine.finished_at]) > 1_000
    assert traffic.percentile_ms("high", 99) <= 1.25 * 2 * 4.8


def test_an_urgent_request_overtakes_everything_that_does_not_run_yet() -> None:
    engine = SimulatedEngine(
        config(max_rows=4, ahead=8, priorities=Priorities(levels=2, default=2)), run_ns=10 * MS
    )
    for number in range(10):
        engine.arrive(number, rows=4)
    assert len(engine.formed) == 8
    engine.arrive(99, priority=1)
    engine.arrive(98, deadline=50 * MS)
    engine.finish()
    assert engine.order() == [0, 99, 98, *range(1, 10)]


def test_a_deadline_that_no_run_can_meet_takes_no_time_from_others() -> None:
    engine = SimulatedEngine(config(max_rows=8), run_ns=linear(10, 20))
    for number in range(10):
        engine.arrive(number)
        engine.advance(engine.now + 100 * MS)
    ran = len(engine.batches)
    now = engine.now
    engine.arrive(10, deadline=now + 5 * MS, named=True)
    engine.arrive(11, deadline=now + 5 * MS)  # nobody asked for this deadline: no guess is made
    engine.finish()
    assert [part.request.call for batch in engine.batches[ran:] for part in batch.parts] == [11]
    assert engine.outcomes[10] == engine.outcomes[11] == ["expired"]
    assert engine.finished_at[10] == now + 5 * MS


def test_a_late_request_that_may_be_late_is_served_after_all_that_are_in_time() -> None:
    policy = QueuePolicy(timeout_action="Delay")
    engine = SimulatedEngine(config(max_rows=1, ahead=0, queue=policy), run_ns=10 * MS)
    engine.arrive(0)
    engine.arrive(1, deadline=5 * MS, expires=SECOND)
    for number in range(2, 6):
        engine.arrive(number)
    engine.finish()
    assert engine.order() == [0, 2, 3, 4, 5, 1]
    assert engine.outcomes[1] == ["answered"]


def test_runs_of_the_event_loop_wait_for_nobody() -> None:
    """Its timers count in ms, and such a run is shorter."""
    engine = SimulatedEngine(config(max_rows=32), run_ns=linear(0.005, 0.25))
    traffic = Traffic(engine)
    traffic.closed("", 8, think_ms=0.05, at_most=True)
    engine.advance(SECOND)
    assert all(batch.inline for batch in engine.batches[100:])
    assert engine.lane.company.until == 0
