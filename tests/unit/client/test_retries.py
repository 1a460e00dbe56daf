"""A retry is made only if it is safe, in time, and within the budget of all calls."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp2026.client.errors import (
    ClientError,
    ConnectionFailedError,
    DeadlineExceededError,
    OverloadedError,
    Retry,
    ServerError,
)
from mcp2026.client.retries import Attempts, RetryBudget, RetryPolicy


def failed(retry: Retry) -> ConnectionFailedError:
    return ConnectionFailedError("broken", retry)


def overloaded(seconds: float) -> OverloadedError:
    error = OverloadedError("full", seconds)
    error.retry = Retry.ALWAYS
    return error


def attempts(
    policy: RetryPolicy | None = None,
    *,
    budget: RetryBudget | None = None,
    timeout: float = 10.0,
    idempotent: bool = True,
    random: float = 1.0,
) -> Attempts:
    return Attempts(
        policy or RetryPolicy(),
        budget or RetryBudget(0.2, 10),
        timeout,
        100.0,
        idempotent=idempotent,
        random=lambda: random,
    )


@pytest.mark.parametrize(
    ("error", "idempotent", "again"),
    [
        (failed(Retry.ALWAYS), True, True),
        (failed(Retry.ALWAYS), False, True),
        (failed(Retry.IF_IDEMPOTENT), True, True),
        (failed(Retry.IF_IDEMPOTENT), False, False),
        (failed(Retry.NEVER), True, False),
        (ServerError("no"), True, False),
        (OverloadedError("full"), True, False),
        (overloaded(1), True, True),
        (DeadlineExceededError("late"), True, False),
    ],
)
def test_only_what_is_safe_is_tried_again(error: ClientError, idempotent: bool, again: bool) -> None:
    call = attempts(idempotent=idempotent)
    if again:
        assert call.pause_after(error, 100.0) >= 0
    else:
        with pytest.raises(type(error)) as raised:
            call.pause_after(error, 100.0)
        assert raised.value is error


def test_pauses_double_up_to_the_longest_and_end_with_the_attempts() -> None:
    call = attempts(RetryPolicy(attempts=6, first_pause=0.1, longest_pause=0.5))
    assert [call.pause_after(failed(Retry.ALWAYS), 100.0) for _ in range(5)] == pytest.approx(
        [0.1, 0.2, 0.4, 0.5, 0.5]
    )
    with pytest.raises(ConnectionFailedError):
        call.pause_after(failed(Retry.ALWAYS), 100.0)


def test_pauses_differ_between_callers() -> None:
    assert attempts(random=0.25).pause_after(failed(Retry.ALWAYS), 100.0) == pytest.approx(0.0125)


def test_a_server_that_asks_for_a_pause_gets_it_and_some_jitter() -> None:
    assert attempts(random=0.5).pause_after(overloaded(2), 100.0) == pytest.approx(2.025)


@pytest.mark.parametrize("now", [108.0, 109.0, 111.0])
def test_no_pause_reaches_past_the_deadline(now: float) -> None:
    with pytest.raises(OverloadedError):
        attempts().pause_after(overloaded(2), now)


@pytest.mark.parametrize(
    ("error", "now", "kind"),
    [
        (OverloadedError("no answer within 10000 ms"), 110.0, DeadlineExceededError),
        (OverloadedError("no answer within 10000 ms"), 109.9, OverloadedError),
        (overloaded(0), 110.0, OverloadedError),
        (ServerError("no"), 110.0, ServerError),
    ],
)
def test_a_server_that_gives_up_after_the_timeout_tells_of_that_and_not_of_its_load(
    error: ClientError, now: float, kind: type[ClientError]
) -> None:
    with pytest.raises(ClientError) as raised:
        attempts().pause_after(error, now)
    assert type(raised.value) is kind


@pytest.mark.parametrize(("now", "told"), [(100.0, 10.0), (100.05, 10.0), (100.2, 9.8), (109.5, 0.5)])
def test_the_server_is_told_the_time_that_is_left(now: float, told: float) -> None:
    assert attempts().timeout_to_send(now) == pytest.approx(told)


def test_without_time_left_nothing_is_sent() -> None:
    with pytest.raises(DeadlineExceededError, match="no answer within 10 s"):
        attempts().timeout_to_send(110.0)


@given(
    st.floats(0, 1),
    st.integers(0, 20),
    st.lists(st.integers(0, 5), max_size=200),
)
def test_no_stretch_of_calls_has_more_retries_than_the_budget_allows(
    ratio: float, reserve: int, wanted: list[int]
) -> None:
    budget = RetryBudget(ratio, reserve)
    made = []
    for wishes in wanted:
        budget.call_begins()
        made.append(sum(budget.take() for _ in range(wishes)))
    for start in range(len(made)):
        stretch = made[start:]
        assert sum(stretch) <= max(reserve, 1) + ratio * len(stretch) + 1e-6


def test_a_server_that_always_fails_gets_a_fifth_more_requests() -> None:
    budget = RetryBudget(0.2, 10)
    retries = 0
    for _ in range(1_000):
        call = attempts(budget=budget)
        try:
            while True:
                call.pause_after(failed(Retry.ALWAYS), 100.0)
                retries += 1
        except ConnectionFailedError:
            pass
    assert 200 <= retries <= 210


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": 0},
        {"first_pause": -1},
        {"first_pause": 2, "longest_pause": 1},
        {"budget_ratio": 1.5},
        {"budget_reserve": -1},
    ],
)
def test_a_policy_out_of_range_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RetryPolicy(**wrong)  # type: ignore[arg-type]
