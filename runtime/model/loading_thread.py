"""Threads for loads: each has its own, since one that hangs on a disk can be stopped by nobody.

Beside the traffic they are quiet: they get short turns of a processor that is busy (decision 0123).
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from mcp2026.runtime.execution.background_share import BackgroundShare
from mcp2026.runtime.execution.time_slices import USUAL_NS, ask_for_slices

QUIETER_BY: Final = 15
"""Levels of niceness: a thirtieth of what a thread that serves gets, if both want one core (sched(7)).

That is less than the share that threads which serve leave to it by stepping aside, so the kernel never owes
it a turn of its own, which would last until the next tick.
"""
_LAST_LEVEL: Final = 19

T = TypeVar("T")


async def in_thread(work: Callable[[], T], share: BackgroundShare | None = None) -> T:
    """Return the result of `work`, or raise what it raises; with `share` it is quiet, and gets that.

    Threads that are started by quiet work are as quiet as it is, for ever: to raise a priority takes a right
    that servers do not have. Whoever is cancelled while waiting leaves the thread behind.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            tell = partial(_succeed, outcome, work() if share is None else _quietly(work, share))
        except BaseException as error:
            tell = partial(_fail, outcome, error)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(tell)

    threading.Thread(target=run, name="loading", daemon=True).start()
    try:
        return await outcome
    except asyncio.CancelledError:
        if share is not None:
            share.take_back()
        raise


def _quietly(work: Callable[[], T], share: BackgroundShare) -> T:
    thread = threading.get_native_id()
    level = os.getpriority(os.PRIO_PROCESS, thread) + QUIETER_BY
    os.setpriority(os.PRIO_PROCESS, thread, min(level, _LAST_LEVEL))
    ask_for_slices(USUAL_NS)  # those of the threads that serve are shorter, so they interrupt this one
    clock = time.pthread_getcpuclockid(threading.get_ident())
    with share.given(lambda: time.clock_gettime_ns(clock)):
        return work()


def _succeed(outcome: "asyncio.Future[T]", result: T) -> None:
    if not outcome.done():
        outcome.set_result(result)


def _fail(outcome: "asyncio.Future[T]", error: BaseException) -> None:
    if not outcome.done():
        outcome.set_exception(error)
