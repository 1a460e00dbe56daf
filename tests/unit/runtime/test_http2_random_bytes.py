"""Whatever comes, however it is cut: the core never raises, holds little, and means the same."""

from itertools import accumulate, cycle, islice, pairwise
from typing import Any

from hpack import Encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp2026.runtime.protocol.http2 import frames
from mcp2026.runtime.protocol.http2.limits import Http2Limits
from tests.unit.runtime.http2_client import GET, POST, START, Server, block, data, headers

SMALL = Http2Limits(
    max_streams=4,
    max_header_bytes=2_000,
    stream_window_bytes=3_000,
    max_stream_window_bytes=6_000,
    connection_window_bytes=80_000,
    held_bytes=8_000,
    resets=50,
    idle_frames=200,
)
IDS = st.integers(0, 9)
NAMES = st.text("abcde", max_size=3).map(lambda text: b"x" + text.encode())
VALUES = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=30).map(str.encode)
BLOCKS = st.one_of(
    st.sampled_from([block(GET), block(POST), block([(b"trailer", b"1")]), b"\xbe", b"\x20", b""]),
    st.binary(max_size=40),
)


def _frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    return frames.frame(kind, flags, stream_id, payload)


VALID = st.one_of(
    st.builds(headers, IDS, st.sampled_from([GET, POST]), end=st.booleans()),
    st.builds(data, IDS, st.binary(max_size=1_000), end=st.booleans()),
    st.builds(frames.window_update_frame, IDS, st.integers(0, 1 << 31)),
    st.builds(frames.reset_frame, IDS, st.integers(0, 20)),
    st.builds(
        frames.settings_frame, st.dictionaries(st.integers(0, 10), st.integers(0, (1 << 32) - 1), max_size=3)
    ),
)
ANY_FRAME = st.builds(
    _frame, st.integers(0, 11), st.integers(0, 255), IDS, st.one_of(BLOCKS, st.binary(max_size=60))
)


def plausible(steps: list[tuple[str, int, bytes]]) -> bytes:
    """Return frames of a client that opens streams and goes on with them."""
    sent, opened = b"", 0
    for what, number, content in steps:
        stream_id = 2 * (number % opened) + 1 if opened else 1
        if what == "open" or not opened:
            opened += 1
            sent += headers(2 * opened - 1, POST if number % 4 else GET, end=number % 4 == 0)
        elif what in ("data", "end"):
            sent += data(stream_id, content, end=what == "end")
        elif what == "padded":
            sent += frames.frame(frames.DATA, frames.PADDED, stream_id, b"\x03" + content + b"\0\0\0")
        elif what == "trailers":
            sent += headers(stream_id, [(b"a", b"b")])
        elif what == "ping":
            sent += frames.frame(frames.PING, 0, 0, bytes(8))
        else:
            sent += frames.reset_frame(stream_id, 8)
    return sent


STEPS = ["open", "open", "data", "data", "end", "padded", "trailers", "ping", "reset"]
PLAUSIBLE = st.lists(
    st.tuples(st.sampled_from(STEPS), st.integers(0, 20), st.binary(max_size=100)), max_size=30
).map(plausible)
RANDOM = st.lists(st.one_of(VALID, ANY_FRAME, st.binary(max_size=30)), max_size=30).map(b"".join)
STREAM_OF_BYTES = st.one_of(PLAUSIBLE, RANDOM, st.builds(bytes.__add__, PLAUSIBLE, RANDOM))


def cut(content: bytes, sizes: list[int]) -> list[bytes]:
    """Cut into pieces of these sizes, over and over."""
    edges = [0, *accumulate(islice(cycle(sizes), len(content)))]
    return [content[start:end] for start, end in pairwise(edges) if start < len(content)]


def outcome(pieces: list[bytes]) -> tuple[Any, ...]:
    """Return all that can be seen of a connection, apart from how bodies were cut."""
    server = Server(SMALL, started=False)
    sent = server.send(*pieces)
    held = sum(len(recorder.body) for recorder in server.streams if recorder.stream.remote_open)
    assert held <= SMALL.held_bytes + SMALL.max_streams * SMALL.max_stream_window_bytes
    assert len(server.core.streams) <= SMALL.max_streams
    # Windows are granted sooner or later, depending on the cuts; everything else is the same.
    others = [frame for frame in sent if frame.kind != frames.WINDOW_UPDATE]
    return server.core.closed, server.states(), others


@settings(max_examples=300, deadline=None)
@given(STREAM_OF_BYTES, st.lists(st.integers(1, 40), min_size=1, max_size=10))
def test_cuts_change_nothing(content: bytes, sizes: list[int]) -> None:
    assert outcome(cut(START + content, sizes)) == outcome([START + content])


@settings(max_examples=150, deadline=None)
@given(STREAM_OF_BYTES)
def test_single_bytes_mean_the_same(content: bytes) -> None:
    whole = START + content
    assert outcome([whole[n : n + 1] for n in range(len(whole))]) == outcome([whole])


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_instead_of_a_preface(content: bytes) -> None:
    outcome([content])


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"respond", b"send", b"finish", b"reset"]),
            st.integers(0, 3),
            st.binary(max_size=50),
        ),
        max_size=20,
    ),
    st.lists(VALID, max_size=20),
)
def test_answers_at_any_time(actions: list[tuple[bytes, int, bytes]], received: list[bytes]) -> None:
    server = Server(SMALL)
    server.send(headers(1), headers(3, POST, end=False), headers(5))
    for number in range(max(len(actions), len(received))):
        if number < len(received):
            server.send(received[number])
        if number < len(actions):
            what, which, content = actions[number]
            stream = server.streams[which % 3].stream
            match what:
                case b"respond" if stream.pending is None:
                    stream.respond(block([(b":status", b"200")]), content)
                case b"send":
                    stream.send(content)
                case b"finish":
                    stream.finish()
                case b"reset":
                    stream.reset(8)  # type: ignore[arg-type]
    server.sent()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(
                st.tuples(
                    NAMES,
                    VALUES,
                ),
                max_size=6,
            ),
            st.booleans(),
        ),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from([4_096, 100, 0]),
)
def test_header_blocks_mean_what_the_hpack_library_put_in(
    requests: list[tuple[list[tuple[bytes, bytes]], bool]], table: int
) -> None:
    server = Server()
    encoder = Encoder()
    encoder.header_table_size = table
    for number, (fields, huffman) in enumerate(requests):
        part = encoder.encode([*GET, *fields], huffman=huffman)
        flags = frames.END_HEADERS | frames.END_STREAM
        assert server.send(frames.frame(frames.HEADERS, flags, 2 * number + 1, part)) == []
        expected = {b"host": b"test", **dict(fields)}
        assert server.streams[-1].request.head.headers == expected  # type: ignore[union-attr]
