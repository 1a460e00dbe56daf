"""Tells what became of requests: in log lines, spans and exemplars. Asked for nothing, it does nothing."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from mcp2026.api.scheduling_context import SchedulingContext
from mcp2026.runtime.context.request_context import RequestContexts
from mcp2026.runtime.context.request_log import RequestLog
from mcp2026.runtime.context.settled import Settled, SettledBatch
from mcp2026.runtime.errors import STATUS, RequestError
from mcp2026.runtime.metrics.runtime_metrics import VersionMetrics


class Spans(Protocol):
    """Takes requests to a collector."""

    def put(self, batch: SettledBatch) -> bool:
        """Take in `batch`; return whether there was room."""


class ObservedVersion(Protocol):
    """The version that a call was for."""

    @property
    def model(self) -> str:
        """The name of its model."""

    @property
    def version_id(self) -> str:
        """Its id."""

    @property
    def metrics(self) -> VersionMetrics:
        """What counts for it."""


class ObservedCall(Protocol):
    """A request that was read and given to the engine."""

    @property
    def version(self) -> ObservedVersion: ...  # noqa: D102  # as in Call
    @property
    def arrived_ns(self) -> int: ...  # noqa: D102  # as in Call
    @property
    def priority(self) -> int: ...  # noqa: D102  # as in Call
    @property
    def tenant(self) -> str: ...  # noqa: D102  # as in Call

    context: SchedulingContext | None


class ObservedRun(Protocol):
    """An execution."""

    rows: int
    assemble_ns: int
    started_ns: int
    finished_ns: int


class RequestObserver:
    """One for each process; all calls come from its event loop."""

    def __init__(
        self,
        contexts: RequestContexts,
        log: RequestLog,
        spans: Spans | None = None,
        dropped: Callable[[int], None] = lambda _requests: None,
    ) -> None:
        """Record sampled requests by `spans`, if there are any; `dropped` is told how many had no room."""
        self.contexts = contexts
        self._log = log
        self._spans = spans
        self._dropped = dropped

    def answered(self, run: ObservedRun, calls: Sequence[ObservedCall], ended_ns: int) -> None:
        """Tell of calls that share a run and have got their results, at `ended_ns`."""
        watches_all = self._log.watches_all
        if not watches_all:
            calls = [call for call in calls if call.context is not None]
        recorded = []
        for call in calls:
            context = call.context
            took_ns = ended_ns - call.arrived_ns
            logged = watches_all and self._log.wants(took_ns)
            if context is None:
                if not logged:
                    continue
                context = self._begin(call)
            if not (logged or context.trace.sampled):
                continue
            settled = _settled(call, context, run, ended_ns)
            if logged:
                self._log.answered(settled)
            if context.trace.sampled:
                recorded.append(settled)
                call.version.metrics.exemplar(context.trace.trace_id, took_ns)
        if recorded:
            self._record(recorded, run.rows, run.assemble_ns)

    def failed(
        self, call: ObservedCall, error: RequestError, ended_ns: int, run: ObservedRun | None = None
    ) -> None:
        """Tell of a call that gets `error`, before its caller is told: it has a context afterwards."""
        context = call.context or self._begin(call)
        settled = _settled(call, context, run, ended_ns)
        self._fail(settled, error)

    def refused(
        self,
        error: RequestError,
        context: SchedulingContext | None,
        arrived_ns: int,
        model: str = "",
        version: str = "",
    ) -> SchedulingContext:
        """Tell of a request that gets `error` before it became a call; return the context for its answer."""
        context = context or SchedulingContext(self.contexts.new_trace())
        trace, qos_class, tenant = context.trace, context.qos_class, ""
        priority = 0
        if context.claims is not None:
            tenant, priority = context.claims.tenant, context.claims.priority
        ended_ns = time.monotonic_ns()
        settled = Settled(trace, qos_class, model, version, tenant, priority, arrived_ns, 0, 0, ended_ns)
        self._fail(settled, error)
        return context

    def _begin(self, call: ObservedCall) -> SchedulingContext:
        context = call.context = SchedulingContext(self.contexts.new_trace())
        return context

    def _fail(self, settled: Settled, error: RequestError) -> None:
        status = STATUS[error.code].http
        settled = settled._replace(reason=error.code.value, message=error.message, status=status)
        self._log.failed(settled)
        if settled.trace.sampled:
            self._record([settled], 0, 0)

    def _record(self, settled: list[Settled], rows: int, assemble_ns: int) -> None:
        if self._spans is None:
            return
        offset = time.time_ns() - time.monotonic_ns()
        if not self._spans.put(SettledBatch(tuple(settled), rows, assemble_ns, offset)):
            self._dropped(len(settled))


def _settled(
    call: ObservedCall, context: SchedulingContext, run: ObservedRun | None, ended_ns: int
) -> Settled:
    version = call.version
    return Settled(
        context.trace,
        context.qos_class,
        version.model,
        version.version_id,
        call.tenant,
        call.priority,
        call.arrived_ns,
        run.started_ns if run is not None else 0,
        run.finished_ns if run is not None else 0,
        ended_ns,
        run.assemble_ns if run is not None else 0,
    )


def plain_observer() -> RequestObserver:
    """Return an observer of which nothing is asked: failures are logged, traces are carried."""
    return RequestObserver(RequestContexts(), RequestLog(slow_ns=None, every=False, left_out=lambda: None))
