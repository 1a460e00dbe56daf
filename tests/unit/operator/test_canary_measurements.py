"""Counting starts with the step, for each run of a pod, and never mixes steps."""

import pytest

from mcp2026.api.canary import Canary
from mcp2026.operator.canary.comparison import LOOK_SECONDS, Comparison
from mcp2026.operator.canary.counts import Counts
from mcp2026.operator.canary.measurements import Measurements, Pod, Step

MODEL = ("team-a", "m")
STEP = Step("uid", Canary("v2"), 0, "2026-06-01T12:00:00Z")
NEXT = STEP._replace(number=1, since="2026-06-01T12:01:00Z")
A, B = Pod("a", "uid-a"), Pod("b", "uid-b")


def seen(v1: int, v2: int, errors: int = 900) -> dict[str, Counts]:
    return {"v1": Counts(v1, 0, {0.01: v1}), "v2": Counts(v2, errors, {0.01: v2 - errors})}


def requests(measurements: Measurements, step: Step = STEP) -> tuple[int, int]:
    found = measurements.comparison(MODEL, step, 0.0)
    return found.others.requests, found.canary.requests


def begun(*pods: Pod) -> Measurements:
    measurements = Measurements()
    assert measurements.begin_look(MODEL, STEP, 0.0)
    measurements.take(MODEL, STEP, {pod: seen(1_000, 1_000, 900) for pod in pods})
    return measurements


def test_what_was_before_the_first_look_counts_nowhere() -> None:
    measurements = begun(A, B)
    assert requests(measurements) == (0, 0)
    measurements.take(MODEL, STEP, {A: seen(1_010, 1_002, 901), B: seen(1_020, 1_003, 900)})
    found = measurements.comparison(MODEL, STEP, 0.0)
    assert (found.canary.requests, found.canary.errors) == (5, 1)
    assert (found.others.requests, found.others.errors) == (30, 0)
    assert found.canary.latency_p95_ms == pytest.approx(9.5)  # all in the bucket from 0 to 10 ms
    assert found.silent == ()


def test_looks_are_five_seconds_apart_and_a_step_begins_with_one() -> None:
    measurements = begun()
    assert measurements.comparison(MODEL, STEP, 4.75).next_look_seconds == 0.25
    assert not measurements.begin_look(MODEL, STEP, LOOK_SECONDS - 0.001)
    assert measurements.begin_look(MODEL, STEP, LOOK_SECONDS)
    assert not measurements.begin_look(MODEL, STEP, LOOK_SECONDS + 1)
    assert measurements.begin_look(MODEL, NEXT, LOOK_SECONDS + 1)
    assert measurements.begin_look(("team-b", "m"), STEP, LOOK_SECONDS + 1)


def test_another_step_begins_with_nothing_and_the_one_before_is_forgotten() -> None:
    measurements = begun(A)
    measurements.take(MODEL, STEP, {A: seen(2_000, 2_000)})
    measurements.begin_look(MODEL, NEXT, 10.0)
    assert requests(measurements, NEXT) == (0, 0)
    measurements.take(MODEL, STEP, {A: seen(3_000, 3_000)})  # a look that began in the step before
    measurements.take(MODEL, NEXT, {A: seen(3_001, 3_002)})
    assert requests(measurements, NEXT) == (0, 0)
    measurements.take(MODEL, NEXT, {A: seen(3_011, 3_003)})
    assert requests(measurements, NEXT) == (10, 1)
    assert requests(measurements, STEP) == (0, 0)


def test_a_pod_that_does_not_answer_is_named_and_what_it_counted_meanwhile_comes_later() -> None:
    measurements = begun(A, B)
    measurements.take(MODEL, STEP, {A: seen(1_010, 1_001), B: None})
    assert measurements.comparison(MODEL, STEP, 0.0).silent == ("b",)
    assert requests(measurements) == (10, 1)
    measurements.take(MODEL, STEP, {A: seen(1_010, 1_001), B: seen(1_050, 1_005)})
    assert measurements.comparison(MODEL, STEP, 0.0).silent == ()
    assert requests(measurements) == (60, 6)


def test_what_a_pod_that_is_gone_had_counted_stays() -> None:
    measurements = begun(A, B)
    measurements.take(MODEL, STEP, {A: seen(1_010, 1_001), B: seen(1_010, 1_001)})
    measurements.take(MODEL, STEP, {A: seen(1_011, 1_001)})
    assert requests(measurements) == (21, 2)


def test_counters_that_fell_count_from_zero() -> None:
    measurements = begun(A)
    measurements.take(MODEL, STEP, {A: seen(20, 3, 0)})
    assert requests(measurements) == (20, 3)


def test_a_container_that_was_started_again_is_looked_at_anew() -> None:
    measurements = begun(A)
    again = A._replace(restarts=1)
    measurements.take(MODEL, STEP, {again: seen(5_000, 5_000)})  # more than before: nothing fell
    assert requests(measurements) == (0, 0)
    measurements.take(MODEL, STEP, {again: seen(5_007, 5_001)})
    assert requests(measurements) == (7, 1)


def test_a_version_that_a_pod_had_not_loaded_before_counts_from_zero() -> None:
    measurements = Measurements()
    measurements.begin_look(MODEL, STEP, 0.0)
    measurements.take(MODEL, STEP, {A: {"v1": Counts(50)}})
    measurements.take(MODEL, STEP, {A: {"v1": Counts(60), "v2": Counts(4)}})
    assert requests(measurements) == (10, 4)


def test_an_operator_that_starts_anew_counts_anew() -> None:
    measurements = begun(A)
    measurements.take(MODEL, STEP, {A: seen(1_500, 1_500, 1_300)})
    successor = Measurements()
    assert successor.comparison(MODEL, STEP, 0.0) == Comparison()
    assert successor.begin_look(MODEL, STEP, 0.0)
    successor.take(MODEL, STEP, {A: seen(1_500, 1_500, 1_300)})
    assert requests(successor) == (0, 0)


def test_a_model_without_canary_is_forgotten() -> None:
    measurements = begun(A)
    measurements.take(MODEL, STEP, {A: seen(2_000, 2_000)})
    measurements.forget(MODEL)
    assert measurements.comparison(MODEL, STEP, 0.0) == Comparison()
