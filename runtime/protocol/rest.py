"""The REST API: paths, verbs, status codes and error bodies. Everything else lies behind it."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from functools import partial

import msgspec

from mcp2026.api.scheduling_context import SchedulingContext
from mcp2026.runtime.context.observer import RequestObserver, plain_observer
from mcp2026.runtime.errors import STATUS, ErrorCode, RequestError, invalid
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.health import Health
from mcp2026.runtime.inference import Call, InferenceService
from mcp2026.runtime.metrics.runtime_metrics import RuntimeMetrics, VersionMetrics
from mcp2026.runtime.model.signature import STRING
from mcp2026.runtime.model.store import ModelStore
from mcp2026.runtime.protocol.context_headers import Fields, carrying, context_fields
from mcp2026.runtime.protocol.exchange import JSON, Cancel, Handler, RequestHead, Respond, Response
from mcp2026.runtime.protocol.json_codec import InferRequest, JsonCodec
from mcp2026.runtime.protocol.json_turns import LARGE_BODY, LARGE_VALUES, InTurns, Turns, at_once
from mcp2026.runtime.protocol.scheduling_labels import STICKY_KEY, entitled, scheduling_labels

log = logging.getLogger(__name__)

INFER_PATH = "/v1/infer"
_METRICS_TYPE = b"text/plain; version=1.0.0; charset=utf-8"
_OPENMETRICS = b"application/openmetrics-text"
_OPENMETRICS_TYPE = _OPENMETRICS + b"; version=1.0.0; charset=utf-8"
_TEXT = b"text/plain; charset=utf-8"

_CODES_OF_PROTOCOL = {
    400: ErrorCode.INVALID_ARGUMENT,
    408: ErrorCode.CLIENT_TOO_SLOW,
    413: ErrorCode.BODY_TOO_LARGE,
    431: ErrorCode.HEADERS_TOO_LARGE,
    503: ErrorCode.QUEUE_FULL,
    505: ErrorCode.UNSUPPORTED,
}
_FIELDS_OF_PROTOCOL = {413: "body", 431: "headers"}


class Observability:
    """Health and metrics: what every port of a server answers."""

    def __init__(self, health: Health, metrics: RuntimeMetrics) -> None:
        self._health = health
        self._metrics = metrics
        self._failures = metrics.version()
        """Counts requests that failed before their model was known."""
        self._pages: dict[bool, bytes] = {}
        """The metrics in either format, for all who ask in one round of the event loop: they cost a
        millisecond or more."""
        self._paths_beside: tuple[str, ...] = ()
        """Served by others; told to whoever asks for a path that nobody serves."""
        self._routes: dict[str, dict[str, Handler]] = {
            "/healthz": {"GET": self._live},
            "/readyz": {"GET": self._ready},
            "/metrics": {"GET": self._scrape},
        }

    @property
    def closing(self) -> bool:
        """Connections should end with their next response."""
        return self._health.leaving

    def admit(self, head: RequestHead) -> Response | None:
        """Refuse unknown paths and wrong verbs before their body is read."""
        verbs = self._routes.get(head.path)
        if verbs is None:
            known = ", ".join((*self._routes, *self._paths_beside))
            return error_response(
                RequestError(ErrorCode.NOT_FOUND, f"nothing at {head.path[:200]}", "path", known)
            )
        return method_not_allowed(head, verbs)

    def begin(self, head: RequestHead, body: bytes, respond: Respond) -> Cancel | None:
        """Serve one request that was admitted. Whatever goes wrong in here, it is answered."""
        method = "GET" if head.method == "HEAD" else head.method
        try:
            return self._routes[head.path][method](head, body, respond)
        except Exception:
            log.exception("%s %s failed", head.method, head.path)
            self._broke(respond)
            return None

    def handler(self, _head: RequestHead) -> Handler:
        """Return what serves requests with such a head, which was admitted."""
        return self.begin

    def protocol_error(self, status: int, message: str, allowed: str | None = None) -> Response:
        """Return the response for a request that the protocol itself refuses."""
        code = _CODES_OF_PROTOCOL[status]
        self._failures.failed(code)
        return error_response(RequestError(code, message, _FIELDS_OF_PROTOCOL.get(status), allowed))

    def _broke(self, respond: Respond) -> None:
        """Answer for an exception that nobody expected."""
        self._failures.failed(ErrorCode.INTERNAL)
        respond(error_response(_internal()))

    def _live(self, _head: RequestHead, _body: bytes, respond: Respond) -> None:
        respond(Response(200, b"ok\n", _TEXT))

    def _ready(self, _head: RequestHead, _body: bytes, respond: Respond) -> None:
        if self._health.ready:
            respond(Response(200, b"ready\n", _TEXT))
        else:
            respond(Response(503, f"{self._health.phase}\n".encode(), _TEXT, ((b"retry-after", b"1"),)))

    def _scrape(self, head: RequestHead, _body: bytes, respond: Respond) -> None:
        openmetrics = _OPENMETRICS in head.headers.get(b"accept", b"").lower()
        page = self._pages.get(openmetrics)
        if page is None:
            page = self._pages[openmetrics] = self._metrics.exposition(openmetrics=openmetrics)
            asyncio.get_running_loop().call_soon(self._pages.clear)
        respond(Response(200, page, _OPENMETRICS_TYPE if openmetrics else _METRICS_TYPE))


class RestApi(Observability):
    """Inference besides health and metrics."""

    def __init__(
        self,
        health: Health,
        metrics: RuntimeMetrics,
        store: ModelStore,
        service: InferenceService,
        max_timeout_ns: int,
        observer: RequestObserver | None = None,
        paths_beside: tuple[str, ...] = (),
    ) -> None:
        super().__init__(health, metrics)
        self._paths_beside = paths_beside
        self._observer = observer or plain_observer()
        self._contexts = self._observer.contexts
        self._store = store
        self._service = service
        self._codec = JsonCodec(store, max_timeout_ns)
        self._turns = Turns()
        self._routes |= {INFER_PATH: {"POST": self.infer}}

    def admit(self, head: RequestHead) -> Response | None:
        """Refuse unknown paths, wrong verbs and compressed bodies before their body is read."""
        encoding = head.headers.get(b"content-encoding")
        if encoding is not None and head.path == INFER_PATH and encoding.lower() != b"identity":
            problem = f"{encoding[:32].decode('latin-1')!r} is not taken here"
            return error_response(invalid("content-encoding", problem, "none; /v2 takes gzip and deflate"))
        if head.refused_offer is not None:
            offer = head.refused_offer
            return error_response(invalid(offer.field, offer.problem, offer.allowed, offer.rule))
        return super().admit(head)

    def handler(self, head: RequestHead) -> Handler:
        """Return what serves requests with such a head, which was admitted."""
        return self.infer if head.path == INFER_PATH else self.begin

    def infer(self, head: RequestHead, body: bytes, respond: Respond) -> Cancel | None:
        """Serve one inference request. Whatever goes wrong in here, it is answered."""
        arrived_ns = time.monotonic_ns()
        context = self._contexts.of(head.headers)
        if context is not None:
            respond = carrying(respond, context)
        if len(body) > LARGE_BODY:
            return self._infer_in_turns(head, body, respond, arrived_ns, context)
        try:
            return self._submit(
                self._codec.decode(body, head.headers.get(STICKY_KEY)), head, respond, arrived_ns, context
            )
        except RequestError as error:
            self._fail(error, respond, arrived_ns, context)
        except Exception:
            log.exception("%s %s failed", head.method, head.path)
            self._fail(_internal(), respond, arrived_ns, context)
        return None

    def _infer_in_turns(
        self,
        head: RequestHead,
        body: bytes,
        respond: Respond,
        arrived_ns: int,
        context: SchedulingContext | None,
    ) -> Cancel:
        cancel: Cancel | None = None

        def read() -> InTurns[None]:
            nonlocal cancel
            try:
                request = yield from self._codec.decode_in_turns(body, head.headers.get(STICKY_KEY))
                cancel = self._submit(request, head, respond, arrived_ns, context)
            except RequestError as error:
                self._fail(error, respond, arrived_ns, context)
            except Exception:
                log.exception("a large body could not be read")
                self._fail(_internal(), respond, arrived_ns, context)

        work = read()
        if not self._turns.add(work, len(body)):
            error = RequestError(ErrorCode.QUEUE_FULL, "too many large bodies wait already")
            self._fail(error, respond, arrived_ns, context)
        return lambda: work.close() if cancel is None else cancel()

    def _submit(
        self,
        request: InferRequest,
        head: RequestHead,
        respond: Respond,
        arrived_ns: int,
        context: SchedulingContext | None,
    ) -> Cancel:
        config = request.model.config
        labels = scheduling_labels(head.headers, config)
        if context is not None:
            self._contexts.admit(context)
            labels = entitled(labels, context, config.priorities.levels)
        return self._service.submit(
            _RestCall(
                request.version,
                request.inputs,
                request.rows,
                arrived_ns,
                request.timeout_ns,
                labels.priority,
                labels.tenant,
                request,
                respond,
                self._codec,
                self._turns,
                context=context,
                batching=None if head.batching is None else head.batching.negotiated,
            )
        )

    def _counters(self) -> VersionMetrics:
        """Return what counts a refused request: those of the model if there is only one."""
        models = self._store.models()
        return models[0].metrics if len(models) == 1 else self._failures

    def _fail(
        self, error: RequestError, respond: Respond, arrived_ns: int, context: SchedulingContext | None
    ) -> None:
        self._counters().failed(error.code)
        context = self._observer.refused(error, context, arrived_ns)
        respond(error_response(error, context=context))


class _RestCall(Call):
    request: InferRequest
    respond: Respond
    codec: JsonCodec
    turns: Turns

    def encode(self, outputs: list[Array]) -> Callable[[], None]:
        for array in outputs:
            if array.size > LARGE_VALUES and array.dtype != STRING:
                return partial(self._send_in_turns, [array.copy() for array in outputs])
        return partial(self.respond, Response(200, self.codec.encode(self.request, outputs)))

    def fail(self, error: RequestError) -> None:
        self.respond(error_response(error, context=self.context))

    def _send_in_turns(self, outputs: list[Array]) -> None:
        size = sum(array.nbytes for array in outputs)
        if not self.turns.add(self._write(outputs), size):
            at_once(self._write(outputs))

    def _write(self, outputs: list[Array]) -> InTurns[None]:
        try:
            body = yield from self.codec.encode_in_turns(self.request, outputs)
        except RequestError as error:
            self.fail(error)
        else:
            self.respond(Response(200, body))


def _internal() -> RequestError:
    return RequestError(ErrorCode.INTERNAL, "the server failed; its log says why")


def error_response(
    error: RequestError, headers: Fields = (), context: SchedulingContext | None = None
) -> Response:
    """Return `error` as a response, by the one table of statuses. It names its trace, or a new one."""
    status = STATUS[error.code]
    document = {
        "code": error.code.value,
        "message": error.message,
        "field": error.field,
        "rule": error.rule,
        "allowed": error.allowed,
    }
    body = msgspec.json.encode(
        {"error": {key: value for key, value in document.items() if value is not None}}
    )
    if status.retry_after_seconds is not None:
        headers = (*headers, (b"retry-after", b"%d" % status.retry_after_seconds))
    if status.challenge is not None:
        headers = (*headers, (b"www-authenticate", status.challenge.encode()))
    return Response(status.http, body, JSON, (*headers, *context_fields(context)))


def method_not_allowed(head: RequestHead, verbs: Collection[str]) -> Response | None:
    """Return the refusal of a verb that is none of `verbs`, None if it is one; HEAD is taken where GET is."""
    if head.method in verbs or (head.method == "HEAD" and "GET" in verbs):
        return None
    allow = ", ".join(["GET, HEAD" if verb == "GET" else verb for verb in verbs])
    error = RequestError(
        ErrorCode.METHOD_NOT_ALLOWED, f"{head.path[:200]} does not take {head.method[:32]}", "method", allow
    )
    return error_response(error, ((b"allow", allow.encode()),))
