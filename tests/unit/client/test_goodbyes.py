"""GOAWAY is taken out of a stream of frames, wherever the network cuts it."""

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp2026.client.errors import ProtocolError
from mcp2026.client.wire.goodbyes import Goodbye, GoodbyeFilter


def frame(kind: int, payload: bytes, stream_id: int = 0) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, 0)) + struct.pack(">I", stream_id) + payload


def goaway(last: int, code: int, text: bytes = b"") -> bytes:
    return frame(7, struct.pack(">II", last, code) + text)


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(places)]


def pieces(data: list[bytes]) -> list[bytes | Goodbye]:
    """Return what comes out, with neighbouring bytes joined."""
    goodbyes = GoodbyeFilter(2**20)
    found: list[bytes | Goodbye] = []
    for part in data:
        for piece in goodbyes.receive(part):
            if isinstance(piece, bytes) and found and isinstance(found[-1], bytes):
                found[-1] += piece
            else:
                found.append(piece)
    return found


FRAMES = st.lists(
    st.builds(
        frame, st.integers(0, 6) | st.integers(8, 255), st.binary(max_size=40), st.integers(0, 2**31 - 1)
    )
)


@given(FRAMES, FRAMES, st.integers(0, 2**31 - 1), st.binary(max_size=9), st.lists(st.integers(0), max_size=8))
def test_a_goodbye_is_found_between_any_frames_and_cuts(
    before: list[bytes], after: list[bytes], last: int, text: bytes, cuts: list[int]
) -> None:
    first, rest = b"".join(before), b"".join(after)
    data = first + goaway(last, 2, text) + rest
    expected = [piece for piece in (first, Goodbye(last, 2), rest) if piece]
    assert pieces(split(data, cuts)) == expected


@given(FRAMES, st.lists(st.integers(0), max_size=8))
def test_everything_else_passes_unchanged(frames: list[bytes], cuts: list[int]) -> None:
    data = b"".join(frames)
    assert b"".join(piece for piece in pieces(split(data, cuts)) if isinstance(piece, bytes)) == data


def test_the_reserved_bit_of_the_stream_id_is_ignored() -> None:
    assert pieces([goaway(0x8000_0005, 0)]) == [Goodbye(5, 0)]


def test_a_goodbye_that_is_too_short_or_too_long_is_left_to_the_library() -> None:
    for wrong in (frame(7, b"1234567"), frame(7, b"x" * 65_537)):
        assert pieces([wrong]) == [wrong]


def test_a_frame_that_is_too_large_is_refused_by_its_head() -> None:
    with pytest.raises(ProtocolError, match=r"b'HTTP/1\.1 '"):
        list(GoodbyeFilter(2**20).receive(b"HTTP/1.1 400 Bad Request"))


def test_what_is_kept_is_at_most_one_goodbye() -> None:
    goodbyes = GoodbyeFilter(2**20)
    endless = (65_536).to_bytes(3, "big") + bytes((7, 0)) + bytes(4)
    assert list(goodbyes.receive(endless)) == []
    assert list(goodbyes.receive(b"x" * 65_000)) == []
    assert len(goodbyes._held) <= 65_536 + 9
