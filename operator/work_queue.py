"""A queue of keys to reconcile: each key once, by one worker at a time, later and later after failures.

The same contract as client-go's rate-limited work queue. A key that is added while a worker has it comes
again when that worker is done, so no change is missed and no two workers ever meet over one model.
"""

import asyncio
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a key waits after its n-th failure in a row: `first` seconds, doubling up to `most`."""

    first: float = 0.05
    most: float = 60.0

    def delay(self, failures: int) -> float:
        """Return the wait in seconds after `failures` failures in a row, 1 or more."""
        doublings = min(failures - 1, 62)  # beyond that a float has long passed any sensible `most`
        return min(self.first * 2.0**doublings, self.most)


class WorkQueue(Generic[Key]):
    """Keys that wait, and those that a worker has. For one event loop; not for threads."""

    def __init__(self, backoff: Backoff = Backoff()) -> None:
        self._backoff = backoff
        self._ready: deque[Key] = deque()
        self._waiting: set[Key] = set()
        self._taken: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._some_ready = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: Key) -> None:
        """Ask for `key` to be reconciled; asking again before it starts changes nothing."""
        if key in self._waiting:
            return
        self._waiting.add(key)
        if key not in self._taken:
            self._release(key)

    def add_after(self, key: Key, seconds: float) -> None:
        """Ask for `key` after `seconds`; of several such wishes the earliest counts."""
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        known = self._timers.get(key)
        if known is not None:
            if known.when() <= due:
                return
            known.cancel()
        self._timers[key] = loop.call_at(due, self._timer_fired, key)

    async def take(self) -> Key:
        """Wait for the next key and take it; `done` gives it back."""
        while not self._ready:
            self._some_ready.clear()
            await self._some_ready.wait()
        key = self._ready.popleft()
        self._waiting.discard(key)
        self._taken.add(key)
        return key

    def done(self, key: Key) -> None:
        """Give `key` back; if it was added meanwhile, it is next in line again."""
        self._taken.discard(key)
        if key in self._waiting:
            self._release(key)

    def failed(self, key: Key) -> float:
        """Count a failure of `key` and ask for it again after its backoff, which is returned in seconds."""
        self._failures[key] = self._failures.get(key, 0) + 1
        delay = self._backoff.delay(self._failures[key])
        self.add_after(key, delay)
        return delay

    def succeeded(self, key: Key) -> None:
        """Forget the failures of `key`."""
        self._failures.pop(key, None)

    def _timer_fired(self, key: Key) -> None:
        del self._timers[key]
        self.add(key)

    def _release(self, key: Key) -> None:
        self._ready.append(key)
        self._some_ready.set()
