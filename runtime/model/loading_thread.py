"""A thread for loads. One that hangs on a disk can be stopped by nobody: it is left behind, and another made.

Beside the traffic it is quiet: it gets short turns of a processor that is busy (decision 0123).
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from mcp2026.api.time_slices import USUAL_NS, ask_for_slices
from mcp2026.runtime.execution.background_share import BackgroundShare

QUIETER_BY: Final = 15
"""Levels of niceness: a thirtieth of what a thread that serves gets, if both want one core (sched(7)).

That is less than the share that threads which serve leave to it by stepping aside, so the kernel never owes
it a turn of its own, which would last until the next tick.
"""
_LAST_LEVEL: Final = 19

T = TypeVar("T")


class LoadingThread:
    """Runs one load after another; with a share it is quiet, and gets that.

    Threads that are started by quiet work are as quiet as it is, for ever: to raise a priority takes a right
    that servers do not have.
    """

    def __init__(self, share: BackgroundShare | None = None) -> None:
        self._share = share
        self._pool = self._new_pool()

    async def run(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, or raise what it raises.

        Whoever is cancelled meanwhile leaves the thread to it, for as long as it takes.
        """
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._pool, self._run, work)
        except asyncio.CancelledError:
            self._pool.shutdown(wait=False)
            self._pool = self._new_pool()
            if self._share is not None:
                self._share.take_back()
            raise

    def _new_pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "loading", initializer=None if self._share is None else _be_quiet)

    def _run(self, work: Callable[[], T]) -> T:
        if self._share is None:
            return work()
        clock = time.pthread_getcpuclockid(threading.get_ident())
        with self._share.given(lambda: time.clock_gettime_ns(clock)):
            return work()


def _be_quiet() -> None:
    thread = threading.get_native_id()
    level = os.getpriority(os.PRIO_PROCESS, thread) + QUIETER_BY
    os.setpriority(os.PRIO_PROCESS, thread, min(level, _LAST_LEVEL))
    ask_for_slices(USUAL_NS)  # those of the threads that serve are shorter, so they interrupt this one
