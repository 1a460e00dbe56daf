"""What breaks the protocol, and the error code that answers it. Nothing of it may raise."""

import pytest

from mcp2026.runtime.protocol.http2 import frames
from mcp2026.runtime.protocol.http2.errors import Http2Code
from mcp2026.runtime.protocol.http2.frames import frame
from mcp2026.runtime.protocol.http2.limits import Http2Limits
from tests.unit.runtime.http2_client import GET, POST, START, Server, block, data, headers, of_kind

C = Http2Code
END = frames.END_HEADERS | frames.END_STREAM


def get(*changes: tuple[bytes, bytes], without: bytes = b"") -> bytes:
    """Return HEADERS of a GET with more fields, or without one."""
    return headers(1, (*(field for field in GET if field[0] != without), *changes))


def raw(part: bytes, flags: int = END, stream_id: int = 1) -> bytes:
    return frame(frames.HEADERS, flags, stream_id, part)


CONNECTION_ERRORS = {
    "first frame is no SETTINGS": (frames.PREFACE + frame(frames.PING, 0, 0, bytes(8)), C.PROTOCOL_ERROR),
    "first frame is an ACK": (frames.PREFACE + frame(frames.SETTINGS, 1, 0), C.PROTOCOL_ERROR),
    "no preface": (b"PRI * HTTP/2.0\r\n\r\nSX\r\n\r\n", C.PROTOCOL_ERROR),
    "frame too large": (START + frame(frames.DATA, 0, 1, bytes(16_385)), C.FRAME_SIZE_ERROR),
    "DATA on stream 0": (START + data(0, b"x"), C.PROTOCOL_ERROR),
    "DATA on an idle stream": (START + data(1, b"x"), C.PROTOCOL_ERROR),
    "DATA after stream was closed": (
        START + raw(block(GET)) + frames.reset_frame(1, 8) + data(1, b"x"),
        C.STREAM_CLOSED,
    ),
    "all padding and more": (
        START + headers(1, POST, end=False) + frame(frames.DATA, frames.PADDED, 1, b"\x05abcd"),
        C.PROTOCOL_ERROR,
    ),
    "no room for the padding's length": (
        START + headers(1, POST, end=False) + frame(frames.DATA, frames.PADDED, 1, b""),
        C.FRAME_SIZE_ERROR,
    ),
    "HEADERS on stream 0": (START + raw(block(GET), stream_id=0), C.PROTOCOL_ERROR),
    "HEADERS on an even stream": (START + raw(block(GET), stream_id=2), C.PROTOCOL_ERROR),
    "a stream number that was passed over": (START + headers(5) + headers(3), C.PROTOCOL_ERROR),
    "HEADERS too short for its priority": (
        START + raw(b"\0\0", END | frames.WITH_PRIORITY),
        C.FRAME_SIZE_ERROR,
    ),
    "index 0": (START + raw(b"\x80"), C.COMPRESSION_ERROR),
    "index beyond the table": (START + raw(b"\xbe"), C.COMPRESSION_ERROR),
    "endless integer": (START + raw(b"\xff" + b"\xff" * 20), C.COMPRESSION_ERROR),
    "string beyond the block": (START + raw(b"\x00\x05abc"), C.COMPRESSION_ERROR),
    "block ends inside a field": (START + raw(b"\x40"), C.COMPRESSION_ERROR),
    "Huffman padding of zeros": (START + raw(b"\x00\x81\x00\x01a"), C.COMPRESSION_ERROR),
    "Huffman padding too long": (START + raw(b"\x00\x82\x1f\xff\x01a"), C.COMPRESSION_ERROR),
    "Huffman end of string": (START + raw(b"\x00\x84\xff\xff\xff\xff\x01a"), C.COMPRESSION_ERROR),
    "table larger than allowed": (START + raw(b"\x3f\xe2\x1f" + block(GET)), C.COMPRESSION_ERROR),
    "table size after a field": (START + raw(block(GET) + b"\x20"), C.COMPRESSION_ERROR),
    "another frame inside a header block": (
        START + raw(block(GET), frames.END_STREAM) + frame(frames.PING, 0, 0, bytes(8)),
        C.PROTOCOL_ERROR,
    ),
    "another stream's CONTINUATION": (
        START + raw(block(GET), frames.END_STREAM) + frame(frames.CONTINUATION, 4, 3),
        C.PROTOCOL_ERROR,
    ),
    "CONTINUATION without HEADERS": (START + frame(frames.CONTINUATION, 4, 1), C.PROTOCOL_ERROR),
    "PRIORITY on stream 0": (START + frame(frames.PRIORITY, 0, 0, bytes(5)), C.PROTOCOL_ERROR),
    "RST_STREAM on stream 0": (START + frames.reset_frame(0, 8), C.PROTOCOL_ERROR),
    "RST_STREAM on an idle stream": (START + frames.reset_frame(1, 8), C.PROTOCOL_ERROR),
    "RST_STREAM too short": (START + frame(frames.RST_STREAM, 0, 1, b"\0\0\0"), C.FRAME_SIZE_ERROR),
    "SETTINGS on a stream": (START + frame(frames.SETTINGS, 0, 1), C.PROTOCOL_ERROR),
    "SETTINGS of 5 bytes": (START + frame(frames.SETTINGS, 0, 0, bytes(5)), C.FRAME_SIZE_ERROR),
    "ACK with content": (START + frame(frames.SETTINGS, 1, 0, bytes(6)), C.FRAME_SIZE_ERROR),
    "a value out of range, then one in range": (
        START + frames.frame(frames.SETTINGS, 0, 0, b"\0\2\0\0\0\2" + b"\0\2\0\0\0\0"),
        C.PROTOCOL_ERROR,
    ),
    "a window out of range between others": (
        START + frames.frame(frames.SETTINGS, 0, 0, b"\0\4\0\0\0\1\0\4\x80\0\0\0\0\4\0\0\0\1"),
        C.FLOW_CONTROL_ERROR,
    ),
    "ENABLE_PUSH 2": (START + frames.settings_frame({frames.ENABLE_PUSH: 2}), C.PROTOCOL_ERROR),
    "window too large": (
        START + frames.settings_frame({frames.INITIAL_WINDOW_SIZE: 1 << 31}),
        C.FLOW_CONTROL_ERROR,
    ),
    "frames too small": (START + frames.settings_frame({frames.MAX_FRAME_SIZE: 16_383}), C.PROTOCOL_ERROR),
    "frames too large": (START + frames.settings_frame({frames.MAX_FRAME_SIZE: 1 << 24}), C.PROTOCOL_ERROR),
    "NO_RFC7540_PRIORITIES 2": (
        START + frames.settings_frame({frames.NO_RFC7540_PRIORITIES: 2}),
        C.PROTOCOL_ERROR,
    ),
    "PUSH_PROMISE": (START + frame(frames.PUSH_PROMISE, 4, 1, bytes(4)), C.PROTOCOL_ERROR),
    "PING on a stream": (START + frame(frames.PING, 0, 1, bytes(8)), C.PROTOCOL_ERROR),
    "PING of 7 bytes": (START + frame(frames.PING, 0, 0, bytes(7)), C.FRAME_SIZE_ERROR),
    "GOAWAY on a stream": (START + frame(frames.GOAWAY, 0, 1, bytes(8)), C.PROTOCOL_ERROR),
    "GOAWAY of 7 bytes": (START + frame(frames.GOAWAY, 0, 0, bytes(7)), C.FRAME_SIZE_ERROR),
    "WINDOW_UPDATE of 3 bytes": (START + frame(frames.WINDOW_UPDATE, 0, 0, bytes(3)), C.FRAME_SIZE_ERROR),
    "WINDOW_UPDATE of 0": (START + frames.window_update_frame(0, 0), C.PROTOCOL_ERROR),
    "WINDOW_UPDATE on an idle stream": (START + frames.window_update_frame(1, 1), C.PROTOCOL_ERROR),
    "connection's window beyond 2^31 - 1": (
        START + frames.window_update_frame(0, 0x7FFF_FFFF),
        C.FLOW_CONTROL_ERROR,
    ),
}


@pytest.mark.parametrize(("sent", "code"), CONNECTION_ERRORS.values(), ids=CONNECTION_ERRORS.keys())
def test_an_error_of_the_connection_ends_it(sent: bytes, code: Http2Code) -> None:
    server = Server(started=False)
    *_, goaway = server.send(sent)
    assert (goaway.kind, Http2Code(goaway.code)) == (frames.GOAWAY, code)
    assert goaway.payload[8:]  # it says why
    assert server.core.closed
    assert server.send(headers(9)) == []
    assert all(recorder.events[-1] == "cancelled" for recorder in server.streams)


STREAM_ERRORS = {
    "no :method": (get(without=b":method"), C.PROTOCOL_ERROR),
    "no :scheme": (get(without=b":scheme"), C.PROTOCOL_ERROR),
    "no :path": (get(without=b":path"), C.PROTOCOL_ERROR),
    ":path twice": (headers(1, (*GET, (b":path", b"/"))), C.PROTOCOL_ERROR),
    "empty :path": (headers(1, (*GET[:2], (b":path", b""))), C.PROTOCOL_ERROR),
    "space in :path": (headers(1, (*GET[:2], (b":path", b"/ HTTP/1.1"))), C.PROTOCOL_ERROR),
    "whole URL as :path": (headers(1, (*GET[:2], (b":path", b"http://a/"))), C.PROTOCOL_ERROR),
    "unknown pseudo-header": (headers(1, (*GET, (b":status", b"200"))), C.PROTOCOL_ERROR),
    "pseudo-header after a header": (
        headers(1, ((b"a", b"b"), *GET)),
        C.PROTOCOL_ERROR,
    ),
    "CONNECT": (headers(1, ((b":method", b"CONNECT"), (b":authority", b"a:1"))), C.PROTOCOL_ERROR),
    "host differs": (get((b"host", b"other")), C.PROTOCOL_ERROR),
    "upper case": (get((b"Accept", b"x")), C.PROTOCOL_ERROR),
    "space in a name": (get((b"a b", b"x")), C.PROTOCOL_ERROR),
    "empty name": (get((b"", b"x")), C.PROTOCOL_ERROR),
    "line end in a value": (get((b"a", b"x\r\nb: c")), C.PROTOCOL_ERROR),
    "NUL in a value": (get((b"accept", b"a\0b")), C.PROTOCOL_ERROR),
    "space around a value": (get((b"a", b" x")), C.PROTOCOL_ERROR),
    "connection": (get((b"connection", b"close")), C.PROTOCOL_ERROR),
    "transfer-encoding": (get((b"transfer-encoding", b"chunked")), C.PROTOCOL_ERROR),
    "upgrade": (get((b"upgrade", b"h2c")), C.PROTOCOL_ERROR),
    "te": (get((b"te", b"gzip")), C.PROTOCOL_ERROR),
    "content-length is no number": (get((b"content-length", b"+1")), C.PROTOCOL_ERROR),
    "two content-lengths": (get((b"content-length", b"0"), (b"content-length", b"1")), C.PROTOCOL_ERROR),
    "content-length and no content": (get((b"content-length", b"1")), C.PROTOCOL_ERROR),
    "less content": (
        headers(1, (*POST, (b"content-length", b"2")), end=False) + data(1, b"x", end=True),
        C.PROTOCOL_ERROR,
    ),
    "more content": (
        headers(1, (*POST, (b"content-length", b"2")), end=False) + data(1, b"xx") + data(1, b"x"),
        C.PROTOCOL_ERROR,
    ),
    "HEADERS that depend on themselves": (
        raw(b"\0\0\0\x01\0" + block(GET), END | frames.WITH_PRIORITY),
        C.PROTOCOL_ERROR,
    ),
    "PRIORITY that depends on itself": (
        headers(1, POST, end=False) + frame(frames.PRIORITY, 0, 1, b"\0\0\0\x01\0"),
        C.PROTOCOL_ERROR,
    ),
    "PRIORITY of 4 bytes": (frame(frames.PRIORITY, 0, 1, bytes(4)), C.FRAME_SIZE_ERROR),
    "DATA after the end": (headers(1) + data(1, b"x"), C.STREAM_CLOSED),
    "HEADERS after the end": (headers(1) + headers(1, [(b"a", b"b")]), C.STREAM_CLOSED),
    "trailers that end nothing": (
        headers(1, POST, end=False) + headers(1, [(b"a", b"b")], end=False),
        C.PROTOCOL_ERROR,
    ),
    "pseudo-header in trailers": (
        headers(1, POST, end=False) + headers(1, [(b":path", b"/")]),
        C.PROTOCOL_ERROR,
    ),
    "window update of 0": (headers(1) + frames.window_update_frame(1, 0), C.PROTOCOL_ERROR),
    "window beyond 2^31 - 1": (
        headers(1) + frames.window_update_frame(1, 0x7FFF_FFFF),
        C.FLOW_CONTROL_ERROR,
    ),
}


@pytest.mark.parametrize(("sent", "code"), STREAM_ERRORS.values(), ids=STREAM_ERRORS.keys())
def test_an_error_of_a_stream_ends_it_alone(sent: bytes, code: Http2Code) -> None:
    server = Server()
    (reset,) = server.send(sent)
    assert (reset.kind, reset.stream_id, Http2Code(reset.code)) == (frames.RST_STREAM, 1, code)
    assert 1 not in server.core.streams
    assert all(recorder.events[-1] == "cancelled" for recorder in server.streams)
    # What the client sends before it knows is dropped, and the connection goes on.
    assert server.send(headers(3)) == []
    assert server.streams[-1].events == ["ended"]


def test_streams_beyond_the_limit_are_refused_so_that_they_may_be_tried_again() -> None:
    server = Server(Http2Limits(max_streams=2))
    sent = server.send(headers(1), headers(3), headers(5), headers(7))
    assert [(frame.stream_id, frame.code) for frame in sent] == [(5, C.REFUSED_STREAM), (7, C.REFUSED_STREAM)]
    server.streams[0].stream.respond(block([(b":status", b"200")]), b"")
    assert of_kind(server.send(headers(9)), frames.RST_STREAM) == []


def test_data_beyond_the_streams_window_is_refused() -> None:
    server = Server(Http2Limits(stream_window_bytes=100))
    sent = server.send(headers(1, POST, end=False), data(1, bytes(101)))
    assert of_kind(sent, frames.RST_STREAM)[0].code == C.FLOW_CONTROL_ERROR


def test_data_beyond_the_connections_window_is_refused() -> None:
    server = Server(Http2Limits(connection_window_bytes=70_000, max_frame_bytes=80_000))
    *_, goaway = server.send(headers(1, POST, end=False), data(1, bytes(70_001)))
    assert (goaway.kind, goaway.code) == (frames.GOAWAY, C.FLOW_CONTROL_ERROR)
