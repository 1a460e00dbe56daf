"""The data plane: a validated request goes in, exactly one outcome comes out.

Here the scheduler's decisions meet the clock, the timer and the threads. Knows nothing of any protocol.

The scheduler is used by the event loop and by the engine's threads, always under the engine's lock: a
thread that is free asks for the next batch itself. Everything that a caller is told is told on the event
loop: there each request is settled, once.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

import msgspec
import numpy as np

from mcp2026.api.batching_negotiation import NegotiatedBatching
from mcp2026.api.scheduling_context import SchedulingContext
from mcp2026.api.serving import ServingConfig, same_scheduling
from mcp2026.runtime.batching import Batch, Lane, Model, ModelPolicy, Part, ProcessLimits, Request, Scheduler
from mcp2026.runtime.batching.policy import NANOSECONDS_PER_MS
from mcp2026.runtime.context.observer import RequestObserver, plain_observer
from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.execution.background_share import BackgroundShare
from mcp2026.runtime.execution.engine import Engine
from mcp2026.runtime.execution.job import Job
from mcp2026.runtime.execution.tensor_cache import Array, Shapes
from mcp2026.runtime.metrics.runtime_metrics import RuntimeMetrics
from mcp2026.runtime.model.loaded import LoadedVersion, ServedModel
from mcp2026.runtime.model.signature import STRING
from mcp2026.runtime.queue_shares import share_of_worker
from mcp2026.runtime.refusals import queue_is_full, time_is_over

log = logging.getLogger(__name__)

MAX_LANES = 512
"""Of one version; beyond this, lanes in which nothing waits are forgotten with what they have learned."""
ASSEMBLE_AHEAD_BYTES = 256 * 1024
"""Smaller batches are gathered by who runs them: the copy is cheaper than waking a second thread."""
NEVER = 1 << 62


class Carried(msgspec.Struct, eq=False, kw_only=True):
    """What comes with a request besides what it asks."""

    context: SchedulingContext | None = None
    """None if it came with nothing; one that fails has one by then."""
    batching: NegotiatedBatching | None = None
    """What its caller has agreed to; None: nothing."""


class Call(Carried, eq=False):
    """One inference that a caller waits for; every protocol says how it is answered there."""

    version: LoadedVersion
    inputs: tuple[Array, ...]
    rows: int
    arrived_ns: int
    timeout_ns: int
    """What the caller asked for, else the process's limit."""
    priority: int
    """1 is served first; 0 is the model's default."""
    tenant: str
    """From the request's label; empty if it has none."""

    def encode(self, outputs: list[Array]) -> Callable[[], None]:
        """Make the answer of `outputs`, which are valid only during the call, and return what sends it.

        Raises:
            RequestError: the caller wants the answer where or how it cannot be.

        """
        raise NotImplementedError

    def fail(self, error: RequestError) -> None:
        """Tell the caller what went wrong."""
        raise NotImplementedError


class InferenceService:
    """Takes calls on the event loop and settles each exactly once, unless it is cancelled first."""

    def __init__(
        self,
        max_queued_rows: int,
        max_queued_bytes: int,
        metrics: RuntimeMetrics,
        loop: asyncio.AbstractEventLoop,
        max_timeout_ns: int = 0,
        observer: RequestObserver | None = None,
        workers: int = 1,
        share: BackgroundShare | None = None,
    ) -> None:
        """Let at most `max_queued_rows` rows with `max_queued_bytes` bytes of inputs wait.

        No request is kept longer than `max_timeout_ns`; 0: than it says itself. The queues of the models are
        shared by `workers` processes, of which this is one. Work beside the traffic gets its `share`.
        """
        self._loop = loop
        self._metrics = metrics
        self._observer = observer or plain_observer()
        self._max_timeout_ns = max_timeout_ns
        self._workers = workers
        self._limits = ProcessLimits(max_queued_rows, max_queued_bytes)
        self._scheduler = Scheduler(self._limits)
        self._models: dict[str, Model] = {}
        self._configs: dict[str, ServingConfig] = {}
        self._arrived: list[Request] = []
        """In this round of the event loop; not yet with the scheduler."""
        self._round_is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._share = share or BackgroundShare()
        self._engine = Engine(self, self._share)

    # --- what is served

    def serve(self, model: ServedModel) -> None:
        """Take calls for `model` from now on, by its configuration."""
        before = self._configs.get(model.name)
        self._configs[model.name] = model.config
        if before is not None and same_scheduling(before, model.config):
            return  # what waits, and what was learned of the versions that stay, holds
        self._models[model.name] = Model(model.name, self._policy(model.config))
        for version in model.versions.values():
            version.lanes.clear()  # in case it was served before, by another configuration
        self._engine.ensure(model.config.execution.instances)

    def retire(self, model: str) -> None:
        """Expect no more calls for `model`; those that were taken in are served."""
        self._models.pop(model, None)
        self._configs.pop(model, None)

    def _policy(self, config: ServingConfig) -> ModelPolicy:
        return ModelPolicy(share_of_worker(config, self._workers))

    # --- calls

    def submit(self, call: Call) -> Callable[[], None]:
        """Take in `call`; the returned function cancels it and may be called at any time.

        Calls of one round of the event loop are handed to the scheduler together.
        """
        version, inputs = call.version, call.inputs
        if version.signature.shared:
            shapes = tuple([array.shape[1:] for array in inputs])
        else:
            shapes = tuple([array.shape for array in inputs])
        lane = version.lanes.get(shapes)
        if lane is None:
            lane = self._open_lane(version, shapes, inputs)
        context = call.context
        if context is None or context.claims is None:
            level, queue, tenant = lane.model.policy.place(call.priority, call.tenant)
        else:
            weight = context.claims.weight
            level, queue, tenant = lane.model.policy.place_verified(call.priority, call.tenant, weight)
        timeout, limit = call.timeout_ns, self._max_timeout_ns
        named = timeout < limit
        deadline, expires = queue.deadlines(call.arrived_ns, timeout, limit or timeout, named=named)
        request = Request(
            lane,
            queue,
            level,
            tenant,
            call.rows,
            lane.row_bytes * call.rows if lane.row_bytes is not None else _bytes_of_text(inputs),
            deadline,
            expires,
            call,
            named,
        )
        if call.batching is not None:
            request.enough_rows = call.batching.min_size
            request.patience_ns = call.batching.max_delay_ms * NANOSECONDS_PER_MS
        self._arrived.append(request)
        if not self._round_is_due:
            self._soon()
        return partial(self._cancel, request)

    def drain(self) -> None:
        """Let no batch wait for company any more."""
        with self._engine.lock:
            self._scheduler.drain()
        self._soon()

    def abandon(self) -> None:
        """Answer whatever still waits with an error: the time for draining is over."""
        self._round()
        with self._engine.lock:
            left = self._scheduler.all_unsettled()
            for request in left:
                self._scheduler.settle(request)
        for request in left:
            self._fail(request, ErrorCode.DRAINING, "this server is shutting down; try another one")

    def close(self) -> None:
        """Wait for the engine to finish what it runs, and end its threads."""
        self._engine.close()

    def _cancel(self, request: Request) -> None:
        call: Call | None = request.call
        if call is None:
            return  # it was told
        with self._engine.lock:
            if request.number:
                self._scheduler.settle(request)
            else:
                request.settled = True  # the scheduler has not heard of it
            request.call = None
        call.version.metrics.cancelled()

    def _open_lane(self, version: LoadedVersion, shapes: Shapes, inputs: tuple[Array, ...]) -> Lane:
        model = self._models.get(version.model)
        if model is None:  # its last calls were read before it was retired
            model = Model(version.model, self._policy(version.config))
        if len(version.lanes) >= MAX_LANES:
            version.lanes = {key: lane for key, lane in version.lanes.items() if lane.rows}
        shared = version.signature.shared
        row_bytes = sum(array.nbytes for array in inputs)
        if shared:
            row_bytes //= max(1, len(inputs[0]))
        size = row_bytes * (model.policy.max_rows if shared else 1)
        lane = Lane(model, shapes, shared=shared, ahead_worthwhile=size >= ASSEMBLE_AHEAD_BYTES)
        lane.row_bytes = row_bytes if version.bindable else None
        version.lanes[shapes] = lane
        return lane

    # --- rounds of the event loop

    def _soon(self) -> None:
        if not self._round_is_due:
            self._round_is_due = True
            self._loop.call_soon(self._round)

    def _round(self) -> None:
        """Hand over what arrived, give up what is too old, and run or wake up what can go on."""
        self._round_is_due = False
        arrived, self._arrived = self._arrived, []
        scheduler, engine = self._scheduler, self._engine
        now = time.monotonic_ns()
        with engine.lock:
            refused = scheduler.add_all(arrived, now)
            expired = scheduler.expire(now)
            batch = scheduler.take(now, inline=True)
            job = None if batch is None else _job(batch)
            look_again_at = scheduler.look_again_at
            self._wake()
            due = scheduler.next_expiry
        for request in refused:
            why = queue_is_full(request, self._limits, scheduler.queued_rows)
            self._fail(request, ErrorCode.QUEUE_FULL, why)
        for request in expired:
            if (call := request.call) is not None:
                why = time_is_over(request, call.arrived_ns, call.timeout_ns, self._max_timeout_ns)
                self._fail(request, ErrorCode.DEADLINE_EXCEEDED, why)
        if job is not None:
            job.run()
            with engine.lock:
                self._report(job)
            self._settle(job)
            self._share.step_aside()
        self._arm(due if look_again_at is None else min(look_again_at, due or NEVER))
        self._metrics.load(scheduler.queued_rows, scheduler.unsettled)

    def _wake(self) -> None:
        """Wake a thread for whom there is something to do. The engine's lock is held."""
        engine, scheduler = self._engine, self._scheduler
        if engine.idle and scheduler.has_work(inline=False):
            engine.wake()
        if scheduler.ahead_wanted:
            engine.wake_assembler()

    def _arm(self, due: int | None) -> None:
        """Have a round at `due`, unless one comes before anyway. Timers are rarely moved: most do nothing."""
        if due is None or due >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due
        delay = max(0, due - time.monotonic_ns()) / 1e9
        self._timer = self._loop.call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_at = None, NEVER
        self._round()

    # --- the engine's threads, under its lock

    def next_job(self, now: int) -> Job | None:
        """Return what a thread that is free now is to run."""
        batch = self._scheduler.take(now)
        if self._scheduler.has_work(inline=True):
            self._loop.call_soon_threadsafe(self._soon)  # what is left is short enough for the loop
        if batch is None:
            return None
        self._wake()  # there may be more than one thread can do
        job: Job = batch.job or _job(batch)
        return job

    def look_again_at(self) -> int | None:
        """Return when `next_job` may have something though nothing happens."""
        return self._scheduler.look_again_at

    def next_ahead(self, now: int) -> Job | None:
        """Return a job whose inputs can be assembled before it is run."""
        batch = self._scheduler.form_ahead(now)
        if batch is None:
            return None
        batch.job = job = _job(batch)
        return job

    def ran(self, job: Job) -> None:
        """Let the next batch run, and bring `job` to the event loop."""
        self._report(job)
        self._loop.call_soon_threadsafe(self._settle_and_count, job)

    def _report(self, job: Job) -> None:
        self._scheduler.ran(job.batch, job.run_ns, job.finished_ns, failed=job.error is not None)

    # --- outcomes

    def _settle_and_count(self, job: Job) -> None:
        self._settle(job)
        self._metrics.load(self._scheduler.queued_rows, self._scheduler.unsettled)

    def _settle(self, job: Job) -> None:
        batch: Batch = job.batch
        job.version.metrics.executed(
            job.rows, len(batch.parts), job.assemble_ns, job.run_ns, batch.cause, cache_hit=job.cache_hit
        )
        failed: Request | None = None
        parts: list[Part] = []
        with self._engine.lock:
            if job.error is None:
                parts = self._scheduler.finish(batch)
            else:
                failed = self._scheduler.retry(batch)
            self._wake()
            if self._scheduler.has_work(inline=True):
                self._soon()  # what has arrived meanwhile is read first, and may join
        try:
            self._answer(parts, job)
            if failed is not None:
                self._fail(failed, ErrorCode.EXECUTION_FAILED, f"the model failed: {job.error}"[:1_000])
        finally:
            job.release()

    def _answer(self, parts: list[Part], job: Job) -> None:
        """Encode all answers, count them, then tell: a caller who has its answer finds it in the metrics."""
        version, outputs, started = job.version, job.outputs, job.started_ns
        shared = version.signature.shared
        encoded: list[tuple[Call, Callable[[], None]]] = []
        failed: list[tuple[Call, RequestError]] = []
        waited = []
        began = time.monotonic_ns()
        for part in parts:
            request = part.request
            call: Call | None = request.call
            if call is None:
                continue  # it left while its neighbours' answers were encoded
            first, rows = part.row, part.rows
            own = [array[first : first + rows] for array in outputs] if shared else outputs
            if not part.first:
                waited.append(started - call.arrived_ns)
            if rows < request.rows:
                collected = self._collect(part, own)
                if collected is None:
                    continue
                own = collected
            request.call = None  # its inputs and its answer need not outlive this
            try:
                encoded.append((call, call.encode(own)))
            except RequestError as error:
                failed.append((call, error))
            except Exception:  # one answer that cannot be written must not cost the others theirs
                log.exception("an answer could not be encoded")
                failed.append((call, RequestError(ErrorCode.INTERNAL, "the answer could not be encoded")))
        ended = time.monotonic_ns()
        metrics = version.metrics
        metrics.queued(waited)
        metrics.answered(job.rows, [ended - call.arrived_ns for call, _ in encoded], ended - began)
        self._observer.answered(job, [call for call, _ in encoded], ended)
        for call, reason in failed:
            metrics.failed(reason.code, ended - call.arrived_ns)
            self._observer.failed(call, reason, ended, job)
            _tell(partial(call.fail, reason))
        for _, send in encoded:
            _tell(send)

    def _collect(self, part: Part, outputs: list[Array]) -> list[Array] | None:
        """Keep the rows of one part of a large request; return all of them if it was the last."""
        request = part.request
        try:
            if request.collected is None:
                request.collected = [_room_for(array, request.rows) for array in outputs]
            collected: list[Array] = request.collected
            for whole, array in zip(collected, outputs, strict=True):
                whole[part.first : part.first + part.rows] = array
        except ValueError as error:  # the model answers rows in shapes that depend on their values
            with self._engine.lock:
                self._scheduler.settle(request)
            message = f"the model's answers to parts of the request do not fit together: {error}"
            self._fail(request, ErrorCode.EXECUTION_FAILED, message)
            return None
        return collected if request.done == request.rows else None

    def _fail(self, request: Request, code: ErrorCode, message: str) -> None:
        call: Call | None = request.call
        if call is None:
            return
        request.call = None
        now, error = time.monotonic_ns(), RequestError(code, message)
        call.version.metrics.failed(code, now - call.arrived_ns)
        self._observer.failed(call, error, now)
        _tell(partial(call.fail, error))


def _tell(send: Callable[[], None]) -> None:
    """Call `send`, whose failure must not keep its neighbours from being told."""
    try:
        send()
    except Exception:
        log.exception("a caller could not be told what became of its request")


def _job(batch: Batch) -> Job:
    lane, parts = batch.lane, batch.parts
    inputs = [
        part.request.call.inputs if part.rows == part.request.rows or not lane.shared else _rows(part)
        for part in parts
    ]
    return Job(parts[0].request.call.version, lane.shapes, inputs, batch.rows, batch.run_rows, batch)


def _rows(part: Part) -> tuple[Array, ...]:
    return tuple(array[part.first : part.first + part.rows] for array in part.request.call.inputs)


def _room_for(array: Array, rows: int) -> Array:
    return np.empty((rows, *array.shape[1:]), array.dtype)


def _bytes_of_text(inputs: tuple[Array, ...]) -> int:
    """Return what inputs hold that are objects: each `bytes` costs more than its pointer."""
    return sum(array.nbytes + (sum(map(len, array.flat)) if array.dtype == STRING else 0) for array in inputs)
