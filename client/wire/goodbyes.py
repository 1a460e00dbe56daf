"""GOAWAY frames, taken out of what a server sends before h2 sees it; and frames that are too large, refused.

h2 takes a connection for closed when GOAWAY comes, and refuses the frames after it. But a server that drains
says GOAWAY first, and then still answers the requests that it took (RFC 9113 §6.8). So h2 is not told.

h2 waits for the whole of a frame that is too large before it refuses it. What is no HTTP/2 at all has such
frames: the first bytes of an answer of HTTP/1.1 announce one of 4.7 MB.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from mcp2026.client.errors import ProtocolError

_GOAWAY = 0x07
_HEAD_BYTES = 9
_PAYLOAD = struct.Struct(">II")
_LONGEST = 65_536
"""Longer goodbyes go to h2, which ends the connection."""


class Goodbye(NamedTuple):
    """The server takes no more requests on this connection."""

    last_stream_id: int
    """Requests of higher streams were not processed."""
    error_code: int


class GoodbyeFilter:
    """Splits a stream of bytes into goodbyes and everything else, in order."""

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._held = b""
        self._passing = 0

    def receive(self, data: bytes) -> Iterator[bytes | Goodbye]:
        """Yield what `data` holds; what is not yet clear is kept for the next call.

        Raises:
            ProtocolError: a frame is larger than it may be.

        """
        data = self._held + data if self._held else data
        self._held = b""
        start = position = 0
        while position < len(data):
            if self._passing:
                size = min(self._passing, len(data) - position)
                self._passing -= size
                position += size
                continue
            left = len(data) - position
            if left < _HEAD_BYTES:
                break
            length = int.from_bytes(data[position : position + 3], "big")
            if length > self._max_frame_bytes:
                head = data[position : position + _HEAD_BYTES]
                raise ProtocolError(f"the server does not speak HTTP/2: a frame begins with {head!r}")
            if data[position + 3] != _GOAWAY or not _PAYLOAD.size <= length <= _LONGEST:
                self._passing = _HEAD_BYTES + length
                continue
            if left < _HEAD_BYTES + length:
                break
            if position > start:
                yield data[start:position]
            last_stream_id, error_code = _PAYLOAD.unpack_from(data, position + _HEAD_BYTES)
            yield Goodbye(last_stream_id & 0x7FFF_FFFF, error_code)
            position += _HEAD_BYTES + length
            start = position
        if position > start:
            yield data[start:position]
        self._held = data[position:]
