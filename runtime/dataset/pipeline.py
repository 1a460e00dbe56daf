"""Reading, running and writing of parts at the same time, each in a thread of its own.

Between two of them at most one part waits, so at most five are in memory.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from mcp2026.runtime.dataset.errors import StoppedError
from mcp2026.runtime.dataset.formats.interface import Results
from mcp2026.runtime.dataset.plan import Part
from mcp2026.runtime.dataset.rows import Rows
from mcp2026.runtime.dataset.stopping import Stop

_LOOK_S = 0.1
"""How often a thread that waits for another looks whether all are to stop."""

T = TypeVar("T")


class _Handover(Generic[T]):
    """Passes items from one thread to the next; ends with the run."""

    def __init__(self, ended: Callable[[], bool]) -> None:
        self._queue: queue.Queue[T | None] = queue.Queue(1)
        self._ended = ended

    def put(self, item: T | None) -> None:
        while True:
            try:
                return self._queue.put(item, timeout=_LOOK_S)
            except queue.Full:
                if self._ended():
                    raise StoppedError from None

    def take(self) -> T | None:
        while True:
            try:
                return self._queue.get(timeout=_LOOK_S)
            except queue.Empty:
                if self._ended():
                    raise StoppedError from None


class Pipeline:
    """One pass over some parts."""

    def __init__(
        self,
        read: Callable[[Part], Rows],
        run: Callable[[Rows], Results],
        write: Callable[[Part, Results], None],
        stop: Stop,
    ) -> None:
        self._read = read
        self._run = run
        self._write = write
        self._stop = stop
        self._failed = threading.Event()
        self._error: BaseException | None = None
        self._lock = threading.Lock()

    def go(self, parts: Sequence[Part]) -> None:
        """Do all parts in their order.

        Raises:
            StoppedError: it was told to stop; the part that was being written is written.
            Exception: what went wrong first in reading, running or writing. Parts that are not written then
                are dropped.

        """
        ready: _Handover[tuple[Part, Rows]] = _Handover(self._ended)
        done: _Handover[tuple[Part, Results]] = _Handover(self._ended)
        threads = [
            threading.Thread(
                target=self._guarded, args=(self._reading, parts, ready), name="reader", daemon=True
            ),
            threading.Thread(target=self._guarded, args=(self._writing, done), name="writer", daemon=True),
        ]
        for thread in threads:
            thread.start()
        self._guarded(self._running, ready, done)
        for thread in threads:
            thread.join()
        if self._error is not None:
            raise self._error

    def _reading(self, parts: Sequence[Part], ready: _Handover[tuple[Part, Rows]]) -> None:
        for part in parts:
            self._stop.check()
            ready.put((part, self._read(part)))
        ready.put(None)

    def _running(self, ready: _Handover[tuple[Part, Rows]], done: _Handover[tuple[Part, Results]]) -> None:
        while (item := ready.take()) is not None:
            part, rows = item
            done.put((part, self._run(rows)))
        done.put(None)

    def _writing(self, done: _Handover[tuple[Part, Results]]) -> None:
        while (item := done.take()) is not None:
            self._write(*item)

    def _guarded(self, work: Callable[..., None], *arguments: object) -> None:
        try:
            work(*arguments)
        except BaseException as error:  # raised again by `go`
            with self._lock:
                if self._error is None or isinstance(self._error, StoppedError):
                    self._error = error
            self._failed.set()

    def _ended(self) -> bool:
        return self._stop.is_set or self._failed.is_set()
