"""Typed errors of the runtime, and the one table that gives each its HTTP and its gRPC status.

An error says what was wrong, in which field, and what would have been accepted. Protocols only translate.
"""

from enum import StrEnum
from typing import NamedTuple


class ErrorCode(StrEnum):
    """Why a request failed: in the error body, and as `reason` in the metrics. The set is closed."""

    INVALID_ARGUMENT = "invalid_argument"
    NOT_FOUND = "not_found"
    ALREADY_EXISTS = "already_exists"
    UNAUTHENTICATED = "unauthenticated"
    PERMISSION_DENIED = "permission_denied"
    FAILED_PRECONDITION = "failed_precondition"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    BODY_TOO_LARGE = "body_too_large"
    HEADERS_TOO_LARGE = "headers_too_large"
    CLIENT_TOO_SLOW = "client_too_slow"
    QUEUE_FULL = "queue_full"
    NOT_READY = "not_ready"
    DRAINING = "draining"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    EXECUTION_FAILED = "execution_failed"
    UNSUPPORTED = "unsupported"
    INTERNAL = "internal"


class WireStatus(NamedTuple):
    """One row of the table: what each protocol calls the error."""

    http: int
    grpc: str
    """The name of a `grpc.StatusCode`."""
    retry_after_seconds: int | None = None
    """For a caller who may simply try again."""
    challenge: str | None = None
    """What `www-authenticate` asks for."""


STATUS: dict[ErrorCode, WireStatus] = {
    ErrorCode.INVALID_ARGUMENT: WireStatus(400, "INVALID_ARGUMENT"),
    ErrorCode.NOT_FOUND: WireStatus(404, "NOT_FOUND"),
    ErrorCode.ALREADY_EXISTS: WireStatus(409, "ALREADY_EXISTS"),
    ErrorCode.UNAUTHENTICATED: WireStatus(401, "UNAUTHENTICATED", challenge='MCP-SLA-Token realm="mcp2026"'),
    ErrorCode.PERMISSION_DENIED: WireStatus(403, "PERMISSION_DENIED"),
    ErrorCode.FAILED_PRECONDITION: WireStatus(409, "FAILED_PRECONDITION"),
    ErrorCode.METHOD_NOT_ALLOWED: WireStatus(405, "UNIMPLEMENTED"),
    ErrorCode.BODY_TOO_LARGE: WireStatus(413, "RESOURCE_EXHAUSTED"),
    ErrorCode.HEADERS_TOO_LARGE: WireStatus(431, "RESOURCE_EXHAUSTED"),
    ErrorCode.CLIENT_TOO_SLOW: WireStatus(408, "CANCELLED"),
    ErrorCode.QUEUE_FULL: WireStatus(503, "UNAVAILABLE", 1),
    ErrorCode.NOT_READY: WireStatus(503, "UNAVAILABLE", 1),
    ErrorCode.DRAINING: WireStatus(503, "UNAVAILABLE", 1),
    ErrorCode.DEADLINE_EXCEEDED: WireStatus(504, "DEADLINE_EXCEEDED"),
    ErrorCode.EXECUTION_FAILED: WireStatus(500, "INTERNAL"),
    ErrorCode.UNSUPPORTED: WireStatus(505, "UNIMPLEMENTED"),
    ErrorCode.INTERNAL: WireStatus(500, "INTERNAL"),
}


class RequestError(Exception):
    """One request cannot be served; the caller gets exactly this."""

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        field: str | None = None,
        allowed: str | None = None,
        rule: str | None = None,
    ) -> None:
        """`rule` is the keyword of the contract's schema that is broken, if it is one of those."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field
        self.allowed = allowed
        self.rule = rule


def invalid(field: str, problem: str, allowed: str, rule: str | None = None) -> RequestError:
    """Return the error for a field whose value is not accepted.

    `rule` is what JSON Schema calls the rule that is broken, of the contract or of the model.
    """
    return RequestError(ErrorCode.INVALID_ARGUMENT, f"{field}: {problem}", field, allowed, rule)


class StartupError(Exception):
    """The server cannot start. The text goes to the user as it stands, once."""


class ListenError(StartupError):
    """The address cannot be listened on."""


class AddressTakenError(ListenError):
    """Another process listens on the address."""


class ModelLoadError(StartupError):
    """A model file cannot be served."""

    def __init__(self, path: str, problem: str, remedy: str) -> None:
        super().__init__(f"cannot load model {path}: {problem}. {remedy}")
        self.path = path
