"""What grpcio is told and what it says, for its blocking and its asyncio channels."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import grpc

from mcp2026.api.contract.rpc_status import TRAILER, decode_status
from mcp2026.api.names import BATCH_CAPABLE_HEADER
from mcp2026.client.errors import (
    ClientError,
    ConnectionFailedError,
    DeadlineExceededError,
    ErrorBody,
    ProtocolError,
    Retry,
    error_of_grpc,
)
from mcp2026.client.exchange import GrpcRequest, Header
from mcp2026.client.operations.answers import error_of_text, retry_after

Options = Sequence[tuple[str, Any]]

_NEVER_SENT = "failed to connect to all addresses"
_NOT_GRPC = "Received http2 header with status"
_TOO_LARGE = "Received message larger than max"
_BROKEN = re.compile(
    r"Stream removed|Socket closed|recvmsg|sendmsg|Connection reset|Broken pipe|GOAWAY|keepalive"
)


class FailedCall(Protocol):
    """What a failed call of either kind of channel tells."""

    def code(self) -> grpc.StatusCode:
        """Return the status."""

    def details(self) -> str | None:
        """Return the text of the status."""

    def trailing_metadata(self) -> Any:
        """Return what the server sent after the answer."""


def channel_options(max_answer_bytes: int) -> Options:
    """Return the options of a channel: retries are ours, and a server that is back is found soon."""
    return (
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", min(max_answer_bytes, 2**31 - 1)),
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        # Despite its name how long one attempt to connect may take. A server that is far or busy needs time.
        ("grpc.min_reconnect_backoff_ms", 20_000),
        ("grpc.max_reconnect_backoff_ms", 1_000),
    )


def metadata_of(request: GrpcRequest, batch_capable: str) -> tuple[Header, ...]:
    """Return the metadata of `request`; `batch_capable` is that of requests that may share a batch."""
    if not (request.batchable and batch_capable):
        return request.metadata
    return (*request.metadata, (BATCH_CAPABLE_HEADER, batch_capable))


def texts(metadata: Iterable[tuple[str, str | bytes]] | None) -> dict[str, str]:
    """Return the metadata that is text."""
    return {name: value for name, value in metadata or () if isinstance(value, str)}


def error_of(call: FailedCall, timeout: float) -> ClientError:
    """Return the error for a call that failed, in the server or on the way to it.

    grpcio tells the two apart by its texts alone; what it does not say itself is the server's.
    """
    status, details = call.code(), call.details() or ""
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceededError(f"no answer within {timeout:g} s", status=status.name)
    if status is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in details:
        return ProtocolError(f"the answer has more than max_answer_bytes: {details}")
    if status is grpc.StatusCode.UNIMPLEMENTED and details.startswith(_NOT_GRPC):
        return ProtocolError(f"no gRPC is spoken here; is it the HTTP port? {details}", status=status.name)
    if status is grpc.StatusCode.UNAVAILABLE and details.startswith(_NEVER_SENT):
        return ConnectionFailedError(details, Retry.ALWAYS)
    if status is grpc.StatusCode.UNAVAILABLE and _BROKEN.search(details):
        return ConnectionFailedError(details, Retry.IF_IDEMPOTENT)
    trailers = tuple(call.trailing_metadata() or ())
    seconds = retry_after(texts(trailers).get("retry-after"))
    return error_of_grpc(status.name, _detail(trailers) or error_of_text(details), seconds)


def _detail(trailers: Iterable[tuple[str, str | bytes]]) -> ErrorBody | None:
    """Return what our own API says about an error beside its status."""
    for name, value in trailers:
        if name == TRAILER and isinstance(value, bytes):
            detail = decode_status(value)
            if detail is not None:
                return ErrorBody(detail.message, detail.code, detail.field, detail.rule, detail.allowed)
    return None
