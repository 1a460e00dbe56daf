"""Calls as frames: what no well-behaved client library sends, and what callers get for it."""

import asyncio
import gzip

import pytest

from mcp2026.api.grpc_codes import GrpcCode
from mcp2026.runtime.protocol.exchange import Cancel
from mcp2026.runtime.protocol.grpc.calls import GrpcCalls
from mcp2026.runtime.protocol.grpc.framing import framed, framed_gzip
from mcp2026.runtime.protocol.grpc.service import (
    CallHead,
    Inbound,
    Outbound,
    Reply,
    Respond,
    StreamMethod,
    UnaryMethod,
)
from mcp2026.runtime.protocol.http2 import frames
from mcp2026.runtime.protocol.http2.request_headers import RequestHeaders
from mcp2026.runtime.protocol.http2.stream import Consumer, Stream
from mcp2026.runtime.protocol.inflating import Room
from tests.unit.runtime.http2_client import Field, Frame, Server, data, headers, of_kind


class Echo:
    """One unary and one streaming method that send back what they get; `/s/Never` does not."""

    closing = False

    def __init__(self) -> None:
        self.events: list[str] = []
        self.left = asyncio.Event()
        self.respond: Respond | None = None
        self.outbound: Outbound | None = None

    def unary(self, path: str) -> UnaryMethod | None:
        return {"/s/Echo": self._echo, "/s/Never": self._never}.get(path)

    def streaming(self, path: str) -> StreamMethod | None:
        return self._stream if path == "/s/Stream" else None

    def _echo(self, _head: CallHead, message: bytes, respond: Respond) -> Cancel | None:
        respond(Reply(message))
        return None

    def _never(self, _head: CallHead, _message: bytes, respond: Respond) -> Cancel | None:
        self.respond = respond
        return self.cancelled

    def _stream(self, _head: CallHead, outbound: Outbound) -> Inbound:
        self.outbound = outbound
        return self

    def message(self, message: bytes) -> None:
        self.events.append(message.decode())
        assert self.outbound is not None
        self.outbound.send(message)

    def half_closed(self) -> None:
        self.events.append("half closed")
        assert self.outbound is not None
        self.outbound.finish()

    def cancelled(self) -> None:
        self.events.append("cancelled")
        self.left.set()


class Caller:
    """Sends frames to a server of `Echo`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, max_message_bytes: int = 1_000) -> None:
        self.service = Echo()
        self._calls = GrpcCalls(self.service, max_message_bytes, Room(1 << 30), loop)
        self.server = Server(consume=self._begin)
        self.server.now = loop.time()

    def _begin(self, stream: Stream, request: RequestHeaders) -> Consumer:
        assert request.is_grpc
        return self._calls.begin(stream, request)

    def call(self, path: bytes, *body: bytes, end: bool = True, more: tuple[Field, ...] = ()) -> list[Frame]:
        """Send one call on stream 1 and return what comes back."""
        fields = (
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", path),
            (b"content-type", b"application/grpc+proto"),
            *more,
        )
        sent = [headers(1, fields, end=False), *(data(1, piece) for piece in body)]
        return self.server.send(*sent, *([data(1, b"", end=True)] if end else []))

    def status(self, sent: list[Frame]) -> tuple[GrpcCode, str]:
        """Return the status in the last HEADERS."""
        last = [dict(self.server.fields(frame)) for frame in of_kind(sent, frames.HEADERS)][-1]
        return GrpcCode(int(last[b"grpc-status"])), last.get(b"grpc-message", b"").decode()


@pytest.fixture
async def caller() -> Caller:
    return Caller(asyncio.get_running_loop())


def body(sent: list[Frame]) -> bytes:
    return b"".join(frame.payload for frame in of_kind(sent, frames.DATA))


async def test_a_reply_is_headers_data_and_trailers(caller: Caller) -> None:
    sent = caller.call(b"/s/Echo", framed(b"hello"))
    assert [frame.kind for frame in sent] == [frames.HEADERS, frames.DATA, frames.HEADERS]
    first = dict(caller.server.fields(sent[0]))
    assert first == {b":status": b"200", b"content-type": b"application/grpc"}
    assert sent[1].payload == framed(b"hello")
    assert caller.server.fields(sent[2]) == [(b"grpc-status", b"0")]
    assert sent[2].flags & frames.END_STREAM


async def test_a_message_in_single_bytes(caller: Caller) -> None:
    message = framed(b"hello")
    sent = caller.call(b"/s/Echo", *(message[n : n + 1] for n in range(len(message))))
    assert body(sent) == message


@pytest.mark.parametrize(
    ("path", "pieces", "more", "code", "word"),
    [
        pytest.param(b"/s/No", [framed(b"")], (), GrpcCode.UNIMPLEMENTED, "/s/No", id="unknown method"),
        pytest.param(b"/s/Echo", [], (), GrpcCode.UNIMPLEMENTED, "no message", id="no message"),
        pytest.param(
            b"/s/Echo",
            [framed(b"a"), framed(b"b")],
            (),
            GrpcCode.UNIMPLEMENTED,
            "more than one",
            id="two messages",
        ),
        pytest.param(
            b"/s/Echo",
            [framed(b"a") + framed(b"b")],
            (),
            GrpcCode.UNIMPLEMENTED,
            "more than one",
            id="two at once",
        ),
        pytest.param(
            b"/s/Echo", [framed(b"abc")[:-1]], (), GrpcCode.INTERNAL, "cut off", id="half a message"
        ),
        pytest.param(b"/s/Echo", [b"\0\0"], (), GrpcCode.INTERNAL, "cut off", id="half a prefix"),
        pytest.param(
            b"/s/Stream", [b"\0\0\0\0\x09x"], (), GrpcCode.INTERNAL, "cut off", id="half, streaming"
        ),
        pytest.param(b"/s/Echo", [b"\x07\0\0\0\0"], (), GrpcCode.INTERNAL, "first byte", id="odd flag"),
        pytest.param(
            b"/s/Echo", [framed(bytes(1_001))], (), GrpcCode.RESOURCE_EXHAUSTED, "1000", id="too large"
        ),
        pytest.param(
            b"/s/Stream", [b"\0\xff\xff\xff\xff"], (), GrpcCode.RESOURCE_EXHAUSTED, "1000", id="far too large"
        ),
        pytest.param(
            b"/s/Echo",
            [framed_gzip(bytes(100_000))],
            ((b"grpc-encoding", b"gzip"),),
            GrpcCode.RESOURCE_EXHAUSTED,
            "1000",
            id="too large when unpacked",
        ),
        pytest.param(
            b"/s/Echo",
            [framed_gzip(b"a")],
            (),
            GrpcCode.INTERNAL,
            "grpc-encoding",
            id="compressed without saying so",
        ),
        pytest.param(
            b"/s/Echo",
            [framed(b"a")],
            ((b"grpc-encoding", b"zstd"),),
            GrpcCode.UNIMPLEMENTED,
            "zstd",
            id="unknown encoding",
        ),
        pytest.param(
            b"/s/Echo",
            [framed(b"a")],
            ((b"grpc-timeout", b"soon"),),
            GrpcCode.INVALID_ARGUMENT,
            "grpc-timeout",
            id="no timeout",
        ),
    ],
)
async def test_faults_get_a_status(
    caller: Caller, path: bytes, pieces: list[bytes], more: tuple[Field, ...], code: GrpcCode, word: str
) -> None:
    found, detail = caller.status(caller.call(path, *pieces, more=more))
    assert found is code
    assert word in detail
    assert caller.server.core.streams == {}


async def test_an_unknown_encoding_is_answered_with_the_known_ones(caller: Caller) -> None:
    sent = caller.call(b"/s/Echo", framed(b"a"), more=((b"grpc-encoding", b"zstd"),))
    assert dict(caller.server.fields(sent[0]))[b"grpc-accept-encoding"] == b"identity,gzip,deflate"


async def test_a_call_that_fails_early_stops_what_the_caller_sends(caller: Caller) -> None:
    sent = caller.call(b"/s/No", end=False)
    assert [frame.kind for frame in sent] == [frames.HEADERS, frames.RST_STREAM]
    assert sent[-1].code == 0


async def test_a_caller_that_compresses_gets_compressed_replies() -> None:
    caller = Caller(asyncio.get_running_loop(), 10_000_000)
    more = ((b"grpc-encoding", b"gzip"),)
    sent = caller.call(b"/s/Echo", framed_gzip(bytes(5_000)), more=more)
    assert dict(caller.server.fields(sent[0]))[b"grpc-encoding"] == b"gzip"
    assert body(sent)[:1] == b"\x01"
    assert gzip.decompress(body(sent)[5:]) == bytes(5_000)


async def test_a_deadline_is_kept_for_a_caller_that_only_waits(caller: Caller) -> None:
    assert caller.call(b"/s/Never", framed(b"a"), more=((b"grpc-timeout", b"30m"),)) == []
    await asyncio.wait_for(caller.service.left.wait(), 10)
    assert caller.status(caller.server.sent()) == (GrpcCode.DEADLINE_EXCEEDED, "the deadline has passed")
    assert caller.service.respond is not None
    caller.service.respond(Reply(b"late"))
    assert caller.server.sent() == []


async def test_the_deadline_of_a_stream_is_kept_too(caller: Caller) -> None:
    caller.call(b"/s/Stream", framed(b"a"), end=False, more=((b"grpc-timeout", b"30m"),))
    await asyncio.wait_for(caller.service.left.wait(), 10)
    assert caller.service.events == ["a", "cancelled"]
    assert caller.status(caller.server.sent())[0] is GrpcCode.DEADLINE_EXCEEDED


async def test_nothing_reaches_a_service_after_its_end(caller: Caller) -> None:
    caller.call(b"/s/Stream", framed(b"a"), end=False)
    assert caller.service.outbound is not None
    caller.service.outbound.finish(GrpcCode.ABORTED, "enough")
    caller.service.outbound.finish()
    caller.service.outbound.send(b"more")
    caller.server.send(data(1, framed(b"b"), end=True))
    assert caller.service.events == ["a"]
    assert caller.server.core.streams == {}


async def test_a_stream_owes_nothing_between_messages(caller: Caller) -> None:
    caller.call(b"/s/Stream", framed(b"a"), end=False)
    (stream,) = caller.server.core.streams.values()
    assert stream.consumer.awaiting_since is None
    assert stream.held == 0
    caller.server.send(data(1, framed(b"b") + b"\0\0"))
    assert stream.consumer.awaiting_since == caller.server.now
    assert stream.held == 2
    stream.consumer.too_slow()
    assert caller.status(caller.server.sent())[0] is GrpcCode.CANCELLED
    assert caller.service.events == ["a", "b", "cancelled"]
