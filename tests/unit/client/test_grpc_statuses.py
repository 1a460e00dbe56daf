"""How a call over gRPC failed, in the server or on the way: grpcio tells it by status, text and trailers."""

from typing import NamedTuple

import grpc
import pytest

from mcp2026.api.contract.rpc_status import TRAILER, ErrorDetail, encode_status
from mcp2026.client.errors import (
    ClientError,
    ConnectionFailedError,
    DeadlineExceededError,
    InvalidRequestError,
    ModelNotFoundError,
    OverloadedError,
    ProtocolError,
    Retry,
)
from mcp2026.client.exchange import GrpcRequest, GrpcResponse
from mcp2026.client.grpc_calls import error_of, metadata_of

DETAIL = ErrorDetail("invalid_argument", "weight: 101 is too much", "weight", "maximum", "0 to 100")


class Failed(NamedTuple):
    """A call as grpcio returns it."""

    status: grpc.StatusCode
    text: str | None = None
    trailers: tuple[tuple[str, str | bytes], ...] = ()

    def code(self) -> grpc.StatusCode:
        return self.status

    def details(self) -> str | None:
        return self.text

    def trailing_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        return self.trailers


@pytest.mark.parametrize(
    ("failed", "kind", "retry"),
    [
        (Failed(grpc.StatusCode.NOT_FOUND, "no model"), ModelNotFoundError, Retry.NEVER),
        (Failed(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"), DeadlineExceededError, Retry.NEVER),
        (Failed(grpc.StatusCode.UNAVAILABLE, "too many"), OverloadedError, Retry.IF_IDEMPOTENT),
        (Failed(grpc.StatusCode.UNAVAILABLE, None), OverloadedError, Retry.IF_IDEMPOTENT),
        (
            Failed(grpc.StatusCode.UNAVAILABLE, "too many", (("retry-after", "1"),)),
            OverloadedError,
            Retry.ALWAYS,
        ),
        (
            Failed(grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses; last error: refused"),
            ConnectionFailedError,
            Retry.ALWAYS,
        ),
        (
            Failed(grpc.StatusCode.UNAVAILABLE, "Stream removed (recvmsg:Connection reset by peer (104))"),
            ConnectionFailedError,
            Retry.IF_IDEMPOTENT,
        ),
        (Failed(grpc.StatusCode.UNAVAILABLE, "Socket closed"), ConnectionFailedError, Retry.IF_IDEMPOTENT),
        (
            Failed(grpc.StatusCode.RESOURCE_EXHAUSTED, "CLIENT: Received message larger than max (9 vs. 4)"),
            ProtocolError,
            Retry.NEVER,
        ),
        (
            Failed(grpc.StatusCode.UNIMPLEMENTED, "Received http2 header with status: 404"),
            ProtocolError,
            Retry.NEVER,
        ),
        (Failed(grpc.StatusCode.RESOURCE_EXHAUSTED, "body too large"), InvalidRequestError, Retry.NEVER),
    ],
)
def test_a_failed_call_is_the_error_that_it_means(
    failed: Failed, kind: type[ClientError], retry: Retry
) -> None:
    error = error_of(failed, 1.0)
    assert (type(error), error.retry) == (kind, retry)


def test_our_own_api_says_more_in_a_trailer() -> None:
    trailers = ((TRAILER, encode_status(3, DETAIL)), ("retry-after", "soon"))
    error = error_of(Failed(grpc.StatusCode.INVALID_ARGUMENT, "short", trailers), 1.0)
    assert isinstance(error, InvalidRequestError)
    said = (error.code, error.message, error.field, error.rule, error.allowed)
    assert said == DETAIL


@pytest.mark.parametrize("trailer", [b"", b"\xff\xff", "text"])
def test_a_trailer_that_makes_no_sense_leaves_the_status(trailer: bytes | str) -> None:
    error = error_of(
        Failed(grpc.StatusCode.INVALID_ARGUMENT, "x: y (allowed: z)", ((TRAILER, trailer),)), 1.0
    )
    assert isinstance(error, InvalidRequestError)
    assert (error.field, error.allowed, error.status) == ("x", "z", "INVALID_ARGUMENT")


def test_only_what_may_share_a_batch_says_so() -> None:
    asked = GrpcRequest("/s/m", b"", (("a", "b"),), batchable=True)
    assert metadata_of(asked, "1") == (("a", "b"), ("x-mcp-batch-capable", "1"))
    assert metadata_of(asked, "") == (("a", "b"),)
    assert metadata_of(asked._replace(batchable=False), "1") == (("a", "b"),)


@pytest.mark.parametrize("said", ["perhaps", "active", "active; max-delay-ms=70000; min-size=1", "ü"])
def test_a_negotiated_result_that_makes_no_sense_is_none(said: str) -> None:
    assert GrpcResponse(b"", {"mcp-batching": said}).batching is None
