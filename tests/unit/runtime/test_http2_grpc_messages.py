"""The messages and headers of gRPC calls as bytes."""

import gzip
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp2026.api.grpc_codes import GrpcCode
from mcp2026.runtime.protocol.grpc.framing import (
    CallFailedError,
    MessageReader,
    decompress,
    framed,
    framed_gzip,
)
from mcp2026.runtime.protocol.grpc.health import ServingStatus, read_request, response
from mcp2026.runtime.protocol.grpc.metadata import binary_value, percent_encoded, read_timeout, trailers
from mcp2026.runtime.protocol.http2.header_decoder import HeaderDecoder
from mcp2026.runtime.protocol.inflating import Room

ROOM = Room(1_000_000)


@given(st.lists(st.binary(max_size=50), max_size=10), st.lists(st.integers(1, 20), min_size=1, max_size=10))
def test_messages_are_found_however_they_are_cut(messages: list[bytes], steps: list[int]) -> None:
    body = b"".join(framed_gzip(one) if n % 3 == 2 else framed(one) for n, one in enumerate(messages))
    reader = MessageReader(b"gzip", 1_000, ROOM)
    found: list[bytes] = []
    turn = 0
    while body:
        size = steps[turn % len(steps)]
        found += reader.feed(body[:size])
        body = body[size:]
        turn += 1
    assert found == messages
    assert reader.unfinished == 0
    assert reader.compressed == (len(messages) > 2)


@pytest.mark.parametrize(
    ("encoding", "sent", "code"),
    [
        pytest.param(b"identity", b"\0\0\0\x03\xe9", GrpcCode.RESOURCE_EXHAUSTED, id="too large"),
        pytest.param(b"identity", b"\x02\0\0\0\0", GrpcCode.INTERNAL, id="unknown flag"),
        pytest.param(b"identity", b"\x01\0\0\0\x01x", GrpcCode.INTERNAL, id="compressed without saying how"),
        pytest.param(b"gzip", b"\x01\0\0\0\x04abcd", GrpcCode.INTERNAL, id="not gzip"),
    ],
)
def test_what_is_no_message_is_refused(encoding: bytes, sent: bytes, code: GrpcCode) -> None:
    with pytest.raises(CallFailedError) as failure:
        MessageReader(encoding, 1_000, ROOM).feed(sent)
    assert failure.value.code is code


@pytest.mark.parametrize(("encoding", "pack"), [(b"gzip", gzip.compress), (b"deflate", zlib.compress)])
def test_a_small_message_cannot_become_a_large_one(encoding: bytes, pack: Callable[[bytes], bytes]) -> None:
    packed = pack(bytes(50_000_000))
    assert len(packed) < 100_000
    with pytest.raises(CallFailedError) as failure:
        decompress(packed, encoding, 100_000, ROOM)
    assert failure.value.code is GrpcCode.RESOURCE_EXHAUSTED
    assert decompress(pack(bytes(100_000)), encoding, 100_000, ROOM) == bytes(100_000)
    with pytest.raises(CallFailedError) as failure:
        decompress(packed, encoding, 100_000_000, ROOM)
    assert failure.value.code is GrpcCode.UNAVAILABLE


def test_a_compressed_message_that_is_cut_off_is_refused() -> None:
    with pytest.raises(CallFailedError, match="ends too early"):
        decompress(gzip.compress(b"x" * 100)[:-9], b"gzip", 1_000, ROOM)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        (None, None),
        (b"1H", 3_600_000_000_000),
        (b"2M", 120_000_000_000),
        (b"3S", 3_000_000_000),
        (b"4m", 4_000_000),
        (b"99999999u", 99_999_999_000),
        (b"0n", 0),
    ],
)
def test_timeouts(text: bytes | None, ns: int | None) -> None:
    assert read_timeout(text) == ns


@pytest.mark.parametrize("text", [b"", b"1", b"S", b"123456789S", b"-1S", b"1s", b"1.5S", b" 1S"])
def test_timeouts_that_are_none(text: bytes) -> None:
    with pytest.raises(CallFailedError, match="grpc-timeout"):
        read_timeout(text)


@pytest.mark.parametrize(
    ("detail", "sent"),
    [
        ("plain text!", b"plain text!"),
        ("100%", b"100%25"),
        ("a\nb", b"a%0Ab"),
        ("größer", b"gr%C3%B6%C3%9Fer"),
        ("é" * 4_000, b"%C3%A9" * 2_048),
    ],
)
def test_status_messages_are_percent_encoded_and_limited(detail: str, sent: bytes) -> None:
    assert percent_encoded(detail) == sent


def test_binary_metadata_is_sent_as_base64_and_read_with_or_without_padding() -> None:
    block = trailers(GrpcCode.OK, "", ((b"a-bin", b"\0\xff\0\xff"), (b"b", b"text")))
    fields = dict(HeaderDecoder().decode(block, 10_000, 100))
    assert fields == {b"grpc-status": b"0", b"a-bin": b"AP8A/w", b"b": b"text"}
    assert binary_value(b"AP8A/w") == binary_value(b"AP8A/w==") == b"\0\xff\0\xff"
    with pytest.raises(ValueError, match="base64"):
        binary_value(b"*")


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (b"", ""),
        (b"\x0a\x03abc", "abc"),
        (b"\x0a\x01a\x0a\x01b", "b"),
        (b"\x10\x96\x01\x0a\x01a\x1d\0\0\0\0\x21\0\0\0\0\0\0\0\0\x2a\x01x", "a"),
    ],
)
def test_health_requests_are_read(message: bytes, name: str) -> None:
    assert read_request(message) == name


@pytest.mark.parametrize("message", [b"\x0a", b"\x0a\x05ab", b"\x0b", b"\x80", b"\x0a\x01\xff", b"\x80" * 20])
def test_health_requests_that_are_none(message: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # UnicodeDecodeError is one, too
        read_request(message)


def test_health_responses() -> None:
    assert [response(one) for one in ServingStatus] == [b"", b"\x08\x01", b"\x08\x02", b"\x08\x03"]
