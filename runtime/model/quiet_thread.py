"""A thread for work that must not be felt by callers: it gets the processor when others leave it alone."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

QUIETER_BY = 8
"""Levels of niceness: a sixth of what a thread that serves gets, if both want one core (sched(7)).

With 6, loads took so much of a busy core that p99 rose by half; with 10, a load took three times as long.
"""
_LAST_LEVEL = 19

T = TypeVar("T")


class QuietThread:
    """Runs one piece of work after another, with low priority.

    Threads that are started by such work are as quiet as it is, for ever: to raise a priority takes a right
    that servers do not have.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "quiet", initializer=_lower_priority)

    def run(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, or raise what it raises. Blocks."""
        return self._pool.submit(work).result()


def _lower_priority() -> None:
    level = os.getpriority(os.PRIO_PROCESS, 0) + QUIETER_BY
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(level, _LAST_LEVEL))
