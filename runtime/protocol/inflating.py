"""Compressed bytes made long again, within what one body may have, and all of a process together.

A body can stand for a thousand times as much, and threads read those of several callers at once. So what
comes out is counted as it comes, and a body that would be too much for all is given up half-way.
"""

import threading
import zlib
from collections.abc import Iterator

Buffer = bytes | bytearray | memoryview

WINDOW_BITS = {"gzip": 31, "deflate": 15}
"""How zlib is told the format; deflate is zlib's own (RFC 1950), in HTTP as in gRPC."""

_STEP_IN = 64 * 1024
_STEP_OUT = 1024 * 1024
"""Bytes that are looked at, and made, before they are counted."""


class InflateError(Exception):
    """The bytes cannot be read; the text continues a sentence about them."""


class TooLargeError(Exception):
    """They stand for more than one body may have."""


class CrowdedError(Exception):
    """All bodies together would be more than is allowed."""


class Room:
    """What inflated bodies of all callers may hold together, in bytes, until each is served. Thread-safe."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0
        self.highest = 0
        """Of what was held since someone last set this back."""
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Count `size` more. Raises CrowdedError if there is no room for it."""
        with self._lock:
            if self.held + size > self.most:
                raise CrowdedError
            self.held += size
            self.highest = max(self.highest, self.held)

    def give(self, size: int) -> None:
        """Count `size` less."""
        with self._lock:
            self.held -= size


def inflate(packed: Buffer, encoding: str, limit: int, room: Room) -> bytes:
    """Return what `packed` stands for, at most `limit` bytes. They are counted in `room`: give them back.

    Raises:
        InflateError: it is not of this encoding, ends too early, or more follows.
        TooLargeError: it stands for more than `limit` bytes.
        CrowdedError: there is no room. Nothing is counted then, as after the other errors.

    """
    pieces: list[bytes] = []
    taken = 0
    try:
        for piece in _pieces(memoryview(packed), zlib.decompressobj(WINDOW_BITS[encoding]), limit):
            room.take(len(piece))
            taken += len(piece)
            pieces.append(piece)
    except zlib.error as error:
        room.give(taken)
        raise InflateError(f"is not {encoding}: {error}") from error
    except Exception:
        room.give(taken)
        raise
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _pieces(packed: memoryview, decoder: "zlib._Decompress", limit: int) -> Iterator[bytes]:
    made = 0
    for start in range(0, len(packed), _STEP_IN):
        rest: Buffer = packed[start : start + _STEP_IN]
        while rest or not decoder.eof:
            if decoder.eof:
                raise InflateError("has bytes after its end")
            piece = decoder.decompress(rest, min(_STEP_OUT, limit + 1 - made))
            rest = decoder.unconsumed_tail
            if not piece and not rest:
                break  # it needs more to go on
            made += len(piece)
            if made > limit:
                raise TooLargeError
            yield piece
    if not decoder.eof:
        raise InflateError("ends too early")
    if decoder.unused_data:
        raise InflateError("has bytes after its end")
