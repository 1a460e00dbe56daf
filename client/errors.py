"""Typed errors of the client, and the one table of what a server's answer means for the caller.

An answer says why it failed up to three times: by the `code` in the body (our `/v1`, and details of gRPC), by
the HTTP status, by the gRPC status. The most exact one counts.
"""

from enum import Enum
from typing import NamedTuple


class Retry(Enum):
    """Whether the same request may be sent again."""

    NEVER = "never"
    IF_IDEMPOTENT = "if idempotent"
    """The server may have acted on it."""
    ALWAYS = "always"
    """The server has surely not acted on it."""


class ClientError(Exception):
    """Base of all errors that a call raises.

    `code` is the server's word for it (`queue_full`), empty if it gave none. `status` is the HTTP status
    (`503`) or the name of the gRPC status (`UNAVAILABLE`), None if there was no answer.
    """

    retry: Retry = Retry.NEVER

    def __init__(self, message: str, *, code: str = "", status: int | str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status


class InvalidRequestError(ClientError, ValueError):
    """The request cannot be accepted as it is; found by the server, or before anything was sent.

    `field` is the path of the offending field, `rule` the rule that it broke (`maximum`), `allowed` what
    would have been accepted. Each is None if the server did not say.
    """

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        rule: str | None = None,
        allowed: str | None = None,
        code: str = "",
        status: int | str | None = None,
    ) -> None:
        super().__init__(message, code=code, status=status)
        self.field = field
        self.rule = rule
        self.allowed = allowed


class ModelNotFoundError(ClientError):
    """The server has no such model, or no such version of it."""


class OverloadedError(ClientError):
    """The server takes no more for now: its queue is full, it is loading, or it is on its way out.

    `retry_after` is after how many seconds it wants to be asked again, None if it did not say.
    """

    def __init__(
        self,
        message: str,
        retry_after: float | None = None,
        *,
        code: str = "",
        status: int | str | None = None,
    ) -> None:
        super().__init__(message, code=code, status=status)
        self.retry_after = retry_after


class DeadlineExceededError(ClientError, TimeoutError):
    """There was no answer within the timeout of the call."""


class ServerError(ClientError):
    """The server failed at this request; another attempt would probably fail too."""


class ConnectionFailedError(ClientError, ConnectionError):
    """The server could not be reached, or the connection broke before the whole answer was there."""

    def __init__(self, message: str, retry: Retry) -> None:
        super().__init__(message)
        self.retry = retry


class ProtocolError(ClientError):
    """The answer is not what the protocol asks for, or is larger than `max_answer_bytes`."""


class ErrorBody(NamedTuple):
    """What an answer says about its failure."""

    message: str
    code: str = ""
    field: str | None = None
    rule: str | None = None
    allowed: str | None = None


_Kind = type[ClientError]

BY_CODE: dict[str, _Kind] = {
    "invalid_argument": InvalidRequestError,
    "not_found": ModelNotFoundError,
    "already_exists": InvalidRequestError,
    "unauthenticated": InvalidRequestError,
    "permission_denied": InvalidRequestError,
    "failed_precondition": InvalidRequestError,
    "method_not_allowed": InvalidRequestError,
    "body_too_large": InvalidRequestError,
    "headers_too_large": InvalidRequestError,
    "client_too_slow": DeadlineExceededError,
    "queue_full": OverloadedError,
    "not_ready": OverloadedError,
    "draining": OverloadedError,
    "deadline_exceeded": DeadlineExceededError,
    "execution_failed": ServerError,
    "unsupported": InvalidRequestError,
    "internal": ServerError,
}
"""By `code` of the error body. A code that is not here is newer than this client: the status counts."""

BY_HTTP_STATUS: dict[int, _Kind] = {
    404: ModelNotFoundError,
    408: DeadlineExceededError,
    429: OverloadedError,
    501: InvalidRequestError,
    503: OverloadedError,
    504: DeadlineExceededError,
    505: InvalidRequestError,
}
"""All other 4xx are InvalidRequestError, all other 5xx ServerError, anything else ProtocolError."""

BY_GRPC_STATUS: dict[str, _Kind] = {
    "CANCELLED": ServerError,
    "UNKNOWN": ServerError,
    "INVALID_ARGUMENT": InvalidRequestError,
    "DEADLINE_EXCEEDED": DeadlineExceededError,
    "NOT_FOUND": ModelNotFoundError,
    "ALREADY_EXISTS": InvalidRequestError,
    "PERMISSION_DENIED": InvalidRequestError,
    "RESOURCE_EXHAUSTED": InvalidRequestError,
    "FAILED_PRECONDITION": InvalidRequestError,
    "ABORTED": ServerError,
    "OUT_OF_RANGE": InvalidRequestError,
    "UNIMPLEMENTED": InvalidRequestError,
    "INTERNAL": ServerError,
    "UNAVAILABLE": OverloadedError,
    "DATA_LOSS": ServerError,
    "UNAUTHENTICATED": InvalidRequestError,
}


def error_of_http(status: int, body: ErrorBody, retry_after: float | None) -> ClientError:
    """Return the error for an answer over HTTP whose status is not the expected one.

    A 503 that says when to come back may be sent again; one that does not say (a deadline that passed in the
    queue, in Triton's way) is the caller's to decide.
    """
    kind = BY_CODE.get(body.code) or BY_HTTP_STATUS.get(status) or _kind_of_http_class(status)
    may_return = status == 503 and retry_after is not None
    return _error(kind, status, body, retry_after, Retry.ALWAYS if may_return else Retry.NEVER)


def error_of_grpc(status: str, body: ErrorBody, retry_after: float | None = None) -> ClientError:
    """Return the error for a call that the server ended with the status of this name.

    UNAVAILABLE may be sent again (https://grpc.github.io/grpc/core/md_doc_statuscodes.html), by itself only
    if that is harmless: a proxy says it also for a server that broke off.
    """
    kind = BY_CODE.get(body.code) or BY_GRPC_STATUS.get(status, ProtocolError)
    retry = Retry.NEVER
    if status == "UNAVAILABLE":
        retry = Retry.IF_IDEMPOTENT if retry_after is None else Retry.ALWAYS
    return _error(kind, status, body, retry_after, retry)


def _kind_of_http_class(status: int) -> _Kind:
    if 400 <= status < 500:
        return InvalidRequestError
    return ServerError if status >= 500 else ProtocolError


def _error(
    kind: _Kind, status: int | str, body: ErrorBody, retry_after: float | None, retry: Retry
) -> ClientError:
    if issubclass(kind, InvalidRequestError):
        return kind(
            body.message,
            field=body.field,
            rule=body.rule,
            allowed=body.allowed,
            code=body.code,
            status=status,
        )
    if issubclass(kind, OverloadedError):
        overloaded = kind(body.message, retry_after, code=body.code, status=status)
        overloaded.retry = retry
        return overloaded
    return kind(body.message, code=body.code, status=status)
