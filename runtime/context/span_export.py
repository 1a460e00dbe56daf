"""Takes spans to a collector by OTLP over HTTP, in a thread of its own. Imported only if that is asked for.

What the collector does not take in time is dropped and counted: serving never waits for it.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from mcp2026.runtime.context.settled import SettledBatch
from mcp2026.runtime.context.spans import Span, spans_of

log = logging.getLogger(__name__)

MAX_QUEUED: Final = 8_192
"""Requests that wait for the thread; more are dropped."""
EXPORT_REQUESTS: Final = 512
"""Requests whose spans are sent together."""
EXPORT_SECONDS: Final = 1.0
EXPORT_TIMEOUT_SECONDS: Final = 5.0
_TRACES_PATH: Final = "/v1/traces"
_SCOPE: Final = InstrumentationScope("mcp2026.runtime")


class SpanExport:
    """A bounded queue, and the thread that empties it."""

    def __init__(
        self, endpoint: str, *, attributes: dict[str, str], failed_to_export: Callable[[int], None]
    ) -> None:
        """Send to `endpoint`, a URL to which /v1/traces is added, spans of a resource with `attributes`.

        `failed_to_export` is told, in the thread, how many spans were lost.
        """
        # It says for each attempt what is said here once.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._exporter = OTLPSpanExporter(traces_url(endpoint), timeout=EXPORT_TIMEOUT_SECONDS)
        self._endpoint = endpoint
        self._resource = Resource.create(dict(attributes))
        self._failed = failed_to_export
        self._away = False
        self._queue: deque[SettledBatch] = deque()
        self._queued = 0
        self._lock = threading.Lock()
        self._due = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def put(self, batch: SettledBatch) -> bool:
        """Take in `batch`; return whether there was room."""
        requests = len(batch.requests)
        with self._lock:
            if self._queued + requests > MAX_QUEUED:
                return False
            self._queued += requests
            self._queue.append(batch)
        if self._queued >= EXPORT_REQUESTS:
            self._due.set()
        return True

    def close(self, seconds: float) -> None:
        """Send what waits, for `seconds` at most."""
        self._closing = True
        self._due.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._closing:
            self._due.wait(EXPORT_SECONDS)
            self._due.clear()
            while spans := self._next():
                self._export(spans)

    def _next(self) -> list[ReadableSpan]:
        batches: list[SettledBatch] = []
        requests = 0
        with self._lock:
            while self._queue and requests < EXPORT_REQUESTS:
                batch = self._queue.popleft()
                requests += len(batch.requests)
                batches.append(batch)
            self._queued -= requests
        return [_readable(span, self._resource) for batch in batches for span in spans_of(batch)]

    def _export(self, spans: list[ReadableSpan]) -> None:
        try:
            taken = self._exporter.export(spans) is SpanExportResult.SUCCESS
        except Exception:
            log.exception("spans could not be sent")
            taken = False
        if not taken:
            self._failed(len(spans))
        if taken is self._away:
            self._away = not taken
            if taken:
                log.info("the collector at %s takes spans again", self._endpoint)
            else:
                log.warning("the collector at %s takes no spans; they are dropped", self._endpoint)


def traces_url(endpoint: str) -> str:
    """Return where spans go for an endpoint that is given with or without its path."""
    endpoint = endpoint.rstrip("/")
    return endpoint if endpoint.endswith(_TRACES_PATH) else endpoint + _TRACES_PATH


def _context(trace_id: str, span_id: str, *, remote: bool, tracestate: str = "") -> SpanContext:
    return SpanContext(
        int(trace_id, 16),
        int(span_id, 16),
        is_remote=remote,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
        trace_state=TraceState.from_header([tracestate]) if tracestate else TraceState(),
    )


def _readable(span: Span, resource: Resource) -> ReadableSpan:
    state = span.tracestate
    parent = None
    if span.parent_id:
        parent = _context(span.trace_id, span.parent_id, remote=span.remote_parent, tracestate=state)
    return ReadableSpan(
        span.name,
        _context(span.trace_id, span.span_id, remote=False, tracestate=state),
        parent,
        resource,
        span.attributes,
        links=[Link(_context(*link, remote=False)) for link in span.links],
        kind=SpanKind.SERVER if span.server else SpanKind.INTERNAL,
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=_SCOPE,
    )
