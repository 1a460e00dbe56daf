"""Requests of well-behaved clients, in all the forms that RFC 9113 allows."""

import pytest
from hpack import Encoder

from mcp2026.runtime.protocol.http2 import frames
from mcp2026.runtime.protocol.http2.errors import HeadersTooLargeError, Http2Code
from mcp2026.runtime.protocol.http2.header_encoder import response_start, status
from mcp2026.runtime.protocol.http2.limits import Http2Limits
from mcp2026.runtime.protocol.http2.request_headers import RequestHeaders
from tests.unit.runtime.http2_client import (
    GET,
    POST,
    START,
    Recorder,
    Server,
    block,
    data,
    headers,
    of_kind,
)

OK = response_start(200, b"text/plain", ())


def request_of(recorder: Recorder) -> RequestHeaders:
    assert isinstance(recorder.request, RequestHeaders)
    return recorder.request


def test_the_first_frame_of_the_server_is_its_settings() -> None:
    server = Server(started=False, extra_settings={0xF0B0: 7, 0xF0B2: 1 << 31})
    first, window = server.sent()
    assert (first.kind, first.flags, first.stream_id) == (frames.SETTINGS, 0, 0)
    assert frames.read_settings(first.payload) == {
        frames.MAX_CONCURRENT_STREAMS: 256,
        frames.INITIAL_WINDOW_SIZE: 1 << 20,
        frames.MAX_FRAME_SIZE: 16_384,
        frames.MAX_HEADER_LIST_SIZE: 65_536,
        frames.NO_RFC7540_PRIORITIES: 1,
        0xF0B0: 7,
        0xF0B2: 1 << 31,
    }
    assert first.payload[-12:-6] == b"\xf0\xb0\x00\x00\x00\x07"
    assert (window.kind, window.stream_id) == (frames.WINDOW_UPDATE, 0)


def test_settings_are_acknowledged_and_kept_and_told() -> None:
    server = Server(extra_settings={0xF0B1: 7})
    told: list[dict[int, int]] = []
    server.core.settings.on_peer = told.append
    (ack,) = server.send(frames.settings_frame({0xF0B1: 5, frames.MAX_FRAME_SIZE: 20_000}))
    assert (ack.kind, ack.flags, ack.payload) == (frames.SETTINGS, frames.ACK, b"")
    server.send(frames.settings_frame({0xF0B1: 6}))
    assert told == [{0xF0B1: 5, frames.MAX_FRAME_SIZE: 20_000}, {0xF0B1: 6}]
    assert server.core.settings.peer == {0xF0B1: 6, frames.MAX_FRAME_SIZE: 20_000}


def test_settings_that_change_later_are_sent_alone() -> None:
    server = Server(extra_settings={0xF0B0: 7})
    server.core.settings.send({0xF0B0: 8})
    (changed,) = server.sent()
    assert frames.read_settings(changed.payload) == {0xF0B0: 8}
    assert server.core.settings.extra == {0xF0B0: 8}


def test_a_request_without_a_body() -> None:
    server = Server()
    assert server.send(headers(1)) == []
    (stream,) = server.streams
    head = request_of(stream).head
    assert (head.method, head.path, head.headers) == ("GET", "/a", {b"host": b"test"})
    assert stream.events == ["ended"]


def test_a_body_in_pieces_and_trailers() -> None:
    server = Server()
    trailers = headers(1, [(b"checksum", b"1")])
    server.send(headers(1, POST, end=False), data(1, b"ab"), data(1, b""), data(1, b"cd"), trailers)
    assert server.streams[0].body == b"abcd"
    assert server.streams[0].events == ["ended"]


def test_padding_is_no_content() -> None:
    server = Server()
    padded_headers = bytes([3]) + block((*POST, (b"content-length", b"2"))) + b"\0\0\0"
    flags = frames.END_HEADERS | frames.PADDED
    server.send(
        frames.frame(frames.HEADERS, flags, 1, padded_headers),
        frames.frame(frames.DATA, frames.PADDED | frames.END_STREAM, 1, b"\x04hi\0\0\0\0"),
    )
    assert (server.streams[0].body, server.streams[0].events) == (b"hi", ["ended"])


def test_the_priority_in_headers_is_ignored() -> None:
    server = Server()
    flags = frames.END_HEADERS | frames.END_STREAM | frames.WITH_PRIORITY
    server.send(frames.frame(frames.HEADERS, flags, 3, b"\x80\0\0\x01\x10" + block(GET)))
    assert server.streams[0].events == ["ended"]


def test_a_header_block_in_many_frames() -> None:
    whole = block((*GET, (b"x", b"y" * 100)))
    pieces = [whole[n : n + 10] for n in range(0, len(whole), 10)]
    sent = frames.frame(frames.HEADERS, frames.END_STREAM, 1, pieces[0])
    for piece in pieces[1:-1]:
        sent += frames.frame(frames.CONTINUATION, 0, 1, piece)
    sent += frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, pieces[-1])
    server = Server()
    assert server.send(sent) == []
    assert request_of(server.streams[0]).head.headers[b"x"] == b"y" * 100


def test_equal_header_blocks_are_read_once() -> None:
    server = Server()
    encoder = Encoder()
    for stream_id in (1, 3, 5, 7):
        server.send(headers(stream_id, encoder=encoder))
    requests = [request_of(stream) for stream in server.streams]
    assert all(request.head == requests[0].head for request in requests)
    assert requests[2] is requests[3]


def test_a_block_means_something_else_after_the_table_has_changed() -> None:
    server = Server()
    newest = block(GET) + b"\xbe"  # the newest entry of the dynamic table
    for number, part in enumerate(
        (block(GET) + b"\x40\x01n\x011", newest, newest, block(GET) + b"\x40\x01n\x012", newest)
    ):
        server.send(headers_of(2 * number + 1, part))
    values = [request_of(stream).head.headers[b"n"] for stream in server.streams]
    assert values == [b"1", b"1", b"1", b"2", b"2"]


def headers_of(stream_id: int, part: bytes) -> bytes:
    return frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream_id, part)


def test_cookies_are_joined_and_repeated_headers_end_with_the_last() -> None:
    server = Server()
    server.send(headers(1, (*GET, (b"cookie", b"a=1"), (b"x", b"1"), (b"cookie", b"b=2"), (b"x", b"2"))))
    found = request_of(server.streams[0]).head.headers
    assert (found[b"cookie"], found[b"x"]) == (b"a=1; b=2", b"2")


def test_too_many_headers_are_told_to_the_consumer_and_the_table_stays_right() -> None:
    server = Server(Http2Limits(max_header_bytes=1_000))
    encoder = Encoder()
    # Six fields of 10 bytes count more than 32 bytes each.
    large = (*GET, *((b"x%d" % n, b"v" * 10) for n in range(30)))
    server.send(headers(1, large, encoder=encoder))
    server.send(headers(3, (*GET, (b"x29", b"v" * 10)), encoder=encoder))
    assert isinstance(server.streams[0].request, HeadersTooLargeError)
    assert request_of(server.streams[1]).head.headers[b"x29"] == b"v" * 10


def test_a_ping_is_answered_with_its_content() -> None:
    (pong,) = Server().send(frames.frame(frames.PING, 0, 0, b"12345678"))
    assert (pong.kind, pong.flags, pong.payload) == (frames.PING, frames.ACK, b"12345678")


@pytest.mark.parametrize("kind", [0x0A, 0x10, 0xFA])
def test_unknown_frames_are_ignored(kind: int) -> None:
    server = Server()
    assert server.send(frames.frame(kind, 0xFF, 1, b"anything"), headers(1)) == []
    assert len(server.streams) == 1


def test_a_whole_response_is_three_frames_at_most() -> None:
    server = Server()
    server.send(headers(1), headers(3), headers(5))
    first, second, third = (recorder.stream for recorder in server.streams)
    first.respond(OK, b"body")
    second.respond(OK, b"")
    third.respond(OK, b"body", status(200))
    sent = [(frame.stream_id, frame.kind, frame.flags) for frame in server.sent()]
    assert sent == [
        (1, frames.HEADERS, frames.END_HEADERS),
        (1, frames.DATA, frames.END_STREAM),
        (3, frames.HEADERS, frames.END_HEADERS | frames.END_STREAM),
        (5, frames.HEADERS, frames.END_HEADERS),
        (5, frames.DATA, 0),
        (5, frames.HEADERS, frames.END_HEADERS | frames.END_STREAM),
    ]
    assert server.core.streams == {}


def test_interim_responses_come_before_the_final_one() -> None:
    server = Server()
    server.send(headers(1))
    stream = server.streams[0].stream
    stream.inform(103, ((b"link", b"</a>"),))
    stream.inform(103)
    stream.respond(OK, b"x")
    stream.inform(103)
    sent = server.sent()
    found = [server.fields(frame)[0][1] for frame in of_kind(sent, frames.HEADERS)]
    assert found == [b"103", b"103", b"200"]
    assert [frame.flags & frames.END_STREAM for frame in sent] == [0, 0, 0, 1]


def test_a_header_block_larger_than_a_frame_is_continued() -> None:
    server = Server()
    server.send(headers(1))
    server.streams[0].stream.start(OK + block(((b"x", b"y" * 40_000),)), end=True)
    first, *rest = server.sent()
    assert first.flags == frames.END_STREAM
    assert [frame.flags for frame in rest] == [0, frames.END_HEADERS]
    assert all(len(frame.payload) <= 16_384 for frame in (first, *rest))
    assert server.core.streams == {}


def test_a_client_that_wants_no_table_hears_so_once() -> None:
    server = Server()
    server.send(frames.settings_frame({frames.HEADER_TABLE_SIZE: 0}), headers(1), headers(3))
    for recorder in server.streams:
        recorder.stream.respond(OK, b"x")
    first, second = of_kind(server.sent(), frames.HEADERS)
    assert first.payload[:1] == b"\x20"
    assert second.payload == OK


def test_sending_on_a_closed_stream_does_nothing() -> None:
    server = Server()
    server.send(headers(1))
    stream = server.streams[0].stream
    server.send(frames.reset_frame(1, Http2Code.CANCEL))
    stream.respond(OK, b"x")
    stream.send(b"x")
    stream.finish()
    stream.reset(Http2Code.CANCEL)
    assert server.sent() == []
    assert server.streams[0].events == ["ended", "cancelled"]


def test_a_response_before_the_end_of_the_body_may_stop_it() -> None:
    server = Server()
    server.send(headers(1, POST, end=False), data(1, b"a"))
    stream = server.streams[0].stream
    stream.respond(OK, b"no")
    stream.stop_receiving()
    reset = server.sent()[-1]
    assert (reset.kind, reset.code) == (frames.RST_STREAM, Http2Code.NO_ERROR)
    # What was on its way is dropped, and the connection goes on.
    assert server.send(data(1, b"b"), headers(1, [(b"trailer", b"1")]), headers(3)) == []
    assert len(server.streams) == 2
    assert not server.core.closed


def test_leaving_loses_no_stream_that_is_on_its_way() -> None:
    server = Server()
    server.send(headers(1))
    server.core.leave()
    goaway, ping = server.sent()
    assert (goaway.kind, int.from_bytes(goaway.payload[:4], "big")) == (frames.GOAWAY, 0x7FFF_FFFF)
    server.send(headers(3))  # sent before the client heard of it
    (last,) = server.send(frames.frame(frames.PING, frames.ACK, 0, ping.payload))
    assert (last.kind, int.from_bytes(last.payload[:4], "big")) == (frames.GOAWAY, 3)
    # A stream beyond the last one was never taken in; the client knows and will ask elsewhere.
    assert server.send(headers(5, POST, end=False), data(5, b"x"), frames.reset_frame(5, 0)) == []
    assert len(server.streams) == 2
    assert not server.core.finished
    for recorder in server.streams:
        recorder.stream.respond(OK, b"x")
    assert server.core.finished


def test_a_client_that_leaves_gets_its_answers() -> None:
    server = Server()
    server.send(headers(1), frames.goaway_frame(0, 0))
    assert not server.core.finished
    server.streams[0].stream.respond(OK, b"x")
    assert server.core.finished


def test_a_lost_connection_cancels_everything() -> None:
    server = Server()
    server.send(headers(1), headers(3, POST, end=False))
    server.core.lost()
    assert [recorder.events for recorder in server.streams] == [["ended", "cancelled"], ["cancelled"]]


def test_the_edge_is_woken_once_for_all_that_is_sent_together() -> None:
    server = Server()
    server.send(headers(1), headers(3))
    server.wakes = 0
    for recorder in server.streams:
        recorder.stream.respond(OK, b"x")
    assert server.wakes == 1


def test_start_in_one_piece_with_a_request() -> None:
    server = Server(started=False)
    server.send(START + headers(1))
    assert len(server.streams) == 1
