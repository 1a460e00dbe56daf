"""Clients that cost more than they bring: each kind has an end, and none holds much memory meanwhile."""

import pytest

from mcp2026.runtime.protocol.http2 import frames
from mcp2026.runtime.protocol.http2.errors import Http2Code
from mcp2026.runtime.protocol.http2.frames import frame
from mcp2026.runtime.protocol.http2.header_encoder import status
from mcp2026.runtime.protocol.http2.limits import Http2Limits
from tests.unit.runtime.http2_client import GET, POST, Frame, Server, block, data, headers, of_kind

LIMITS = Http2Limits(resets=20, resets_per_second=10, idle_frames=20, idle_frames_per_second=10)
CALM = Http2Code.ENHANCE_YOUR_CALM


def ended_by(sent: list[Frame]) -> Http2Code | None:
    found = of_kind(sent, frames.GOAWAY)
    return Http2Code(found[-1].code) if found else None


def flood(server: Server, make: list[bytes] | bytes, most: int = 1_000) -> int:
    """Send until the server has had enough; return how often that was."""
    for number in range(most):
        if ended_by(server.send(make[number] if isinstance(make, list) else make)) is CALM:
            assert server.core.closed
            return number
    raise AssertionError("never")


def test_rapid_reset() -> None:
    server = Server(LIMITS)
    pairs = [headers(number) + frames.reset_frame(number, 8) for number in range(1, 2_000, 2)]
    assert flood(server, pairs) == 20
    assert all(recorder.events == ["ended", "cancelled"] for recorder in server.streams)


def test_resets_that_the_client_provokes_count_as_its_own() -> None:
    server = Server(LIMITS)
    pairs = [headers(number) + frames.window_update_frame(number, 0) for number in range(1, 2_000, 2)]
    assert flood(server, pairs) == 20


def test_resets_in_the_pace_of_people_have_no_end() -> None:
    server = Server(LIMITS)
    for number in range(1, 2_000, 2):
        server.now += 0.1
        assert ended_by(server.send(headers(number) + frames.reset_frame(number, 8))) is None


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(frame(frames.PING, 0, 0, bytes(8)), id="PING"),
        pytest.param(frames.settings_frame({}), id="SETTINGS"),
        pytest.param(frame(frames.SETTINGS, frames.ACK, 0), id="SETTINGS acknowledged"),
        pytest.param(frame(frames.PRIORITY, 0, 3, bytes(5)), id="PRIORITY"),
        pytest.param(frame(0xEE, 0, 0, b""), id="unknown"),
        pytest.param(data(1, b""), id="empty DATA"),
        pytest.param(frame(frames.DATA, frames.PADDED, 1, b"\x02\0\0"), id="DATA of padding alone"),
    ],
)
def test_frames_that_bring_no_work(sent: bytes) -> None:
    server = Server(LIMITS)
    server.send(headers(1, POST, end=False))
    assert 15 <= flood(server, sent) <= 25


def test_settings_have_a_bound_of_their_own() -> None:
    server = Server(Http2Limits(settings_frames=20, settings_frames_per_second=10))
    assert flood(server, frames.settings_frame({0xF0B1: 5})) == 19  # and the first one


def test_settings_in_the_pace_of_people_have_no_end() -> None:
    server = Server()
    for _ in range(1_000):
        server.now += 0.2
        assert ended_by(server.send(frames.settings_frame({0xF0B1: 5}))) is None


def test_what_a_client_says_of_unknown_settings_is_not_kept() -> None:
    server = Server(extra_settings={0xF0B0: 1})
    for first in range(16, 65_536, 2_048):
        identifiers = range(first, min(first + 2_048, 65_536))
        assert ended_by(server.send(frames.settings_frame(dict.fromkeys(identifiers, 1)))) is None
    assert server.core.settings.peer == {0xF0B0: 1}


def test_pings_between_work_are_welcome() -> None:
    server = Server(LIMITS)
    for number in range(1, 2_000, 2):
        sent = server.send(headers(number), *[frame(frames.PING, 0, 0, bytes(8))] * 3)
        assert ended_by(sent) is None
        server.streams[-1].stream.respond(status(200), b"x")


def test_continuations_without_end() -> None:
    server = Server()
    server.send(frame(frames.HEADERS, frames.END_STREAM, 1, block(GET)))
    assert flood(server, frame(frames.CONTINUATION, 0, 1, b"")) <= 40


def test_a_header_block_without_end() -> None:
    server = Server()
    server.send(frame(frames.HEADERS, frames.END_STREAM, 1, block(GET)))
    assert flood(server, frame(frames.CONTINUATION, 0, 1, bytes(16_000))) <= 5


def test_a_small_block_that_means_a_large_list_is_not_kept() -> None:
    server = Server()
    large = b"\x40\x01x" + b"\x7f\xa1\x1e" + b"y" * 4_000  # one entry of 4 kB, then 48,000 references to it
    server.send(frame(frames.HEADERS, frames.END_STREAM | frames.END_HEADERS, 1, block(GET) + large))
    pieces = [b"\xbe" * 16_000] * 3
    server.send(frame(frames.HEADERS, frames.END_STREAM, 3, block(GET)))
    server.send(*(frame(frames.CONTINUATION, 0, 3, piece) for piece in pieces))
    server.send(frame(frames.CONTINUATION, frames.END_HEADERS, 3, b""))
    assert type(server.streams[1].request).__name__ == "HeadersTooLargeError"
    assert not server.core.closed


def test_streams_that_are_refused_do_not_end_the_connection_at_once() -> None:
    server = Server(Http2Limits(max_streams=10))
    sent = server.send(*(headers(number) for number in range(1, 4_000, 2)))
    assert ended_by(sent) is None
    assert len(of_kind(sent, frames.RST_STREAM)) == 1_990


def test_a_stream_whose_client_does_not_read_is_reset() -> None:
    server = Server(Http2Limits(unsent_bytes=1_000))
    server.send(frames.settings_frame({frames.INITIAL_WINDOW_SIZE: 0}), headers(1))
    stream = server.streams[0].stream
    stream.start(status(200))
    for _ in range(11):
        stream.send(bytes(100))
    assert of_kind(server.sent(), frames.RST_STREAM)[0].code == CALM
    assert server.streams[0].events == ["ended", "cancelled"]
    assert stream.pending_bytes == 0
