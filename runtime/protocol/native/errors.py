"""From what breaks the contract to the error of a request, and from that to the end of a gRPC call."""

from google.protobuf.message import DecodeError

from mcp2026.api.contract.rpc_status import TRAILER, ErrorDetail, encode_status
from mcp2026.api.contract.violations import ContractError
from mcp2026.api.grpc_codes import GrpcCode
from mcp2026.api.scheduling_context import SchedulingContext
from mcp2026.runtime.errors import STATUS, ErrorCode, RequestError
from mcp2026.runtime.protocol.context_headers import Fields, context_fields
from mcp2026.runtime.protocol.grpc.service import Reply

_TRAILER = TRAILER.encode()
_MOST_CHARACTERS = 1_000
"""Of each text of an error that travels in trailers: clients take 8 KiB of them."""

INTERNAL = RequestError(ErrorCode.INTERNAL, "the server failed; its log says why")


def refused(error: ContractError) -> RequestError:
    """Return the error of a request that breaks the contract."""
    return RequestError(ErrorCode.INVALID_ARGUMENT, error.message, error.field, error.allowed, error.rule)


def unreadable(message: str, error: DecodeError) -> RequestError:
    """Return the error for bytes that are no `message`."""
    allowed = f"a message {message}"
    return RequestError(ErrorCode.INVALID_ARGUMENT, f"body: {error}", "body", allowed, "type")


def error_reply(error: RequestError, context: SchedulingContext | None = None) -> Reply:
    """Return `error` as the end of a call, with all that the body over HTTP would say.

    Without a context, the transport names its trace.
    """
    code = GrpcCode[STATUS[error.code].grpc]
    message = error.message[:_MOST_CHARACTERS]
    allowed = error.allowed and error.allowed[:_MOST_CHARACTERS]
    detail = ErrorDetail(error.code.value, message, error.field, error.rule, allowed)
    trailers: Fields = ((_TRAILER, encode_status(code, detail)),)
    if context is not None:
        trailers += context_fields(context)
    return Reply(code=code, detail=message, trailers=trailers)
