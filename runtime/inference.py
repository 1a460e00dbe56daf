"""The data plane: a validated request goes in, exactly one outcome comes out.

Here the batcher's decisions meet the clock, the timer and the engine. Knows nothing of any protocol.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from mcp2026.api.serving import Batching
from mcp2026.runtime.batching import (
    Answer,
    Batcher,
    BatchFailed,
    BatchFinished,
    DrainStarted,
    Event,
    Expire,
    Fail,
    Instruction,
    Lane,
    Refuse,
    RequestArrived,
    RequestCancelled,
    RunBatch,
    SetTimer,
    TimerFired,
)
from mcp2026.runtime.batching.limits import limits_of
from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.execution.engine import Engine, Job
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.metrics.runtime_metrics import RuntimeMetrics
from mcp2026.runtime.model.loaded import LoadedVersion, ServedModel

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Call:
    """One inference that a caller waits for."""

    version: LoadedVersion
    inputs: tuple[Array, ...]
    rows: int
    arrived_ns: int
    timeout_ns: int
    encode: Callable[[list[Array]], Callable[[], None]]
    """Makes the answer of the outputs, which are valid only during the call, and returns what sends it."""
    fail: Callable[[RequestError], None]
    priority: int = 0
    """1 is served first; 0 is the model's default."""
    tenant: str = ""
    """From the request's label; empty if it has none."""

    def lane(self) -> Lane:
        """Return what it may be batched with."""
        shared = self.version.signature.shared
        shapes = tuple(array.shape[1:] if shared else array.shape for array in self.inputs)
        return Lane(self.version.version_id, shapes, shared)


class InferenceService:
    """Takes calls on the event loop and settles each exactly once, unless it is cancelled first."""

    def __init__(
        self,
        max_queued_rows: int,
        max_queued_bytes: int,
        metrics: RuntimeMetrics,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Let at most `max_queued_rows` rows with `max_queued_bytes` bytes of inputs wait."""
        self._loop = loop
        self._metrics = metrics
        self._queue_limits = (max_queued_rows, max_queued_bytes)
        self._batcher = Batcher(limits_of(Batching(), *self._queue_limits))
        self._engine = Engine(self._job_ran)
        self._calls: dict[int, Call] = {}
        self._jobs: dict[int, Job] = {}
        self._events: list[Event] = []
        """Taken in during this round of the event loop, not yet given to the batcher."""
        self._next_id = 0
        self._timer: asyncio.TimerHandle | None = None

    def serve(self, model: ServedModel) -> None:
        """Take calls for `model` from now on, by its configuration."""
        self._batcher = Batcher(limits_of(model.config.batching, *self._queue_limits))

    def retire(self, model: str) -> None:
        """Expect no more calls for `model`; those that were taken in are served."""

    def submit(self, call: Call) -> Callable[[], None]:
        """Take in `call`; the returned function cancels it and may be called at any time.

        Calls of one round of the event loop are handed to the batcher together.
        """
        request_id = self._next_id
        self._next_id += 1
        self._calls[request_id] = call
        size = sum(array.nbytes for array in call.inputs)
        deadline = call.arrived_ns + call.timeout_ns
        self._later(RequestArrived(request_id, call.lane(), call.rows, size, deadline))
        return lambda: self._cancel(request_id)

    def drain(self) -> None:
        """Let no batch wait for company any more."""
        self._handle(DrainStarted())

    def abandon(self) -> None:
        """Answer whatever still waits with an error: the time for draining is over."""
        for request_id in list(self._calls):
            if request_id not in self._calls:
                continue  # expired while its neighbours were told
            self._handle(RequestCancelled(request_id))
            self._fail(request_id, ErrorCode.DRAINING, "this server is shutting down; try another one")

    def close(self) -> None:
        """Wait for the engine to finish what it runs, and end its threads."""
        self._engine.close()

    def _cancel(self, request_id: int) -> None:
        call = self._calls.pop(request_id, None)
        if call is not None:
            call.version.metrics.cancelled()
            self._later(RequestCancelled(request_id))

    def _job_ran(self, job: Job) -> None:
        """Bring `job` from the engine's thread to the event loop."""
        self._loop.call_soon_threadsafe(self._job_done, job)

    def _job_done(self, job: Job) -> None:
        version = job.version
        run_ns = max(0, job.finished_ns - job.started_ns) if job.started_ns else 0
        version.metrics.executed(job.rows, job.requests, 0, run_ns, cache_hit=version.tensors.misses == 0)
        event = BatchFinished(job.batch_id) if job.error is None else BatchFailed(job.batch_id)
        try:
            self._handle(event)
        finally:
            del self._jobs[job.batch_id]
            job.release()

    def _later(self, event: Event) -> None:
        if not self._events:
            self._loop.call_soon(self._handle)
        self._events.append(event)

    def _handle(self, *latest: Event) -> None:
        events, self._events = (*self._events, *latest), []
        for instruction in self._batcher.handle(*events, now=time.monotonic_ns()):
            self._follow(instruction)
        self._metrics.load(self._batcher.queued_rows, len(self._calls))

    def _follow(self, instruction: Instruction) -> None:
        match instruction:
            case RunBatch():
                self._run(instruction)
            case Answer():
                self._answer(instruction)
            case SetTimer(at):
                if self._timer is not None:
                    self._timer.cancel()
                delay = max(0, at - time.monotonic_ns()) / 1e9
                self._timer = self._loop.call_later(delay, self._handle, TimerFired())
            case Fail(request_id, batch_id):
                error = self._jobs[batch_id].error
                self._fail(request_id, ErrorCode.EXECUTION_FAILED, f"the model failed: {error}"[:1_000])
            case Expire(request_id):
                self._fail(request_id, ErrorCode.DEADLINE_EXCEEDED, "no answer within the time allowed")
            case Refuse(request_id):
                self._fail(
                    request_id, ErrorCode.QUEUE_FULL, "too many requests wait already; try again later"
                )
            case _:
                assert_never(instruction)

    def _run(self, batch: RunBatch) -> None:
        calls = [self._calls[member.request_id] for member in batch.members]
        version = calls[0].version
        parts = [call.inputs for call in calls]
        job = Job(batch.batch_id, version, batch.lane.shapes, parts, batch.rows)
        busy = bool(self._jobs)
        self._jobs[batch.batch_id] = job
        self._engine.submit(job, engine_is_busy=busy)

    def _answer(self, answer: Answer) -> None:
        job = self._jobs[answer.batch_id]
        shared = job.version.signature.shared
        for member in answer.members:
            call = self._calls.pop(member.request_id)
            end = member.first_row + member.rows
            outputs = [array[member.first_row : end] for array in job.outputs] if shared else job.outputs
            call.version.metrics.queued(job.started_ns - call.arrived_ns)
            try:
                send = call.encode(outputs)
            except RequestError as error:  # the caller wants the answer where or how it cannot be
                call.version.metrics.failed(error.code)
                call.fail(error)
            except Exception:  # one answer that cannot be written must not cost the others theirs
                log.exception("an answer could not be encoded")
                call.version.metrics.failed(ErrorCode.INTERNAL)
                call.fail(RequestError(ErrorCode.INTERNAL, "the answer could not be encoded"))
            else:
                # Counted first: a caller who has its answer finds it in the metrics.
                call.version.metrics.answered(time.monotonic_ns() - call.arrived_ns)
                send()

    def _fail(self, request_id: int, code: ErrorCode, message: str) -> None:
        call = self._calls.pop(request_id)
        call.version.metrics.failed(code)
        call.fail(RequestError(code, message))
