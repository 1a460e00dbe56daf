"""Windows in both directions: nothing is sent that was not granted, and bodies need few round trips."""

from mcp2026.runtime.protocol.http2 import frames
from mcp2026.runtime.protocol.http2.header_encoder import status
from mcp2026.runtime.protocol.http2.limits import Http2Limits
from tests.unit.runtime.http2_client import POST, Frame, Server, data, headers, of_kind

OK = status(200)


def sizes(sent: list[Frame]) -> dict[int, int]:
    """Return the bytes of DATA per stream."""
    found: dict[int, int] = {}
    for frame in of_kind(sent, frames.DATA):
        found[frame.stream_id] = found.get(frame.stream_id, 0) + len(frame.payload)
    return found


def test_a_response_waits_for_the_streams_window() -> None:
    server = Server()
    server.send(frames.settings_frame({frames.INITIAL_WINDOW_SIZE: 10}), headers(1))
    server.streams[0].stream.respond(OK, b"0123456789abcdef", status(200))
    first = server.sent()
    assert [frame.payload for frame in of_kind(first, frames.DATA)] == [b"0123456789"]
    second = server.send(frames.window_update_frame(1, 4))
    assert [frame.payload for frame in of_kind(second, frames.DATA)] == [b"abcd"]
    third = server.send(frames.settings_frame({frames.INITIAL_WINDOW_SIZE: 12}))
    assert [frame.payload for frame in of_kind(third, frames.DATA)] == [b"ef"]
    assert third[-1].flags & frames.END_STREAM  # the trailers
    assert server.core.streams == {}


def test_a_window_may_become_negative() -> None:
    server = Server()
    server.send(headers(1))
    stream = server.streams[0].stream
    stream.start(OK)
    stream.send(bytes(60_000))
    assert sizes(server.sent()) == {1: 60_000}
    server.send(frames.settings_frame({frames.INITIAL_WINDOW_SIZE: 1_000}))
    assert stream.send_window == 1_000 - 60_000
    stream.send(b"x")
    assert sizes(server.send(frames.window_update_frame(1, 59_000))) == {}
    assert sizes(server.send(frames.window_update_frame(1, 1))) == {1: 1}


def test_streams_take_turns_in_the_connections_window() -> None:
    server = Server()
    server.send(headers(1), headers(3), frames.settings_frame({frames.INITIAL_WINDOW_SIZE: 1 << 20}))
    for recorder in server.streams:
        recorder.stream.respond(OK, bytes(500_000))
    assert sum(sizes(server.sent()).values()) == 65_535
    server.send(frames.window_update_frame(0, 200_000))
    second = sizes(server.send(frames.window_update_frame(0, 200_000)))
    assert set(second) == {1, 3}
    rest = sizes(server.send(frames.window_update_frame(0, 1 << 20)))
    assert set(rest) == {1, 3}
    assert server.core.streams == {}


def test_a_response_without_a_body_passes_those_that_wait() -> None:
    server = Server()
    server.send(headers(1), headers(3))
    server.streams[0].stream.respond(OK, bytes(100_000))
    server.sent()
    server.streams[1].stream.respond(OK, b"")
    (frame,) = server.sent()
    assert (frame.stream_id, frame.flags & frames.END_STREAM) == (3, frames.END_STREAM)


def test_frames_are_as_large_as_the_client_takes() -> None:
    server = Server()
    server.send(frames.settings_frame({frames.MAX_FRAME_SIZE: 30_000}), headers(1))
    server.streams[0].stream.respond(OK, bytes(65_000))
    found = of_kind(server.sent(), frames.DATA)
    assert [len(frame.payload) for frame in found] == [30_000, 30_000, 5_000]


def test_pieces_of_a_streaming_response_keep_their_order() -> None:
    server = Server()
    server.send(headers(1))
    stream = server.streams[0].stream
    stream.start(OK)
    pieces = [b"%d," % number for number in range(30_000)]
    for piece in pieces:
        stream.send(piece)
    stream.finish()
    found = of_kind(server.sent(), frames.DATA)
    while server.core.streams:
        found += of_kind(
            server.send(frames.window_update_frame(1, 5_000), frames.window_update_frame(0, 5_000)),
            frames.DATA,
        )
    assert b"".join(frame.payload for frame in found) == b"".join(pieces)
    assert [frame.flags for frame in found[:-1]] == [0] * (len(found) - 1)
    assert found[-1].flags == frames.END_STREAM


def test_nothing_but_control_frames_while_the_transport_is_full() -> None:
    server = Server()
    server.core.outbox.blocked = True
    server.send(headers(1))
    server.streams[0].stream.respond(OK, b"body")
    ping = server.send(frames.frame(frames.PING, 0, 0, bytes(8)))
    assert of_kind(ping, frames.DATA) == []
    assert of_kind(ping, frames.PING)
    server.core.outbox.blocked = False
    assert sizes(server.sent()) == {1: 4}


def granted(sent: list[Frame], stream_id: int) -> int:
    found = of_kind(sent, frames.WINDOW_UPDATE)
    return sum(int.from_bytes(one.payload, "big") for one in found if one.stream_id == stream_id)


def test_a_body_of_a_mebibyte_needs_no_round_trip_and_a_larger_one_few() -> None:
    server = Server()
    server.send(headers(1, POST, end=False))
    window, left, updates = 1 << 20, 32 << 20, 0
    while left:
        piece = bytes(min(16_384, window, left))
        assert piece, "the window is empty, and no more was granted"
        sent = server.send(data(1, piece))
        left -= len(piece)
        more = granted(sent, 1)
        updates += more > 0
        window += more - len(piece)
        assert window <= 16 << 20
    assert updates <= 12


def test_padding_is_granted_again() -> None:
    server = Server(Http2Limits(stream_window_bytes=2_000, max_stream_window_bytes=2_000))
    server.send(headers(1, POST, end=False))
    padded = frames.frame(frames.DATA, frames.PADDED, 1, bytes([200]) + b"x" + bytes(200))
    total = sum(granted(server.send(padded), 1) for _ in range(100))
    assert total >= 100 * 202 - 2_000


def test_beyond_the_limit_only_the_oldest_body_goes_on() -> None:
    limits = Http2Limits(stream_window_bytes=1_000, max_stream_window_bytes=1_000, held_bytes=3_000)
    server = Server(limits)
    server.send(*(headers(number, POST, end=False) for number in (1, 3, 5, 7)))
    for number in (7, 5, 3):
        server.send(data(number, bytes(1_000)))
    assert server.core.inbox.full
    # The last body that filled the connection is not granted more, the oldest one is.
    assert granted(server.send(data(1, bytes(900))), 1) == 900
    sent = server.send(data(1, b"", end=True))
    assert granted(sent, 3) == 0  # the oldest one left is still within its first window
    assert granted(server.send(data(7, bytes(1_000))), 7) == 0
    assert granted(server.send(frames.reset_frame(3, 8)), 7) == 0
    assert granted(server.send(data(5, b"", end=True)), 7) == 1_000


def test_what_a_stream_releases_is_held_no_longer() -> None:
    server = Server(Http2Limits(held_bytes=1_000))
    server.send(headers(1, POST, end=False), data(1, bytes(1_500)))
    assert server.core.inbox.full
    server.streams[0].stream.release(1_500)
    assert not server.core.inbox.full
