"""Dynamic batching as a pure decision: `handle(events, now)` answers with instructions.

The rules, in the order in which they apply:

* An idle engine takes a batch at once, unless the limits ask it to wait for more rows; then the batch
  leaves when it has enough, when the delay is over, or half-way to the earliest deadline in it.
* While the engine is busy, waiting requests gather. A batch that can grow no more is handed out ahead of
  time, so that its inputs are assembled while the engine works; one that still can grow stays.
* Among lanes, and inside a lane, the earliest deadline goes first; equal deadlines in order of arrival.
* A deadline counts from arrival to answer and is kept by the timer, not by the next batch.
* A batch that fails is run again request by request, so that one bad request cannot fail its neighbours.
"""

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

from mcp2026.runtime.batching.events import (
    BatchFailed,
    BatchFinished,
    DrainStarted,
    Event,
    Lane,
    RequestArrived,
    RequestCancelled,
    TimerFired,
)
from mcp2026.runtime.batching.instructions import (
    Answer,
    Expire,
    Fail,
    Instruction,
    Member,
    Refuse,
    RunBatch,
    SetTimer,
)
from mcp2026.runtime.batching.lane_queue import SLACK, LaneQueue, Request
from mcp2026.runtime.batching.limits import Limits


class Batcher:
    """Forms batches for one engine that executes them one after another.

    Every request that arrives gets exactly one of `Answer`, `Fail`, `Expire` and `Refuse`, unless it is
    cancelled first.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._requests: dict[int, Request] = {}
        self._lanes: dict[Lane, LaneQueue] = {}
        self._alone: deque[Request] = deque()
        self._batches: dict[int, tuple[tuple[Request, Member], ...]] = {}
        self._deadlines: list[tuple[int, int]] = []
        self._next_batch_id = 0
        self._timer: int | None = None
        self._draining = False
        self.queued_rows = 0
        self.queued_bytes = 0
        self._handlers: dict[type, Callable[[Any, int, list[Instruction]], None]] = {
            RequestArrived: self._arrived,
            RequestCancelled: self._cancelled,
            BatchFinished: self._finished,
            BatchFailed: self._failed,
            TimerFired: self._timer_fired,
            DrainStarted: self._drain_started,
        }

    @property
    def batches_out(self) -> int:
        """Batches that were handed out and have not come back."""
        return len(self._batches)

    def handle(self, *events: Event, now: int) -> list[Instruction]:
        """Take in events at the time `now` and return what to do, in order.

        Events given together are decided on together: requests that arrived in one round of an event loop
        share a batch although the first of them found the engine idle.
        """
        instructions: list[Instruction] = []
        for event in events:
            self._handlers[type(event)](event, now, instructions)
        self._expire(now, instructions)
        self._hand_out(now, instructions)
        self._arm(instructions)
        return instructions

    # --- events

    def _arrived(self, event: RequestArrived, now: int, out: list[Instruction]) -> None:
        limits = self._limits
        # A request that finds the queue empty is taken whatever its size: it could never be served else.
        if self.queued_rows and (
            self.queued_rows + event.rows > limits.max_queued_rows
            or self.queued_bytes + event.size > limits.max_queued_bytes
        ):
            out.append(Refuse(event.request_id))
            return
        half_way = now + (event.deadline - now) // 2
        request = Request(
            event.request_id,
            event.lane,
            event.rows,
            event.size,
            event.deadline,
            min(now + limits.max_delay_ns, half_way),
        )
        self._requests[event.request_id] = request
        heappush(self._deadlines, (event.deadline, event.request_id))
        queue = self._lanes.get(event.lane)
        if queue is None:
            queue = self._lanes[event.lane] = LaneQueue(event.lane)
        queue.add(request)
        self.queued_rows += request.rows
        self.queued_bytes += request.size

    def _cancelled(self, event: RequestCancelled, _now: int, _out: list[Instruction]) -> None:
        request = self._requests.get(event.request_id)
        if request is not None:
            self._forget(request)

    def _finished(self, event: BatchFinished, _now: int, out: list[Instruction]) -> None:
        members = []
        for request, member in self._batches.pop(event.batch_id):
            if self._requests.pop(request.request_id, None) is not None:
                members.append(member)
        out.append(Answer(event.batch_id, tuple(members)))

    def _failed(self, event: BatchFailed, _now: int, out: list[Instruction]) -> None:
        batch = self._batches.pop(event.batch_id)
        for request, _ in batch:
            if request.request_id not in self._requests:
                continue
            if len(batch) == 1:
                del self._requests[request.request_id]
                out.append(Fail(request.request_id, event.batch_id))
            else:
                request.batch_id = None
                request.alone = True
                self._alone.append(request)
                self.queued_rows += request.rows
                self.queued_bytes += request.size

    def _timer_fired(self, _event: TimerFired, _now: int, _out: list[Instruction]) -> None:
        self._timer = None

    def _drain_started(self, _event: DrainStarted, _now: int, _out: list[Instruction]) -> None:
        self._draining = True

    # --- after each event

    def _expire(self, now: int, out: list[Instruction]) -> None:
        """Give up on every request whose deadline has come, whether it waits or runs."""
        heap = self._deadlines
        while heap and heap[0][0] <= now:
            request = self._requests.get(heappop(heap)[1])
            if request is not None:
                self._forget(request)
                out.append(Expire(request.request_id))

    def _forget(self, request: Request) -> None:
        del self._requests[request.request_id]
        if request.batch_id is not None:
            return  # the batch goes on without anybody waiting for these rows
        if request.alone:
            self._alone.remove(request)
        else:
            queue = self._lanes[request.lane]
            queue.remove(request)
            if not queue:
                del self._lanes[request.lane]
        self.queued_rows -= request.rows
        self.queued_bytes -= request.size

    def _hand_out(self, now: int, out: list[Instruction]) -> None:
        while self._alone or self._lanes:
            if not self._batches and self._alone:
                self._run([self._alone.popleft()], out)
                continue
            if len(self._batches) > self._limits.batches_ahead:
                return
            leaves = self._leaves_idle_engine if not self._batches else self._is_full
            leaving = [queue for queue in self._lanes.values() if leaves(queue, now)]
            if not leaving:
                return
            queue = min(leaving, key=_urgency) if len(leaving) > 1 else leaving[0]
            batch = queue.take(self._limits.max_batch_rows)
            if not queue:
                del self._lanes[queue.lane]
            self._run(batch, out)

    def _leaves_idle_engine(self, queue: LaneQueue, now: int) -> bool:
        return (
            queue.rows >= self._limits.min_batch_rows
            or self._draining
            or not queue.lane.shared
            or queue.leave_by() <= now
        )

    def _is_full(self, queue: LaneQueue, _now: int) -> bool:
        return queue.rows >= self._limits.max_batch_rows or not queue.lane.shared

    def _run(self, batch: list[Request], out: list[Instruction]) -> None:
        batch_id = self._next_batch_id
        self._next_batch_id += 1
        rows = 0
        members = []
        for request in batch:
            members.append(Member(request.request_id, rows, request.rows))
            rows += request.rows
            request.batch_id = batch_id
            self.queued_bytes -= request.size
        self.queued_rows -= rows
        self._batches[batch_id] = tuple(zip(batch, members, strict=True))
        out.append(RunBatch(batch_id, batch[0].lane, tuple(members), rows))

    def _arm(self, out: list[Instruction]) -> None:
        """Ask for a timer if something is due before the one that is set."""
        heap = self._deadlines
        while heap and heap[0][1] not in self._requests:
            heappop(heap)
        if len(heap) > 2 * len(self._requests) + SLACK:
            self._deadlines = heap = [(request.deadline, key) for key, request in self._requests.items()]
            heapify(heap)
        due = heap[0][0] if heap else None
        if due is not None and self._lanes and not self._batches:
            due = min(due, *(queue.leave_by() for queue in self._lanes.values()))
        if due is not None and (self._timer is None or due < self._timer):
            self._timer = due
            out.append(SetTimer(due))


def _urgency(queue: LaneQueue) -> tuple[int, int]:
    head = queue.head()
    return head.deadline, head.request_id
