"""What grpcio is told and what it says, for its blocking and its asyncio channels."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import grpc

from mcp2026.api.names import BATCH_CAPABLE_HEADER
from mcp2026.client.errors import (
    ClientError,
    ConnectionFailedError,
    DeadlineExceededError,
    ProtocolError,
    Retry,
    error_of_grpc,
)
from mcp2026.client.exchange import GrpcRequest, Header
from mcp2026.client.operations.answers import error_of_text, retry_after

Options = Sequence[tuple[str, Any]]


class FailedCall(Protocol):
    """What a failed call of either kind of channel tells."""

    def code(self) -> grpc.StatusCode:
        """Return the status."""

    def details(self) -> str | None:
        """Return the text of the status."""

    def trailing_metadata(self) -> Any:
        """Return what the server sent after the answer."""

    def debug_error_string(self) -> str | None:
        """Return where the status comes from."""


def channel_options(max_answer_bytes: int) -> Options:
    """Return the options of a channel: retries are ours, and a server that is back is found soon."""
    return (
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", min(max_answer_bytes, 2**31 - 1)),
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
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
    """Return the error for a call that failed, in the server or before it."""
    status, details = call.code(), call.details() or ""
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceededError(f"no answer within {timeout:g} s", status=status.name)
    if not _is_of_server(call):
        if status is grpc.StatusCode.RESOURCE_EXHAUSTED:
            return ProtocolError(f"the answer has more than max_answer_bytes: {details}")
        if status is grpc.StatusCode.UNAVAILABLE:
            never_sent = details.startswith("failed to connect")
            return ConnectionFailedError(details, Retry.ALWAYS if never_sent else Retry.IF_IDEMPOTENT)
        return ProtocolError(f"{status.name}: {details}", status=status.name)
    seconds = retry_after(texts(call.trailing_metadata()).get("retry-after"))
    return error_of_grpc(status.name, error_of_text(details), seconds)


def _is_of_server(call: FailedCall) -> bool:
    """Return whether the server said it; grpcio says that nowhere else."""
    return "received from peer" in (call.debug_error_string() or "")
