"""What each error is called by this protocol: the statuses that Triton gives and its clients know."""

import msgspec

from mcp2026.api.grpc_codes import GrpcCode
from mcp2026.api.scheduling_context import SchedulingContext
from mcp2026.runtime.errors import STATUS, ErrorCode, RequestError
from mcp2026.runtime.protocol.context_headers import Fields, context_fields
from mcp2026.runtime.protocol.exchange import JSON, Response
from mcp2026.runtime.protocol.grpc.service import Reply

_UNAVAILABLE = (503, GrpcCode.UNAVAILABLE)
_BAD = (400, GrpcCode.INVALID_ARGUMENT)

WIRE: dict[ErrorCode, tuple[int, GrpcCode]] = {
    ErrorCode.INVALID_ARGUMENT: _BAD,
    ErrorCode.NOT_FOUND: (404, GrpcCode.NOT_FOUND),
    ErrorCode.ALREADY_EXISTS: (400, GrpcCode.ALREADY_EXISTS),
    ErrorCode.UNAUTHENTICATED: (401, GrpcCode.UNAUTHENTICATED),
    ErrorCode.PERMISSION_DENIED: (400, GrpcCode.PERMISSION_DENIED),
    ErrorCode.FAILED_PRECONDITION: (400, GrpcCode.FAILED_PRECONDITION),
    ErrorCode.METHOD_NOT_ALLOWED: (405, GrpcCode.UNIMPLEMENTED),
    ErrorCode.BODY_TOO_LARGE: (413, GrpcCode.RESOURCE_EXHAUSTED),
    ErrorCode.HEADERS_TOO_LARGE: (431, GrpcCode.RESOURCE_EXHAUSTED),
    ErrorCode.CLIENT_TOO_SLOW: (408, GrpcCode.CANCELLED),
    ErrorCode.QUEUE_FULL: _UNAVAILABLE,
    ErrorCode.NOT_READY: _UNAVAILABLE,
    ErrorCode.DRAINING: _UNAVAILABLE,
    ErrorCode.DEADLINE_EXCEEDED: _UNAVAILABLE,
    ErrorCode.EXECUTION_FAILED: (500, GrpcCode.INTERNAL),
    ErrorCode.UNSUPPORTED: (501, GrpcCode.UNIMPLEMENTED),
    ErrorCode.INTERNAL: (500, GrpcCode.INTERNAL),
}
"""HTTP status and gRPC status. As in Triton, a deadline that passes in the queue is 503."""

INTERNAL = RequestError(ErrorCode.INTERNAL, "the server failed; its log says why")
"""What a caller is told of an exception that nobody expected."""


def text_of(error: RequestError) -> str:
    """Return the one sentence that clients show."""
    return f"{error.message} (allowed: {error.allowed})" if error.allowed else error.message


def error_response(
    error: RequestError, headers: Fields = (), context: SchedulingContext | None = None
) -> Response:
    """Return `error` as a response: its only field is `error`, a string."""
    status = STATUS[error.code]
    if status.retry_after_seconds is not None:
        headers = (*headers, (b"retry-after", b"%d" % status.retry_after_seconds))
    if status.challenge is not None:
        headers = (*headers, (b"www-authenticate", status.challenge.encode()))
    return error_text(WIRE[error.code][0], text_of(error), headers, context)


def error_text(
    status: int, text: str, headers: Fields = (), context: SchedulingContext | None = None
) -> Response:
    """Return a response that says `text`. It names its trace, or a new one."""
    body = msgspec.json.encode({"error": text})
    return Response(status, body, JSON, (*headers, *context_fields(context)))


def error_reply(error: RequestError, context: SchedulingContext | None = None) -> Reply:
    """Return `error` as the end of a unary call. Without a context, the transport names its trace."""
    trailers = context_fields(context) if context is not None else ()
    return Reply(code=WIRE[error.code][1], detail=text_of(error), trailers=trailers)
