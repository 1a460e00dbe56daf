"""A canary moves by its plan, and back as soon as a rule is broken."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp2026.api.canary import (
    Canary,
    CanaryOutcome,
    CanaryStatus,
    Measured,
    RollbackRule,
    check_canary,
    effective_weights,
    next_status,
    status_of,
)
from mcp2026.api.errors import InvalidResourceError

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
PLAN = Canary("v2", steps=(5, 50, 100), step_seconds=60)
FINE = Measured(200, 0, 10.0)
STABLE = Measured(2_000, 0, 10.0)


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def begun(step: int = 0) -> CanaryStatus:
    return CanaryStatus(PLAN, step=step, since="2026-06-01T12:00:00Z")


def test_the_clock_of_a_step_starts_when_its_weights_are_live_everywhere() -> None:
    waiting = next_status(CanaryStatus(PLAN), FINE, STABLE, after(1_000), settled=False)
    assert (waiting.step, waiting.since) == (0, "")
    assert "not live on every pod" in waiting.message
    started = next_status(waiting, Measured(), STABLE, after(2_000), settled=True)
    assert (started.step, started.since) == (0, "2026-06-01T12:33:20Z")


def test_a_good_canary_takes_every_step_and_is_promoted() -> None:
    status: CanaryStatus | None = None
    seen = []
    now = 0.0
    while True:
        status = status_of(PLAN, status)
        assert status is not None
        if status.outcome is not CanaryOutcome.PROGRESSING:
            break
        seen.append(status.weight)
        status = next_status(status, FINE, STABLE, after(now), settled=True)
        now += 30
    assert status.outcome is CanaryOutcome.PROMOTED
    assert list(dict.fromkeys(seen)) == [5, 50, 100]
    assert now == 30 * 3 * 3  # per step: a look that starts its clock, one too early, one in time


@pytest.mark.parametrize(
    ("seconds", "step"), [(0, 0), (59.9, 0), (60, 1)], ids=["at once", "a moment early", "in time"]
)
def test_a_step_lasts_its_time(seconds: float, step: int) -> None:
    assert next_status(begun(), FINE, STABLE, after(seconds), settled=True).step == step


def test_without_its_minimum_of_requests_a_step_stays_and_says_so() -> None:
    status = next_status(begun(), Measured(99, 99, 500.0), STABLE, after(10_000), settled=True)
    assert (status.step, status.outcome) == (0, CanaryOutcome.PROGRESSING)
    assert status.message == "waits for 100 requests to judge 5 percent by; 90 percent of them were seen"


def test_a_message_changes_ten_times_at_most_while_requests_come_in_and_not_with_the_clock() -> None:
    counting = {
        next_status(begun(), Measured(seen), STABLE, after(seen), settled=True).message for seen in range(100)
    }
    assert len(counting) == 10
    waiting = {
        next_status(begun(), FINE, STABLE, after(seconds), settled=True).message for seconds in range(60)
    }
    assert waiting == {"5 percent until 2026-06-01T12:01:00Z at least"}


BROKEN = [
    ("errors", Measured(100, 2, 10.0), STABLE, "2.00 percent of 100 requests failed; allowed: 1.00"),
    ("errors above theirs", Measured(100, 7, 10.0), Measured(100, 5, 10.0), "allowed: 6.00 (5.00 of"),
    ("p95", Measured(100, 0, 15.1), STABLE, "p95 of 100 requests is 15.1 ms; allowed: 15.0 ms"),
]
HOLDS = [
    ("errors at the limit", Measured(100, 1, 10.0), STABLE),
    ("p95 at the limit", Measured(100, 0, 15.0), STABLE),
    ("slow, but there is nothing to compare with", Measured(100, 0, 99.0), Measured(99, 0, 1.0)),
    ("no latency", Measured(100, 1, None), STABLE),
]


@pytest.mark.parametrize(
    ("canary", "others", "words"), [row[1:] for row in BROKEN], ids=[r[0] for r in BROKEN]
)
def test_a_broken_rule_rolls_back_at_once_and_for_good(
    canary: Measured, others: Measured, words: str
) -> None:
    status = next_status(begun(1), canary, others, after(1), settled=True)
    assert status.outcome is CanaryOutcome.ROLLED_BACK
    assert words in status.message
    assert status.weight == 0
    assert next_status(status, FINE, STABLE, after(10_000), settled=True) == status
    assert status_of(PLAN, status) == status


@pytest.mark.parametrize(("canary", "others"), [row[1:] for row in HOLDS], ids=[row[0] for row in HOLDS])
def test_what_is_allowed_goes_on(canary: Measured, others: Measured) -> None:
    assert next_status(begun(), canary, others, after(60), settled=True).step == 1


def test_another_plan_begins_anew_and_no_plan_has_no_status() -> None:
    rolled_back = msgspec.structs.replace(begun(1), outcome=CanaryOutcome.ROLLED_BACK)
    other = msgspec.structs.replace(PLAN, rollback=RollbackRule(error_rate_percent=5))
    assert status_of(other, rolled_back) == CanaryStatus(other)
    assert status_of(None, rolled_back) is None


WEIGHTS = [
    ("first step", {"v1": 100, "v2": 0}, begun(), {"v1": 95, "v2": 5}),
    (
        "the others keep their proportions",
        {"a": 60, "b": 30, "v2": 10},
        begun(1),
        {"a": 33, "b": 17, "v2": 50},
    ),
    ("others without weight", {"v1": 0, "v2": 100}, begun(), {"v1": 95, "v2": 5}),
    ("all", {"v1": 100, "v2": 0}, begun(2), {"v1": 0, "v2": 100}),
    ("none", {"v1": 70, "v2": 30}, None, {"v1": 70, "v2": 30}),
]


@pytest.mark.parametrize(
    ("asked", "status", "held"), [row[1:] for row in WEIGHTS], ids=[r[0] for r in WEIGHTS]
)
def test_the_weights_that_hold(
    asked: dict[str, int], status: CanaryStatus | None, held: dict[str, int]
) -> None:
    assert effective_weights(asked, status) == held


def test_a_canary_that_was_rolled_back_gets_nothing() -> None:
    status = msgspec.structs.replace(begun(1), outcome=CanaryOutcome.ROLLED_BACK)
    assert effective_weights({"v1": 20, "v2": 80}, status) == {"v1": 100, "v2": 0}


@given(
    st.lists(st.integers(0, 100), min_size=2, max_size=16),
    st.integers(1, 100),
    st.sampled_from(CanaryOutcome),
)
def test_weights_always_sum_to_100(asked: list[int], weight: int, outcome: CanaryOutcome) -> None:
    weights = {f"v{number}": weight for number, weight in enumerate(asked)}
    status = CanaryStatus(Canary("v0", steps=(weight,)), outcome=outcome)
    held = effective_weights(weights, status)
    assert sum(held.values()) == 100
    assert held.keys() == weights.keys()
    assert held["v0"] == status.weight


REFUSED = [
    (Canary("v3"), ("v1", "v2"), "spec.canary.version: there is no version 'v3'; allowed: one of v1, v2"),
    (Canary("v1"), ("v1",), "spec.canary: the model has no other version"),
    (Canary("v2", steps=(5, 5, 100)), ("v1", "v2"), "does not grow"),
    (Canary("v2", steps=(50, 25)), ("v1", "v2"), "does not grow"),
]


@pytest.mark.parametrize(("canary", "versions", "words"), REFUSED)
def test_a_plan_that_cannot_be_followed_is_refused(
    canary: Canary, versions: tuple[str, ...], words: str
) -> None:
    with pytest.raises(InvalidResourceError) as refused:
        check_canary(canary, versions)
    assert words in str(refused.value)
