"""Work with a deadline: threads that hang are given up, counted, and found again when they return."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from mcp2026.device_plugin.adapters.nvml.deadlines import (
    AbandonedThreads,
    DeadlineCaller,
    HangingCallError,
    TooManyHangingError,
    Work,
)

SHORT_S, LONG_S = 0.02, 20.0


class Door:
    """Work that hangs until the door is opened."""

    def __init__(self) -> None:
        self._opened = threading.Event()

    def __call__(self) -> str:
        self._opened.wait()
        return "through"

    def open(self) -> None:
        self._opened.set()


@pytest.fixture
def doors() -> Iterator[Callable[[], Door]]:
    made: list[Door] = []

    def door() -> Door:
        made.append(Door())
        return made[-1]

    yield door
    for one in made:
        one.open()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.001)


def caller_of(name: str, most: int = 3) -> tuple[DeadlineCaller, AbandonedThreads]:
    abandoned = AbandonedThreads(most)
    return DeadlineCaller(name, abandoned), abandoned


def threads(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


def test_work_is_done_in_one_thread_and_not_in_the_callers() -> None:
    caller, _ = caller_of("one-thread")
    done_by = {caller.call("gpu", threading.get_ident, LONG_S) for _ in range(20)}
    assert len(done_by) == 1
    assert done_by != {threading.get_ident()}
    caller.close(int, LONG_S)


def test_what_the_work_raises_is_raised() -> None:
    caller, _ = caller_of("raises")
    with pytest.raises(ZeroDivisionError):
        caller.call("gpu", lambda: 1 // 0, LONG_S)
    assert caller.call("gpu", lambda: 7, LONG_S) == 7
    caller.close(int, LONG_S)


def test_a_call_that_hangs_names_its_subject_and_how_far_it_came(doors: Callable[[], Door]) -> None:
    caller, abandoned = caller_of("hangs")
    with pytest.raises(HangingCallError, match=r"GPU 3: nvmlX has not returned after \d") as error:
        caller.call("GPU 3", doors(), SHORT_S, lambda: "nvmlX")
    assert error.value.subject == "GPU 3"
    assert abandoned.count == 1


def test_the_subject_is_left_alone_and_others_are_not(doors: Callable[[], Door]) -> None:
    caller, abandoned = caller_of("left-alone")
    door = doors()
    with pytest.raises(HangingCallError):
        caller.call("GPU 3", door, SHORT_S)
    for _ in range(5):
        with pytest.raises(HangingCallError):
            caller.call("GPU 3", int, LONG_S)
        assert caller.call("GPU 4", lambda: 4, LONG_S) == 4
    assert abandoned.count == 1

    door.open()

    until(lambda: abandoned.count == 0)
    assert caller.call("GPU 3", lambda: 3, LONG_S) == 3
    caller.close(int, LONG_S)
    until(lambda: threads("left-alone") == 0)


def test_there_is_a_bound_for_all_callers_together(doors: Callable[[], Door]) -> None:
    abandoned = AbandonedThreads(3)
    first, second = DeadlineCaller("bound", abandoned), DeadlineCaller("bound", abandoned)
    all_doors = [doors() for _ in range(3)]
    for number, door in enumerate(all_doors):
        with pytest.raises(HangingCallError):
            first.call(f"GPU {number}", door, SHORT_S)
    with pytest.raises(TooManyHangingError, match="3 calls into the driver have not returned"):
        second.call("GPU 9", int, LONG_S)

    all_doors[1].open()
    until(lambda: abandoned.count == 2)
    assert second.call("GPU 9", lambda: 9, LONG_S) == 9


def test_closing_does_the_last_work_and_ends_the_thread() -> None:
    caller, _ = caller_of("closing")
    done: list[str] = []
    caller.call("gpu", int, LONG_S)
    caller.close(lambda: done.append("last"), LONG_S)
    assert done == ["last"]
    until(lambda: threads("closing") == 0)


def test_what_the_last_work_raises_is_dropped() -> None:
    caller, _ = caller_of("last-raises")
    caller.close(lambda: 1 // 0, LONG_S)
    until(lambda: threads("last-raises") == 0)


def test_last_work_that_hangs_is_not_waited_for(doors: Callable[[], Door]) -> None:
    caller, _ = caller_of("last-hangs")
    caller.close(doors(), SHORT_S)


def test_while_calls_hang_the_last_to_return_does_the_last_work(doors: Callable[[], Door]) -> None:
    caller, abandoned = caller_of("last-of-all")
    both = [doors(), doors()]
    for number, door in enumerate(both):
        with pytest.raises(HangingCallError):
            caller.call(f"GPU {number}", door, SHORT_S)
    caller.call("GPU 7", int, LONG_S)
    done: list[str] = []
    caller.close(lambda: done.append("last"), LONG_S)
    assert done == []

    both[1].open()
    until(lambda: abandoned.count == 1)
    assert done == []
    both[0].open()
    until(lambda: done == ["last"])
    until(lambda: threads("last-of-all") == 0)


def test_last_work_that_comes_during_a_call_follows_it_even_if_that_is_given_up(
    doors: Callable[[], Door],
) -> None:
    caller, abandoned = caller_of("during-a-call")
    door, done = doors(), threading.Event()
    entered = threading.Event()

    def work() -> str:
        entered.set()
        return door()

    def ask() -> None:
        with pytest.raises(HangingCallError):
            caller.call("gpu", work, 0.2)

    asking = threading.Thread(target=ask)
    asking.start()
    entered.wait()
    caller.close(done.set, SHORT_S)
    asking.join()
    assert not done.is_set()

    door.open()

    assert done.wait(LONG_S)
    until(lambda: threads("during-a-call") == 0 and abandoned.count == 0)


def test_a_caller_that_was_closed_can_be_used_again() -> None:
    caller, _ = caller_of("again")
    caller.close(int, LONG_S)
    assert caller.call("gpu", lambda: 5, LONG_S) == 5
    caller.close(int, LONG_S)


def of(caller: DeadlineCaller, works: dict[str, Callable[[], str]], timeout_s: float) -> dict[str, str]:
    """Do `works` with hardly any patience, and return what came of each."""
    said = {}
    for subject, outcome in caller.call_each(
        {subject: Work(work, lambda: "at work") for subject, work in works.items()}, timeout_s, 0.001
    ).items():
        try:
            said[subject] = outcome()
        except (HangingCallError, TooManyHangingError) as error:
            said[subject] = type(error).__name__
    return said


def test_many_that_hang_cost_one_deadline_and_the_next_one_is_asked_at_once(
    doors: Callable[[], Door],
) -> None:
    caller, abandoned = caller_of("many")
    asked = threading.Event()

    def sign() -> str:
        asked.set()
        return "through"

    works: dict[str, Callable[[], str]] = {"GPU 1": doors(), "GPU 2": doors(), "GPU 3": sign}
    said: dict[str, str] = {}
    asking = threading.Thread(target=lambda: said.update(of(caller, works, 1.0)))
    began = time.monotonic()
    asking.start()
    assert asked.wait(LONG_S)
    assert time.monotonic() - began < 1.0, "it was held up by those that hang"
    asking.join()
    assert time.monotonic() - began < 2 * 1.0, "the deadlines came one after the other"
    assert said == {"GPU 1": "HangingCallError", "GPU 2": "HangingCallError", "GPU 3": "through"}
    assert abandoned.count == 2
    assert of(caller, {"GPU 1": works["GPU 1"], "GPU 3": sign}, LONG_S)["GPU 1"] == "HangingCallError"


def test_slow_ones_are_waited_for_though_they_hold_up_nobody() -> None:
    caller, abandoned = caller_of("slow")

    def slow() -> str:
        time.sleep(0.05)
        return "through"

    works: dict[str, Callable[[], str]] = {f"GPU {number}": slow for number in range(8)}
    assert set(of(caller, works, LONG_S).values()) == {"through"}
    until(lambda: threads("slow") <= 1)
    assert abandoned.count == 0


def test_of_many_that_hang_no_more_threads_are_lost_than_may_be(doors: Callable[[], Door]) -> None:
    caller, abandoned = caller_of("most")
    made = [doors() for _ in range(5)]
    said = of(caller, {f"GPU {number}": door for number, door in enumerate(made)}, SHORT_S)
    assert list(said.values()) == ["HangingCallError"] * 3 + ["TooManyHangingError"] * 2
    for door in made:
        door.open()
    until(lambda: abandoned.count == 0)


def test_each_raises_what_its_work_raises() -> None:
    caller, _ = caller_of("each")

    def fail() -> str:
        raise ValueError("odd")

    outcomes = caller.call_each({"GPU 0": Work(fail), "GPU 1": Work(lambda: "through")}, LONG_S)
    with pytest.raises(ValueError, match="odd"):
        outcomes["GPU 0"]()
    assert outcomes["GPU 1"]() == "through"
