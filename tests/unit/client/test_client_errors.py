"""What a server's answer means for the caller: by its code, its HTTP status, its gRPC status."""

import grpc
import pytest

from mcp2026.client.errors import (
    BY_CODE,
    BY_GRPC_STATUS,
    ClientError,
    ConnectionFailedError,
    DeadlineExceededError,
    ErrorBody,
    InvalidRequestError,
    ModelNotFoundError,
    OverloadedError,
    ProtocolError,
    Retry,
    ServerError,
    error_of_grpc,
    error_of_http,
)
from mcp2026.client.exchange import HttpResponse
from mcp2026.client.operations.answers import error_body, retry_after, succeeded
from mcp2026.runtime.errors import STATUS, ErrorCode


@pytest.mark.parametrize("code", ErrorCode)
def test_every_error_of_our_server_is_the_same_over_both_protocols(code: ErrorCode) -> None:
    wire = STATUS[code]
    over_http = error_of_http(wire.http, ErrorBody("m", code), wire.retry_after_seconds)
    over_grpc = error_of_grpc(wire.grpc, ErrorBody("m", code), wire.retry_after_seconds)
    assert type(over_http) is type(over_grpc) is BY_CODE[code]
    assert (over_http.status, over_grpc.status) == (wire.http, wire.grpc)
    assert over_http.retry is over_grpc.retry


def test_the_table_knows_every_status_of_grpc() -> None:
    assert set(BY_GRPC_STATUS) == {status.name for status in grpc.StatusCode} - {"OK"}


@pytest.mark.parametrize(
    ("status", "after", "kind", "retry"),
    [
        (400, None, InvalidRequestError, Retry.NEVER),
        (401, None, InvalidRequestError, Retry.NEVER),
        (404, None, ModelNotFoundError, Retry.NEVER),
        (413, None, InvalidRequestError, Retry.NEVER),
        (429, 1.0, OverloadedError, Retry.NEVER),
        (500, None, ServerError, Retry.NEVER),
        (502, 1.0, ServerError, Retry.NEVER),
        (503, 1.0, OverloadedError, Retry.ALWAYS),
        (503, None, OverloadedError, Retry.NEVER),
        (504, None, DeadlineExceededError, Retry.NEVER),
        (302, None, ProtocolError, Retry.NEVER),
    ],
)
def test_a_status_of_http_alone(
    status: int, after: float | None, kind: type[ClientError], retry: Retry
) -> None:
    error = error_of_http(status, ErrorBody("m"), after)
    assert (type(error), error.retry, error.status, str(error)) == (kind, retry, status, "m")


def test_a_code_of_a_newer_server_leaves_the_status_to_decide() -> None:
    assert type(error_of_http(400, ErrorBody("m", "too_blue"), None)) is InvalidRequestError


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"error": "no such thing"}', ErrorBody("no such thing")),
        (
            b'{"error": "inputs.x: has 3 rows (allowed: at most 2)"}',
            ErrorBody("inputs.x: has 3 rows (allowed: at most 2)", field="inputs.x", allowed="at most 2"),
        ),
        (
            b'{"error": {"code": "not_found", "message": "m", "field": "f", "rule": "r", "allowed": "a"}}',
            ErrorBody("m", "not_found", "f", "r", "a"),
        ),
        (b'{"error": {"code": "internal", "message": "m", "field": 7}}', ErrorBody("m", "internal")),
        (b'{"detail": "Not Found"}', None),
        (b'{"error": 7}', None),
        (b"[1]", None),
        (b"<html>", None),
        (b"\xff\xfe", None),
        (b"", None),
    ],
)
def test_an_error_body_is_read_in_every_form(body: bytes, expected: ErrorBody | None) -> None:
    assert error_body(body) == expected


def test_a_path_that_a_server_does_not_know_is_not_a_model_that_it_does_not_have() -> None:
    with pytest.raises(ProtocolError, match="does not know the path: '<html>'"):
        succeeded(HttpResponse(404, {}, bytearray(b"<html>")))
    with pytest.raises(ModelNotFoundError):
        succeeded(HttpResponse(404, {}, bytearray(b'{"error": "no model"}')))


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("1", 1.0),
        ("120", 120.0),
        (None, None),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("²", None),
        ("9" * 9, None),
    ],
)
def test_retry_after_is_seconds_or_nothing(value: str | None, seconds: float | None) -> None:
    assert retry_after(value) == seconds


def test_errors_are_also_what_python_calls_them() -> None:
    broken = ConnectionFailedError("broken", Retry.ALWAYS)
    assert isinstance(broken, ConnectionError)
    assert (str(broken), broken.message, broken.retry) == ("broken", "broken", Retry.ALWAYS)
    assert isinstance(DeadlineExceededError("late"), TimeoutError)
    assert str(DeadlineExceededError("late")) == "late"
    assert isinstance(InvalidRequestError("bad"), ValueError)
