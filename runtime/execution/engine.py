"""Threads that ask for work: some run batches, one assembles the inputs of batches that will run later.

Nothing is queued in front of a thread. What runs next is decided when a thread is free, so that it is the
most urgent there is then. ONNX Runtime and large copies release Python's lock, so the event loop goes on
reading and answering while a model runs.
"""

import threading
import time
from collections.abc import Callable
from typing import Protocol

from mcp2026.runtime.execution.background_share import BackgroundShare
from mcp2026.runtime.execution.job import Job


class WorkSource(Protocol):
    """Decides what runs. Called by one thread at a time, which holds the engine's lock."""

    def next_job(self, now: int) -> Job | None:
        """Return what a thread that is free at `now` is to run."""

    def look_again_at(self) -> int | None:
        """Return when `next_job`, which has just returned nothing, may return something by itself."""

    def next_ahead(self, now: int) -> Job | None:
        """Return a job whose inputs can be assembled before it is run."""

    def ran(self, job: Job) -> None:
        """Take back a job that has run."""


class Engine:
    """The threads, and the lock under which whoever shares the source's state must use it."""

    def __init__(self, source: WorkSource, share: BackgroundShare) -> None:
        self.lock = threading.Lock()
        self._source = source
        self._share = share
        self._work = threading.Condition(self.lock)
        self._ahead = threading.Condition(self.lock)
        self._threads: list[threading.Thread] = []
        self._executors = 0
        self._closing = False
        self.idle = 0
        """Threads that wait for work."""
        self._start("assembler", self._assemble)
        self.ensure(1)

    def ensure(self, executors: int) -> None:
        """Have at least so many threads that run batches. They are never fewer again."""
        while self._executors < executors:
            self._executors += 1
            self._start("engine", self._execute)

    def wake(self) -> None:
        """There may be work. The lock is held."""
        self._work.notify()

    def wake_assembler(self) -> None:
        """There may be something to assemble ahead. The lock is held."""
        self._ahead.notify()

    def close(self) -> None:
        """Finish what runs, then stop the threads."""
        with self.lock:
            self._closing = True
            self._work.notify_all()
            self._ahead.notify_all()
        for thread in self._threads:
            thread.join()

    def _start(self, name: str, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _execute(self) -> None:
        source = self._source
        ran: Job | None = None
        while True:
            with self.lock:
                if ran is not None:
                    source.ran(ran)
                job = self._next()
            if job is None:
                return
            job.run()
            ran = job
            if self._share.wanted:
                with self.lock:
                    source.ran(job)  # its callers need not wait for the pause
                ran = None
                self._share.step_aside()

    def _next(self) -> Job | None:
        """Wait for the next job; None when the engine closes and nothing is left to run."""
        source = self._source
        while True:
            now = time.monotonic_ns()
            job = source.next_job(now)
            if job is not None or self._closing:
                return job
            at = source.look_again_at()
            self.idle += 1
            self._work.wait(None if at is None else max(0, at - now) / 1e9)
            self.idle -= 1

    def _assemble(self) -> None:
        while True:
            with self.lock:
                while (job := self._source.next_ahead(time.monotonic_ns())) is None:
                    if self._closing:
                        return
                    self._ahead.wait()
            try:
                job.assemble()
            except Exception as error:
                del error  # whoever runs the job meets it again, and tells
