"""Calls that may never return: how does the caller go on all the same?

A call into the driver of a dead GPU can hang in the kernel, where no signal reaches it. So work is done by a
thread of its own. When it takes too long, the thread is abandoned and a new one takes its place; the subject
of the call (a GPU) is left alone until the old call returns after all. So each subject costs at most one
thread, and a process gives up at a bound.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

_Result = TypeVar("_Result")

MOST_ABANDONED = 8
"""Threads of this process that may hang in the driver at once."""
PATIENCE_S = 0.2
"""So long one subject holds up the next ones that are asked about along with it."""


class HangingCallError(Exception):
    """The call, or an earlier one about the same subject, takes longer than its deadline."""

    def __init__(self, subject: str, at: str, seconds: float) -> None:
        super().__init__(f"{subject}: {at} has not returned after {seconds:.3g} s")
        self.subject = subject
        self.at = at
        self.seconds = seconds


class TooManyHangingError(Exception):
    """So many threads hang that no call is begun any more."""

    def __init__(self, most: int) -> None:
        super().__init__(f"{most} calls into the driver have not returned")


class AbandonedThreads:
    """Counts the threads that hang, for all callers that share it."""

    def __init__(self, most: int = MOST_ABANDONED) -> None:
        self.most = most
        self.count = 0
        self._lock = threading.Lock()

    def add(self, number: int) -> None:
        """Count `number` more, or fewer."""
        with self._lock:
            self.count += number


ABANDONED_THREADS = AbandonedThreads()
"""Those of this process: a driver that is opened anew does not get new threads to lose."""


class _Task:
    __slots__ = ("_work", "at", "began", "done", "error", "result", "subject")

    def __init__(self, subject: str, work: Callable[[], Any], at: Callable[[], str]) -> None:
        self.subject = subject
        self._work = work
        self.at = at
        self.began = time.monotonic()
        self.done = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self._work()
        except BaseException as error:  # handed to the caller, whatever it is
            self.error = error

    def wait_until(self, seconds: float) -> None:
        """Wait until it is done, or `seconds` have gone since it began."""
        self.done.wait(max(0.0, self.began + seconds - time.monotonic()))

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result

    def hanging(self) -> HangingCallError:
        return HangingCallError(self.subject, self.at(), time.monotonic() - self.began)


class _Run:
    """Tasks that a thread does one after the other, until it is given up at `current`."""

    __slots__ = ("current", "done", "given_up", "queue", "tasks")

    def __init__(self, tasks: Sequence[_Task], queue: "_Queue") -> None:
        self.tasks = tasks
        self.queue = queue
        self.current: _Task | None = None
        self.given_up = False
        self.done = threading.Event()


_Queue = SimpleQueue[_Run | None]


class Work(NamedTuple):
    """A piece of work; `at` tells how far it has come."""

    do: Callable[[], Any]
    at: Callable[[], str] = str


class DeadlineCaller:
    """Does work in a daemon thread, one piece at a time, and waits no longer than it is told.

    What is asked about many subjects at once wakes the thread once, and the caller once when all is done.
    For one calling thread at a time; `close` may come from any.
    """

    def __init__(self, name: str, abandoned: AbandonedThreads = ABANDONED_THREADS) -> None:
        self._name = name
        self._abandoned = abandoned
        self._lock = threading.Lock()
        self._queue: _Queue | None = None
        self._hanging: dict[str, _Task] = {}
        self._closing: _Task | None = None

    def call(
        self, subject: str, work: Callable[[], _Result], timeout_s: float, at: Callable[[], str] = str
    ) -> _Result:
        """Return what `work` returns or raise what it raises; `at` tells how far it has come.

        Raises:
            HangingCallError: it takes longer than `timeout_s`, or an earlier call about `subject` still runs.
            TooManyHangingError: `MOST_ABANDONED` threads hang.

        """
        with self._lock:
            earlier = self._hanging.get(subject)
        if earlier is not None:
            raise earlier.hanging()
        task = _Task(subject, work, at)
        self._until_given_up(self._begin([task]), timeout_s)
        result: _Result = self._outcome(task)
        return result

    def call_each(
        self, works: Mapping[str, Work], timeout_s: float, patience_s: float = PATIENCE_S
    ) -> dict[str, Callable[[], Any]]:
        """Do `works`, by subject; return for each what returns or raises as `call` would.

        They are done one after the other, but one that takes longer than `patience_s` holds up the next no
        longer: it gets the rest of its `timeout_s` in the end, along with the others. So many that hang cost
        one deadline.
        """
        outcomes: dict[str, Callable[[], Any]] = {}
        left: list[_Task] = []
        slow: list[_Task] = []
        for subject, work in works.items():
            with self._lock:
                earlier = self._hanging.get(subject)
            if earlier is not None:
                outcomes[subject] = partial(_raise, earlier.hanging())
            else:
                left.append(_Task(subject, work.do, work.at))
                outcomes[subject] = partial(self._outcome, left[-1])
        while left:
            for task in slow if self._full() else ():
                task.wait_until(timeout_s)
            try:
                run = self._begin(left)
            except TooManyHangingError as error:
                outcomes |= {task.subject: partial(_raise, error) for task in left}
                break
            given_up = self._until_given_up(run, min(patience_s, timeout_s))
            if given_up is None:
                break
            slow.append(given_up)
            left = left[left.index(given_up) + 1 :]
        for task in slow:
            task.wait_until(timeout_s)
        return outcomes

    def _full(self) -> bool:
        return self._abandoned.count >= self._abandoned.most

    def _begin(self, tasks: Sequence[_Task]) -> _Run:
        with self._lock:
            if self._full():
                raise TooManyHangingError(self._abandoned.most)
            run = _Run(tasks, self._running_thread())
            run.queue.put(run)
            return run

    def _until_given_up(self, run: _Run, patience_s: float) -> _Task | None:
        """Wait until `run` is done, or a task of it takes longer than `patience_s`.

        Then its thread is given up, so that it ends when the call returns; return the task.
        """
        wait_s = patience_s
        while not run.done.wait(wait_s):
            with self._lock:
                task = run.current
                if task is None or task.done.is_set():  # the thread has not come to the next one yet
                    wait_s = patience_s
                    continue
                wait_s = task.began + patience_s - time.monotonic()
                if wait_s <= 0:
                    run.given_up = True
                    self._hanging[task.subject] = task
                    self._abandoned.add(1)
                    if self._queue is run.queue:
                        self._end_thread()
                    return task
        return None

    def _outcome(self, task: _Task) -> Any:
        with self._lock:
            if not task.done.is_set():
                raise task.hanging()
        return task.outcome()

    def close(self, last: Callable[[], object], timeout_s: float) -> None:
        """Do `last` in the thread, waiting at most `timeout_s`, and end it; what it raises is dropped.

        While calls hang, `last` is left to the thread that returns last.
        """
        task = _Task("", last, str)
        with self._lock:
            if self._hanging:
                self._closing = task
                task.done.set()
                if self._queue is None:
                    return
            else:
                queue = self._running_thread()
                queue.put(_Run([task], queue))
            self._end_thread()
        task.done.wait(timeout_s)

    def _running_thread(self) -> _Queue:
        if self._queue is None:
            self._queue = SimpleQueue()
            threading.Thread(target=self._work_off, args=(self._queue,), name=self._name, daemon=True).start()
        return self._queue

    def _end_thread(self) -> None:
        if self._queue is not None:
            self._queue.put(None)
            self._queue = None

    def _work_off(self, queue: _Queue) -> None:
        while (run := queue.get()) is not None:
            for task in run.tasks:
                if not self._goes_on(run, task):
                    break
                task.run()
                self._finish(task)
            run.done.set()

    def _goes_on(self, run: _Run, task: _Task) -> bool:
        with self._lock:
            if not run.given_up:
                run.current, task.began = task, time.monotonic()
            return not run.given_up

    def _finish(self, task: _Task) -> None:
        with self._lock:
            task.done.set()
            if self._hanging.get(task.subject) is not task:
                return
            del self._hanging[task.subject]
            self._abandoned.add(-1)
            last = None if self._hanging else self._closing
        if last is not None:
            last.run()


def _raise(error: Exception) -> Any:
    raise error
