"""One connection of HTTP/2 against h2 as others have it: streams, flow control, goodbyes, and batching."""

import h2.events
import pytest

from mcp2026.api.batching_negotiation import BatchingOffer, NegotiatedBatching
from mcp2026.client.errors import ClientError, ConnectionFailedError, ProtocolError, Retry
from mcp2026.client.exchange import HttpRequest, HttpResponse
from mcp2026.client.wire.first_frames import settings_frame
from tests.unit.client.http2_peer import ASK, Peer

THEIRS = {0xF0B0: 1, 0xF0B1: 30, 0xF0B2: 5}
BATCH_CAPABLE = "x-mcp-batch-capable"


def failure(peer: Peer, stream_id: int) -> ClientError:
    outcome = peer.wire.finished()[stream_id]
    assert isinstance(outcome, ClientError)
    return outcome


def test_a_request_arrives_as_it_was_meant() -> None:
    peer = Peer()
    stream = peer.ask()
    assert peer.heads[stream] == {
        ":method": "POST",
        ":scheme": "http",
        ":authority": "localhost:8080",
        ":path": "/below/v2/x",
        "a": "b",
        "content-length": "10",
    }
    assert peer.bodies[stream] == b"headtensor"
    assert any(isinstance(event, h2.events.StreamEnded) for event in peer.events)


def test_many_requests_share_the_connection_and_are_answered_in_any_order() -> None:
    peer = Peer()
    streams = [peer.ask() for _ in range(5)]
    for stream in reversed(streams):
        peer.answer(stream, [("n", str(stream))])
    finished = peer.wire.finished()
    assert {stream: finished[stream] for stream in streams} == {
        stream: HttpResponse(200, {"n": str(stream)}, bytearray(b"body")) for stream in streams
    }
    assert peer.wire.idle
    assert peer.wire.finished() == {}


def test_a_body_larger_than_all_windows_is_sent_as_they_open() -> None:
    peer = Peer()
    body = bytes(range(256)) * 20_000
    stream = peer.ask(HttpRequest("POST", "/", body=(body[:100], memoryview(body)[100:])))
    while len(peer.bodies[stream]) < len(body):
        peer.say()
    assert peer.bodies[stream] == body


def test_no_more_requests_than_the_server_allows() -> None:
    peer = Peer(settings={3: 2})
    first, _second = peer.ask(), peer.ask()
    assert not peer.wire.room
    assert peer.wire.usable
    peer.answer(first)
    assert peer.wire.room


def test_a_cancelled_request_is_told_to_the_server_and_its_answer_dropped() -> None:
    peer = Peer()
    stream = peer.ask()
    peer.wire.cancel(stream)
    peer.hear()
    resets = [event for event in peer.events if isinstance(event, h2.events.StreamReset)]
    assert [(event.stream_id, event.error_code) for event in resets] == [(stream, 8)]
    assert peer.wire.finished() == {}
    other = peer.ask()
    peer.answer(other)
    assert set(peer.wire.finished()) == {other}


@pytest.mark.parametrize(
    ("code", "begun", "retry"),
    [
        (7, False, Retry.ALWAYS),
        (2, False, Retry.IF_IDEMPOTENT),
        (2, True, Retry.NEVER),
        (7, True, Retry.ALWAYS),
    ],
)
def test_a_reset_says_whether_the_request_may_be_sent_again(code: int, begun: bool, retry: Retry) -> None:
    peer = Peer()
    stream = peer.ask()
    if begun:
        peer.server.send_headers(stream, [(":status", "200")])
    peer.server.reset_stream(stream, code)
    peer.say()
    error = failure(peer, stream)
    assert isinstance(error, ConnectionFailedError)
    assert error.retry is retry
    assert peer.wire.usable


def test_a_server_that_drains_still_answers_what_it_took() -> None:
    peer = Peer()
    taken, refused = peer.ask(), peer.ask()
    goaway = bytes.fromhex("000008 07 00 00000000") + taken.to_bytes(4, "big") + bytes(4)
    peer.say(goaway)
    assert failure(peer, refused).retry is Retry.ALWAYS
    assert not peer.wire.usable
    assert not peer.wire.idle
    peer.answer(taken)
    assert isinstance(peer.wire.finished()[taken], HttpResponse)
    assert peer.wire.idle
    assert peer.wire.closed is None


def test_a_goodbye_with_an_error_ends_everything() -> None:
    peer = Peer()
    taken = peer.ask()
    peer.say(bytes.fromhex("000008 07 00 00000000 7FFFFFFF 0000000B"))
    assert failure(peer, taken).message == "the server ends the connection: ENHANCE_YOUR_CALM"
    assert peer.wire.closed is not None


@pytest.mark.parametrize(("begun", "retry"), [(False, Retry.IF_IDEMPOTENT), (True, Retry.NEVER)])
def test_a_connection_that_is_lost_fails_what_waits(begun: bool, retry: Retry) -> None:
    peer = Peer()
    stream = peer.ask()
    if begun:
        peer.server.send_headers(stream, [(":status", "200")])
        peer.say()
    peer.wire.lost("reset by peer")
    assert failure(peer, stream).retry is retry
    assert not peer.wire.usable


@pytest.mark.parametrize(
    "garbage",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 100, b"\0\0\4\x08\0\0\0\0\0\0\0\0\0", b"\xff" * 70_000],
)
def test_garbage_ends_the_connection(garbage: bytes) -> None:
    peer = Peer(started=False)
    stream = peer.ask()
    peer.wire.receive(garbage)
    assert isinstance(failure(peer, stream), ProtocolError)
    assert not peer.wire.usable
    peer.wire.receive(b"more")


@pytest.mark.parametrize("told", [True, False])
def test_an_answer_larger_than_allowed_is_broken_off(told: bool) -> None:
    peer = Peer(limit=10)
    stream, other = peer.ask(), peer.ask()
    peer.server.send_headers(stream, [(":status", "200"), *([("content-length", "11")] if told else [])])
    if not told:
        peer.server.send_data(stream, b"x" * 11)
    peer.say()
    error = failure(peer, stream)
    assert isinstance(error, ProtocolError)
    assert "max_answer_bytes=10" in error.message
    peer.answer(other)
    assert isinstance(peer.wire.finished()[other], HttpResponse)


@pytest.mark.parametrize(
    "headers",
    [[(":status", "abc")], [(":status", "200"), ("content-encoding", "gzip")]],
)
def test_a_head_that_makes_no_sense_fails_its_request_alone(headers: list[tuple[str, str]]) -> None:
    peer = Peer()
    stream = peer.ask()
    peer.server.config.validate_outbound_headers = False
    peer.server.send_headers(stream, headers)
    peer.say()
    assert isinstance(failure(peer, stream), ProtocolError)


def test_an_answer_before_the_body_was_read_ends_the_sending() -> None:
    peer = Peer()
    stream = peer.wire.open(HttpRequest("POST", "/", body=(bytes(200_000),)))
    peer.server.receive_data(peer.wire.take())
    peer.server.send_headers(stream, [(":status", "413")], end_stream=True)
    peer.say()
    outcome = peer.wire.finished()[stream]
    assert isinstance(outcome, HttpResponse)
    assert outcome.status == 413
    assert peer.wire.idle


@pytest.mark.parametrize(
    ("ours", "theirs", "negotiated", "header"),
    [
        (None, THEIRS, None, None),
        (BatchingOffer(20, 4), THEIRS, NegotiatedBatching(20, 5), "1"),
        (BatchingOffer(50, 9, 6), THEIRS, NegotiatedBatching(30, 6), "1"),
        (BatchingOffer(20, 4), {0xF0B0: 1}, NegotiatedBatching(20, 4), "1"),
        (BatchingOffer(20, 4), {0xF0B0: 0}, None, "1; max-delay-ms=20; min-size=4"),
        (BatchingOffer(20, 4), {}, None, "1; max-delay-ms=20; min-size=4"),
    ],
)
def test_batching_holds_if_both_sides_have_said_so(
    ours: BatchingOffer | None,
    theirs: dict[int, int],
    negotiated: NegotiatedBatching | None,
    header: str | None,
) -> None:
    peer = Peer(ours, settings=theirs)
    assert peer.wire.batching == negotiated
    assert peer.heads[peer.ask()].get(BATCH_CAPABLE) == header


def test_the_first_request_does_not_wait_for_the_servers_settings() -> None:
    peer = Peer(BatchingOffer(20, 4), settings=THEIRS, started=False)
    assert peer.heads[peer.ask()][BATCH_CAPABLE] == "1"
    assert peer.wire.batching is None


def test_a_request_may_keep_out_of_it() -> None:
    peer = Peer(BatchingOffer(), settings=THEIRS)
    assert BATCH_CAPABLE not in peer.heads[peer.ask(HttpRequest("GET", "/"))]


def test_both_sides_may_renegotiate() -> None:
    peer = Peer(BatchingOffer(20, 4), settings=THEIRS)
    peer.say(settings_frame({0xF0B1: 10}))
    assert peer.wire.batching == NegotiatedBatching(10, 5)
    peer.wire.offer(BatchingOffer(5, 7))
    peer.hear()
    assert peer.wire.batching == NegotiatedBatching(5, 7)
    assert peer.server.remote_settings[0xF0B2] == 7
    peer.say(settings_frame({0xF0B0: 0}))
    assert peer.wire.batching is None


@pytest.mark.parametrize("wrong", [{0xF0B0: 2}, {0xF0B1: 65_536}, {0xF0B2: 0}, {0xF0B2: 256}])
def test_settings_out_of_range_are_a_protocol_error(wrong: dict[int, int]) -> None:
    peer = Peer(BatchingOffer())
    stream = peer.ask()
    peer.say(settings_frame(wrong))
    assert isinstance(failure(peer, stream), ProtocolError)
    goodbyes = [event for event in peer.events if isinstance(event, h2.events.ConnectionTerminated)]
    assert [event.error_code for event in goodbyes] == [1]


@pytest.mark.parametrize(
    ("hinted", "final", "expected"),
    [
        ("active; max-delay-ms=20; min-size=4", None, NegotiatedBatching(20, 4)),
        (None, "active; max-delay-ms=20; min-size=4", NegotiatedBatching(20, 4)),
        (
            "active; max-delay-ms=20; min-size=4",
            "active; max-delay-ms=10; min-size=2",
            NegotiatedBatching(10, 2),
        ),
        (None, None, None),
        ("perhaps", None, None),
    ],
)
def test_the_negotiated_result_is_read_from_the_hints_and_the_answer(
    hinted: str | None, final: str | None, expected: NegotiatedBatching | None
) -> None:
    peer = Peer(BatchingOffer(), settings=THEIRS)
    stream = peer.ask()
    if hinted is not None:
        peer.hint(stream, ("mcp-batching", hinted))
    peer.answer(stream, [("mcp-batching", final)] if final is not None else None)
    response = peer.wire.finished()[stream]
    assert isinstance(response, HttpResponse)
    assert (response.status, response.batching) == (200, expected)


def test_bytes_may_come_one_by_one() -> None:
    peer = Peer()
    stream = peer.ask(ASK)
    peer.server.send_headers(stream, [(":status", "200")])
    peer.server.send_data(stream, b"body", end_stream=True)
    for byte in peer.server.data_to_send():
        peer.wire.receive(bytes((byte,)))
    assert peer.wire.finished()[stream] == HttpResponse(200, {}, bytearray(b"body"))


def test_a_closed_wire_says_goodbye_once() -> None:
    peer = Peer()
    stream = peer.ask()
    peer.wire.close()
    peer.wire.close()
    peer.hear()
    assert failure(peer, stream).message == "the client was closed"
    assert [
        event.error_code for event in peer.events if isinstance(event, h2.events.ConnectionTerminated)
    ] == [0]
