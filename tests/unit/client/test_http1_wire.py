"""One connection of HTTP/1.1: bytes out, bytes in, and what is known when it breaks."""

import pytest

from mcp2026.api.batching_negotiation import NegotiatedBatching
from mcp2026.client.addresses import parse_address
from mcp2026.client.errors import ConnectionFailedError, ProtocolError, Retry
from mcp2026.client.exchange import HttpRequest, HttpResponse
from mcp2026.client.wire.http1 import Http1Wire

ADDRESS = parse_address("http://localhost:8080/below")
ASK = HttpRequest("POST", "/v2/x", (("a", "b"),), (b"head", memoryview(b"tensor")), batchable=True)
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nA: b\r\n\r\nbody"


def asked(request: HttpRequest = ASK, *, limit: int = 100) -> Http1Wire:
    wire = Http1Wire(ADDRESS, limit)
    wire.ask(request)
    return wire


def test_a_request_has_these_bytes() -> None:
    wire = Http1Wire(ADDRESS, 100)
    assert b"".join(wire.ask(ASK, "1; min-size=4")) == (
        b"POST /below/v2/x HTTP/1.1\r\nhost: localhost:8080\r\na: b\r\ncontent-length: 10\r\n"
        b"x-mcp-batch-capable: 1; min-size=4\r\n\r\nheadtensor"
    )


def test_large_tensors_are_not_copied() -> None:
    tensor = memoryview(bytearray(20_000))
    parts = Http1Wire(ADDRESS, 100).ask(HttpRequest("POST", "/", body=(b"small", tensor)))
    assert len(parts) == 2
    assert parts[1] is tensor


@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_an_answer_may_come_in_pieces(size: int) -> None:
    wire = asked()
    pieces = [ANSWER[start : start + size] for start in range(0, len(ANSWER), size)]
    answers = [answer for piece in pieces if (answer := wire.receive(piece)) is not None]
    assert answers == [HttpResponse(200, {"content-length": "4", "a": "b"}, bytearray(b"body"))]
    assert wire.reusable


@pytest.mark.parametrize(
    ("answer", "reusable"),
    [
        (ANSWER, True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nbody", False),
    ],
)
def test_a_connection_is_used_again_unless_the_server_says_otherwise(answer: bytes, reusable: bool) -> None:
    wire = asked()
    response = wire.receive(answer)
    assert response is not None
    assert response.body == b"body"
    assert wire.reusable is reusable


def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    wire = asked()
    assert wire.receive(b"HTTP/1.1 200 OK\r\n\r\nbo") is None
    assert wire.receive(b"dy") is None
    response = wire.receive(b"")
    assert response is not None
    assert (response.body, wire.reusable) == (b"body", False)


def test_early_hints_come_before_the_answer() -> None:
    wire = asked()
    hint = b"HTTP/1.1 103 Early Hints\r\nmcp-batching: active; max-delay-ms=20; min-size=4\r\n\r\n"
    assert wire.receive(hint) is None
    response = wire.receive(b"HTTP/1.1 102 Processing\r\n\r\n" + ANSWER)
    assert response is not None
    assert (response.status, response.batching) == (200, NegotiatedBatching(20, 4))
    wire.ask(ASK)
    second = wire.receive(ANSWER)
    assert second is not None
    assert second.batching is None


@pytest.mark.parametrize(
    ("received", "retry"),
    [
        (b"", Retry.IF_IDEMPOTENT),
        (b"H", Retry.NEVER),
        (b"HTTP/1.1 100 Continue\r\n\r\n", Retry.NEVER),
        (ANSWER[:-1], Retry.NEVER),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n", Retry.NEVER),
    ],
)
def test_a_connection_that_breaks_before_the_answer_began_allows_another_try(
    received: bytes, retry: Retry
) -> None:
    wire = asked()
    if received:
        assert wire.receive(received) is None
    assert wire.lost("reset").retry is retry
    with pytest.raises(ConnectionFailedError) as broken:
        wire.receive(b"")
    assert broken.value.retry is retry
    assert not wire.reusable


@pytest.mark.parametrize(
    ("received", "says"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "not HTTP/1.1"),
        (b"\0" * 100_000, "not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20_000, "not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\n", "not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n", "more than max_answer_bytes=100"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 101, "more than max_answer_bytes=100"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", "compressed"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "not HTTP/1.1"),
    ],
)
def test_what_is_no_answer_is_refused(received: bytes, says: str) -> None:
    wire = asked()
    with pytest.raises(ProtocolError, match=says):
        wire.receive(received)
    assert not wire.reusable


def test_bytes_that_nobody_asked_for_make_a_connection_useless() -> None:
    wire = asked()
    assert wire.receive(ANSWER + b"HTTP/1.1 200 OK\r\n\r\n") is not None
    assert not wire.reusable
