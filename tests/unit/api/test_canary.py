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
    Hindrance,
    Measured,
    RollbackRule,
    check_canary,
    effective_weights,
    next_status,
    seconds_until_given_up,
    status_of,
)
from mcp2026.api.errors import InvalidResourceError

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
PLAN = Canary("v2", steps=(5, 50, 100), step_seconds=60)
FINE = Measured(200, 0, 10.0)
STABLE = Measured(2_000, 0, 10.0)
NOT_LIVE = Hindrance("revision 2 is live on 1 of 2 pods")
REFUSED_BY_A_POD = Hindrance("pod a serves revision 1: no file", refused=True)
NO_NODE = Hindrance("pod a: no node has room", counts=False)


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def begun(step: int = 0) -> CanaryStatus:
    return CanaryStatus(PLAN, step=step, since="2026-06-01T12:00:00Z")


def test_the_clock_of_a_step_starts_when_its_weights_are_live_everywhere() -> None:
    waiting = next_status(CanaryStatus(PLAN), FINE, STABLE, after(1_000), NOT_LIVE)
    assert (waiting.step, waiting.since) == (0, "")
    assert "not live on every pod" in waiting.message
    started = next_status(waiting, Measured(), STABLE, after(2_000), None)
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
        status = next_status(status, FINE, STABLE, after(now), None)
        now += 30
    assert status.outcome is CanaryOutcome.PROMOTED
    assert list(dict.fromkeys(seen)) == [5, 50, 100]
    assert now == 30 * 3 * 3  # per step: a look that starts its clock, one too early, one in time


@pytest.mark.parametrize(
    ("seconds", "step"), [(0, 0), (59.9, 0), (60, 1)], ids=["at once", "a moment early", "in time"]
)
def test_a_step_lasts_its_time(seconds: float, step: int) -> None:
    assert next_status(begun(), FINE, STABLE, after(seconds), None).step == step


def test_without_its_minimum_of_requests_a_step_stays_and_says_so() -> None:
    status = next_status(begun(), Measured(99, 99, 500.0), STABLE, after(10_000), None)
    assert (status.step, status.outcome) == (0, CanaryOutcome.PROGRESSING)
    assert status.message == "waits for 100 requests to judge 5 percent by; 90 percent of them were seen"


def test_a_message_changes_ten_times_at_most_while_requests_come_in_and_not_with_the_clock() -> None:
    counting = {
        next_status(begun(), Measured(seen), STABLE, after(seen), None).message for seen in range(100)
    }
    assert len(counting) == 10
    waiting = {next_status(begun(), FINE, STABLE, after(seconds), None).message for seconds in range(60)}
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
    status = next_status(begun(1), canary, others, after(1), None)
    assert status.outcome is CanaryOutcome.ROLLED_BACK
    assert words in status.message
    assert status.weight == 0
    assert next_status(status, FINE, STABLE, after(10_000), None) == status
    assert status_of(PLAN, status) == status


@pytest.mark.parametrize(("canary", "others"), [row[1:] for row in HOLDS], ids=[row[0] for row in HOLDS])
def test_what_is_allowed_goes_on(canary: Measured, others: Measured) -> None:
    assert next_status(begun(), canary, others, after(60), None).step == 1


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


@pytest.mark.parametrize(
    ("hindrance", "seconds"), [(REFUSED_BY_A_POD, 30), (NOT_LIVE, 600)], ids=["refused", "not live"]
)
@pytest.mark.parametrize("status", [CanaryStatus(PLAN), begun(1)], ids=["before a step", "in a step"])
def test_what_pods_cannot_serve_is_withdrawn_when_its_time_is_over(
    status: CanaryStatus, hindrance: Hindrance, seconds: int
) -> None:
    waiting = next_status(status, Measured(), STABLE, NOON, hindrance)
    assert waiting.unsettled_since == "2026-06-01T12:00:00Z"
    assert seconds_until_given_up(waiting, hindrance, after(10)) == seconds - 10
    still = next_status(waiting, Measured(), STABLE, after(seconds - 1), hindrance)
    assert still.outcome is CanaryOutcome.PROGRESSING
    over = next_status(still, Measured(), STABLE, after(seconds), hindrance)
    assert (over.outcome, over.withdrawn, over.weight) == (CanaryOutcome.ROLLED_BACK, True, 0)
    assert over.message == (
        f"{status.weight} percent were not live on every pod within {seconds} s: {hindrance.message}"
    )
    assert next_status(over, FINE, STABLE, after(9_999), None) == over
    assert seconds_until_given_up(over, hindrance, NOON) is None


def test_a_refusal_that_comes_late_is_not_waited_for_again() -> None:
    waiting = next_status(CanaryStatus(PLAN), Measured(), STABLE, NOON, NOT_LIVE)
    assert next_status(waiting, Measured(), STABLE, after(31), REFUSED_BY_A_POD).withdrawn


@pytest.mark.parametrize("between", [None, NO_NODE], ids=["it was live", "a pod had no node"])
def test_the_time_begins_anew_after_what_is_not_the_canarys_fault(between: Hindrance | None) -> None:
    waiting = next_status(CanaryStatus(PLAN), Measured(), STABLE, NOON, NOT_LIVE)
    cleared = next_status(waiting, Measured(), STABLE, after(500), between)
    assert cleared.unsettled_since == ""
    again = next_status(cleared, Measured(), STABLE, after(601), NOT_LIVE)
    assert again.outcome is CanaryOutcome.PROGRESSING
    assert again.unsettled_since == "2026-06-01T12:10:01Z"


def test_a_step_does_not_end_while_a_pod_cannot_serve_it() -> None:
    held = next_status(begun(1), FINE, STABLE, after(61), NOT_LIVE)
    assert (held.step, held.message) == (1, "the weights are not live on every pod any more")
    assert next_status(held, FINE, STABLE, after(90), None).step == 2


def test_a_broken_rule_counts_while_a_pod_cannot_serve_it() -> None:
    broken = next_status(begun(1), Measured(200, 100, 10.0), STABLE, after(1), NOT_LIVE)
    assert (broken.outcome, broken.withdrawn) == (CanaryOutcome.ROLLED_BACK, False)


def test_pods_without_a_node_hold_no_canary_up_for_ever() -> None:
    assert next_status(begun(1), FINE, STABLE, after(60), NO_NODE).step == 2
