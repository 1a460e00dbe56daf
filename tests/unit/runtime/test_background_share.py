"""Work beside the traffic: how much of a busy processor is left to it, and in which pieces."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcp2026.api.time_slices import SHORTEST_NS, USUAL_NS, ask_for_slices
from mcp2026.runtime.execution.background_share import LOOK_EVERY_NS, SHARE, BackgroundShare, pause_ns
from mcp2026.runtime.model.loading_thread import QUIETER_BY, LoadingThread

MS = 1_000_000


@pytest.mark.parametrize(
    ("elapsed", "used", "since_last", "pause"),
    [
        (2 * MS, 0, 2 * MS, MS // 5),  # nothing yet: its tenth
        (2 * MS, MS // 10, 2 * MS, MS // 10),  # what is missing
        (20 * MS, 2 * MS, 2 * MS, 0),  # it has its tenth
        (20 * MS, 19 * MS, 2 * MS, 0),  # a core of its own
        (900 * MS, 0, 2 * MS, MS // 5),  # it waited for a disk: not all at once
        (40 * MS, 0, 40 * MS, 4 * MS),  # a long run: a long pause
        (60_000 * MS, 0, 60_000 * MS, 20 * MS),  # nothing ran for a minute: nobody waits for seconds
    ],
)
def test_a_pause_is_what_is_missing_but_no_more_than_the_share_of_the_last_piece_of_time(
    elapsed: int, used: int, since_last: int, pause: int
) -> None:
    assert pause_ns(elapsed, used, since_last) == pause


class Core:
    """A processor that requests keep busy: the work runs only while the others sleep, if it wants to."""

    def __init__(self, *, wants: bool) -> None:
        self.now = 0
        self.used = 0
        self.pauses: list[float] = []
        self._wants = wants
        self.share = BackgroundShare(lambda: self.now, self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += round(seconds * 1e9)
        self.used += round(seconds * 1e9) if self._wants else 0

    def serve(self, for_ns: int, run_ns: int) -> None:
        until = self.now + for_ns
        while self.now < until:
            self.now += run_ns
            self.share.step_aside()


@pytest.mark.parametrize("run_us", [20, 300, 1_900, 5_000, 80_000])
def test_work_on_a_busy_processor_gets_its_share_whatever_the_length_of_the_runs(run_us: int) -> None:
    core = Core(wants=True)
    with core.share.given(lambda: core.used):
        core.serve(1_000 * MS, run_us * 1_000)
    assert core.used / core.now == pytest.approx(SHARE, rel=0.15)
    assert max(core.pauses) <= SHARE * 1e-9 * (max(run_us * 1_000, 0) + LOOK_EVERY_NS)


def test_work_that_wants_nothing_costs_the_traffic_no_more_than_the_share() -> None:
    core = Core(wants=False)
    with core.share.given(lambda: core.used):
        core.serve(1_000 * MS, 20_000)
    assert 1e9 * sum(core.pauses) / core.now <= SHARE


def test_nobody_pauses_without_such_work_or_after_it() -> None:
    core = Core(wants=True)
    core.serve(100 * MS, 20_000)
    with core.share.given(lambda: core.used):
        assert core.share.wanted
        core.serve(100 * MS, 20_000)
    seen = len(core.pauses)
    assert seen
    assert not core.share.wanted
    core.serve(100 * MS, 20_000)
    assert len(core.pauses) == seen


def test_pythons_lock_changes_hands_sooner_while_there_is_such_work() -> None:
    usual = sys.getswitchinterval()
    share = BackgroundShare()

    def fail() -> None:
        with share.given(lambda: 0):
            assert sys.getswitchinterval() < usual
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert sys.getswitchinterval() == usual
    assert not share.wanted


def slice_ns() -> int:
    """Return the time slice of the calling thread as the kernel tells it."""
    lines = Path(f"/proc/self/task/{threading.get_native_id()}/sched").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("se.slice")).split(":")[1])


def knows_slices() -> bool:
    """Return whether this kernel takes slices, and tells them."""
    major, minor = map(int, os.uname().release.split(".")[:2])
    return (major, minor) >= (6, 12) and Path("/proc/self/sched").exists()


def priority() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


async def test_a_quiet_load_has_a_low_priority_and_another_load_the_usual_one() -> None:
    quiet = LoadingThread(BackgroundShare())
    assert [await quiet.run(priority) for _ in range(2)] == [min(19, priority() + QUIETER_BY)] * 2
    assert await LoadingThread().run(priority) == priority()


@pytest.mark.skipif(not knows_slices(), reason="Linux takes slices since 6.12")
async def test_a_quiet_load_has_longer_slices_than_the_threads_that_serve() -> None:
    def serve() -> int:
        ask_for_slices(SHORTEST_NS)
        return asyncio.run(LoadingThread(BackgroundShare()).run(slice_ns))

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(serve).result() > SHORTEST_NS


async def test_what_a_load_raises_is_raised_and_its_share_is_over() -> None:
    share = BackgroundShare()

    def fail() -> None:
        assert share.wanted
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await LoadingThread(share).run(fail)
    assert not share.wanted


async def test_a_load_that_hangs_keeps_no_later_one_from_its_share() -> None:
    share, hang, begun = BackgroundShare(), threading.Event(), threading.Event()
    loading = LoadingThread(share)

    def hanging() -> None:
        begun.set()
        hang.wait()

    first = asyncio.create_task(loading.run(hanging))
    await asyncio.to_thread(begun.wait)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not share.wanted  # a model that runs for ever takes no more from callers
    assert await loading.run(lambda: share.wanted)
    assert not share.wanted
    hang.set()


@pytest.mark.skipif(not knows_slices(), reason="Linux takes slices since 6.12")
def test_slices_are_what_was_asked_for_and_threads_inherit_them() -> None:
    def measure() -> tuple[int, int, int]:
        ask_for_slices(SHORTEST_NS)
        with ThreadPoolExecutor(1) as inner:
            inherited = inner.submit(slice_ns).result()
        short = slice_ns()
        ask_for_slices(USUAL_NS)
        return short, inherited, slice_ns()

    with ThreadPoolExecutor(1) as pool:
        short, inherited, usual = pool.submit(measure).result()
    assert short == inherited == SHORTEST_NS
    assert usual > SHORTEST_NS


async def test_what_a_load_uses_is_the_processor_time_of_its_thread() -> None:
    seen: list[Callable[[], int]] = []

    class Watched(BackgroundShare):
        @contextmanager
        def given(self, used_ns: Callable[[], int]) -> Iterator[None]:
            seen.append(used_ns)
            yield

    def burn() -> int:
        before, until = seen[0](), time.thread_time() + 0.02
        while time.thread_time() < until:
            pass
        return seen[0]() - before

    assert await LoadingThread(Watched()).run(burn) >= 0.02e9
