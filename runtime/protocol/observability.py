"""Health, metrics and errors: what every port of a server answers, that of its parent too.

Nothing here needs arrays: the parent has none, and starts the sooner.
"""

import asyncio
import logging
from collections.abc import Collection

import msgspec

from mcp2026.api.scheduling_context import SchedulingContext
from mcp2026.runtime.errors import STATUS, ErrorCode, RequestError
from mcp2026.runtime.health import Health
from mcp2026.runtime.metrics.runtime_metrics import RuntimeMetrics
from mcp2026.runtime.protocol.context_headers import Fields, context_fields
from mcp2026.runtime.protocol.exchange import JSON, Cancel, Handler, RequestHead, Respond, Response

log = logging.getLogger(__name__)

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
        respond(error_response(internal_error()))

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


def internal_error() -> RequestError:
    """Return the error of a fault that nobody expected."""
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
