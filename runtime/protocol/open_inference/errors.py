"""What each error is called by this protocol: the statuses that Triton gives and its clients know."""

import msgspec

from mcp2026.runtime.errors import STATUS, ErrorCode, RequestError
from mcp2026.runtime.protocol.exchange import JSON, Response
from mcp2026.runtime.protocol.grpc.service import GrpcCode, Reply

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


def error_response(error: RequestError, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Response:
    """Return `error` as a response: its only field is `error`, a string."""
    retry_after = STATUS[error.code].retry_after_seconds
    if retry_after is not None:
        headers = (*headers, (b"retry-after", b"%d" % retry_after))
    return error_text(WIRE[error.code][0], text_of(error), headers)


def error_text(status: int, text: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Response:
    """Return a response that says `text`."""
    return Response(status, msgspec.json.encode({"error": text}), JSON, headers)


def error_reply(error: RequestError) -> Reply:
    """Return `error` as the end of a unary call."""
    return Reply(code=WIRE[error.code][1], detail=text_of(error))
