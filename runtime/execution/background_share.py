"""A part of a busy processor for work beside the traffic, in turns too short to be felt (decision 0123).

The kernel lets a thread of low priority run until the next tick of its clock, some milliseconds, because a
thread that is always ready to run interrupts nobody; one that wakes up does. So whoever runs batches sleeps
for a moment now and then while there is such work.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

SHARE: Final = 0.1
"""Of the processor's time, for the work beside the traffic; the rest is for requests."""
LOOK_EVERY_NS: Final = 2_000_000
"""Least time between two looks at how far the work is behind."""
LONGEST_PAUSE_NS: Final = 20_000_000
"""However long nothing ran: a load that waits for its disk must hold nobody up."""
_LOCK_TURN_S: Final = 0.0005
"""After which a thread that waits for Python's lock asks for it, while there is such work. Usually it is ten
times as long, and the thread that has the lock may be one that was interrupted."""


@dataclass(frozen=True, slots=True)
class _Work:
    began_ns: int
    used_before_ns: int
    used_ns: Callable[[], int]


def pause_ns(elapsed_ns: int, used_ns: int, since_last_ns: int) -> int:
    """Return for how long to sleep so that the work gets its share.

    Args:
        elapsed_ns: since the work began.
        used_ns: time of the processor that it got.
        since_last_ns: since the last look. The pause is at most the work's share of it: what the work missed
            while it waited for a disk, say, it does not get in one piece.

    """
    behind = int(SHARE * elapsed_ns) - used_ns
    return max(0, min(behind, int(SHARE * since_last_ns), LONGEST_PAUSE_NS))


class BackgroundShare:
    """Lets one piece of work at a time have its share: the newest, for an older one may hang."""

    def __init__(
        self,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock_ns = clock_ns
        self._sleep = sleep
        self._usual_turn_s = sys.getswitchinterval()
        self._work: _Work | None = None
        self._looked_ns = 0

    @contextmanager
    def given(self, used_ns: Callable[[], int]) -> Iterator[None]:
        """Give the share to work that has used `used_ns` of processor time, as long as the block lasts."""
        self._work = work = _Work(self._clock_ns(), used_ns(), used_ns)
        sys.setswitchinterval(min(self._usual_turn_s, _LOCK_TURN_S))
        try:
            yield
        finally:
            if self._work is work:
                self.take_back()

    def take_back(self) -> None:
        """Give nothing any more to work that goes on: nobody waits for it."""
        self._work = None
        sys.setswitchinterval(self._usual_turn_s)

    @property
    def wanted(self) -> bool:
        """Whether there is such work."""
        return self._work is not None

    def step_aside(self) -> None:
        """Sleep if there is such work and it is behind. For threads that have just run a batch."""
        work = self._work
        if work is None:
            return
        now = self._clock_ns()
        last = max(self._looked_ns, work.began_ns)
        if now - last < LOOK_EVERY_NS:
            return
        pause = pause_ns(now - work.began_ns, work.used_ns() - work.used_before_ns, now - last)
        if pause > 0:
            self._sleep(pause / 1e9)
        self._looked_ns = self._clock_ns()
