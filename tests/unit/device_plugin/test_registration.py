"""When the plugin registers with the kubelet, decided without any socket."""

from itertools import pairwise

import pytest

from mcp2026.device_plugin.registration import (
    FIRST_RETRY_S,
    LAST_RETRY_S,
    STREAMLESS_S,
    Observation,
    Registration,
    Step,
)

FIRST, SECOND = (1, 10, 100), (1, 10, 200)
"""Two sockets that got the same inode one after the other."""


def seen(kubelet: tuple[int, int, int] | None = FIRST, own: bool = True, streams: int = 1) -> Observation:
    return Observation(kubelet, own, streams)


def registered(at: float = 0.0) -> Registration:
    registration = Registration()
    registration.succeeded(FIRST, at)
    return registration


@pytest.mark.parametrize(
    ("observed", "step"),
    [
        pytest.param(seen(None, own=False, streams=0), Step.NOTHING, id="no kubelet: wait"),
        pytest.param(
            seen(own=False, streams=0), Step.SERVE_AND_REGISTER, id="a kubelet and no socket: serve first"
        ),
        pytest.param(seen(streams=0), Step.REGISTER, id="a kubelet and our socket: register"),
    ],
)
def test_the_first_step(observed: Observation, step: Step) -> None:
    assert Registration().next_step(observed, 0.0) is step


@pytest.mark.parametrize(
    ("observed", "step"),
    [
        pytest.param(seen(), Step.NOTHING, id="all as it was: nothing"),
        pytest.param(seen(SECOND), Step.REGISTER, id="a new kubelet in the same inode: register"),
        pytest.param(
            seen(SECOND, own=False), Step.SERVE_AND_REGISTER, id="a kubelet that wiped: serve and register"
        ),
        pytest.param(
            seen(own=False), Step.SERVE_AND_REGISTER, id="only our socket is gone: serve and register"
        ),
        pytest.param(seen(None), Step.NOTHING, id="the kubelet is gone: wait"),
    ],
)
def test_what_follows_a_registration(observed: Observation, step: Step) -> None:
    assert registered().next_step(observed, 1.0) is step


def test_a_kubelet_that_goes_is_registered_with_when_it_comes_back_with_the_same_socket() -> None:
    registration = registered()
    registration.next_step(seen(None), 1.0)
    assert not registration.registered
    assert registration.next_step(seen(streams=0), 2.0) is Step.REGISTER


def test_a_kubelet_may_take_its_time_to_watch_and_is_then_told_again() -> None:
    registration = registered(at=5.0)
    assert registration.next_step(seen(streams=0), 5.0 + STREAMLESS_S) is Step.NOTHING
    assert registration.next_step(seen(streams=0), 5.1 + STREAMLESS_S) is Step.REGISTER
    registration.succeeded(FIRST, 16.0)
    assert registration.next_step(seen(streams=0), 17.0) is Step.NOTHING


def test_a_stream_that_ends_late_is_missed_only_from_then_on() -> None:
    registration = registered()
    registration.next_step(seen(streams=1), 100.0)
    assert registration.next_step(seen(streams=0), 400.0) is Step.NOTHING
    wait = registration.wait_s(400.0, longest=60.0)
    assert wait == pytest.approx(STREAMLESS_S, abs=0.1)
    assert registration.next_step(seen(streams=0), 399.9 + STREAMLESS_S) is Step.NOTHING
    assert registration.next_step(seen(streams=0), 400.0 + wait) is Step.REGISTER


def test_while_all_is_as_it_should_be_it_waits_as_long_as_it_may() -> None:
    registration = registered()
    assert registration.next_step(seen(), 1.0) is Step.NOTHING
    assert registration.wait_s(1.0, longest=60.0) == 60.0


def test_a_failed_try_is_made_again_later_each_time_and_the_wait_is_told() -> None:
    registration, now, waits = Registration(), 0.0, []
    for _ in range(13):
        assert registration.next_step(seen(streams=0), now) is Step.REGISTER
        registration.failed(FIRST, now)
        wait = registration.wait_s(now, longest=60.0)
        assert registration.next_step(seen(streams=0), now + 0.9 * wait) is Step.NOTHING
        assert registration.wait_s(now, longest=0.001) == 0.001
        waits.append(wait)
        now += wait
    assert waits[0] == FIRST_RETRY_S
    assert waits[-1] == pytest.approx(LAST_RETRY_S)
    for earlier, later in pairwise(waits):
        assert later == pytest.approx(min(2 * earlier, LAST_RETRY_S))
    assert registration.wait_s(now, longest=60.0) == 60.0


def test_a_new_kubelet_is_tried_at_once_whatever_the_old_one_refused() -> None:
    registration = Registration()
    for _ in range(8):
        registration.failed(FIRST, 0.0)
    assert registration.next_step(seen(streams=0), 1.0) is Step.NOTHING
    assert registration.next_step(seen(SECOND, streams=0), 1.0) is Step.REGISTER


def test_a_success_forgets_the_failures_before() -> None:
    registration = Registration()
    for _ in range(8):
        registration.failed(FIRST, 0.0)
    registration.succeeded(FIRST, 20.0)
    registration.failed(FIRST, 30.0)
    assert registration.next_step(seen(streams=0), 30.3) is Step.REGISTER
