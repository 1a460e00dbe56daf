"""Control calls over HTTP, and the contract itself: its document, and a page for people."""

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from mcp2026.api.contract.documents import document, document_text
from mcp2026.runtime.errors import ErrorCode, RequestError, invalid
from mcp2026.runtime.metrics.runtime_metrics import RuntimeMetrics
from mcp2026.runtime.protocol.context_headers import in_trace_of
from mcp2026.runtime.protocol.exchange import Cancel, RequestHead, Respond, Response
from mcp2026.runtime.protocol.native.control_api import MAX_REQUEST_BYTES, ControlApi, Document
from mcp2026.runtime.protocol.native.errors import INTERNAL
from mcp2026.runtime.protocol.native.operations import Operation, Route, Routes
from mcp2026.runtime.protocol.native.page import page
from mcp2026.runtime.protocol.native.tasks import Tasks
from mcp2026.runtime.protocol.observability import error_response, method_not_allowed

log = logging.getLogger(__name__)

DOCUMENT_PATH = "/openapi.json"
PAGE_PATH = "/docs"
_PAGE_HEADERS = ((b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'"),)
_WHITE = b" \t\r\n"


class ControlHttp:
    """The paths of the control calls, of the document and of the page."""

    def __init__(self, api: ControlApi, metrics: RuntimeMetrics) -> None:
        self._api = api
        self._metrics = metrics
        self._routes = Routes(api.operations)
        self._pages: dict[str, Callable[[], Response]] = {DOCUMENT_PATH: _document, PAGE_PATH: _page}
        self._starts = tuple({path.partition("{")[0] for path in self.paths})
        """Of all paths. Every request of inference is asked for, and has none of them."""
        self._tasks = Tasks()

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths, with names in braces."""
        return (*self._routes.paths, *self._pages)

    def serves(self, path: str) -> bool:
        """Return whether `path` is one of them."""
        if not path.startswith(self._starts):
            return False
        return path in self._pages or self._routes.find(path) is not None

    def admit(self, head: RequestHead) -> Response | None:
        """Refuse wrong verbs and compressed bodies before the body is read."""
        encoding = head.headers.get(b"content-encoding")
        if encoding is not None and encoding.lower() != b"identity":
            return error_response(
                invalid("content-encoding", f"{encoding[:32].decode('latin-1')!r} is not taken here", "none")
            )
        verbs = ("GET",) if head.path in self._pages else tuple(self._route(head).by_verb)
        return method_not_allowed(head, verbs)

    def begin(self, head: RequestHead, body: bytes, respond: Respond) -> Cancel | None:
        """Serve one request that was admitted. Whatever goes wrong in here, it is answered."""
        made = self._pages.get(head.path)
        if made is not None:
            respond(made())
            return None
        operation = self._route(head).by_verb["GET" if head.method == "HEAD" else head.method]
        return self._tasks.start(self._serve(operation, head, body, respond))

    async def _serve(self, operation: Operation, head: RequestHead, body: bytes, respond: Respond) -> None:
        try:
            request = _read(body) if operation.has_body else dict(self._route(head).names)
            answer = await self._api.call(operation, request)
            response = Response(operation.status, msgspec.json.encode(answer))
        except RequestError as error:
            response = in_trace_of(head.headers, error_response(error))
        except Exception:
            log.exception("%s failed", operation.operation_id)
            self._metrics.version().failed(ErrorCode.INTERNAL)
            response = in_trace_of(head.headers, error_response(INTERNAL))
        respond(response)

    def _route(self, head: RequestHead) -> Route:
        route = self._routes.find(head.path)
        assert route is not None  # `serves` was asked
        return route


def _read(body: bytes) -> Document:
    if len(body) > MAX_REQUEST_BYTES:
        raise RequestError(
            ErrorCode.BODY_TOO_LARGE,
            f"the body has {len(body)} bytes",
            "body",
            f"at most {MAX_REQUEST_BYTES} bytes",
        )
    try:
        read: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = "is empty" if not body.strip(_WHITE) else f"is not JSON: {error}"
        raise RequestError(
            ErrorCode.INVALID_ARGUMENT, f"body: {problem}", "body", "one JSON object", "type"
        ) from error
    request: Document = read
    return request  # whatever it is: the contract says that it has to be an object


def _document() -> Response:
    return Response(200, document_text())


@cache
def _page() -> Response:
    return Response(200, page(document()), b"text/html; charset=utf-8", _PAGE_HEADERS)
