"""Messages in the body of a call: five bytes before each, and compression by message.

Contract: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md#requests and compression.md there.
"""

import zlib
from typing import Final, NamedTuple

from mcp2026.api.grpc_codes import GrpcCode
from mcp2026.runtime.errors import RequestError
from mcp2026.runtime.protocol.connections import CROWDED
from mcp2026.runtime.protocol.inflating import (
    WINDOW_BITS,
    CrowdedError,
    InflateError,
    Room,
    TooLargeError,
    inflate,
)

PREFIX: Final = 5
"""Bytes before a message: one that tells whether it is compressed, four of its length."""

ENCODINGS: Final = (b"identity", *[name.encode() for name in WINDOW_BITS])
"""Values of `grpc-encoding` that are understood."""

_FAST: Final = 1
_AT_ONCE: Final = 16 * 1024
"""Compressed messages up to this size, in bytes, are decompressed by who reads them; larger ones are left to
a thread, since they may stand for a thousand times as much."""


class CallFailedError(Exception):
    """The call ends with this status."""

    def __init__(self, code: GrpcCode, detail: str, error: RequestError | None = None) -> None:
        """Tell of `error` too in the details of the status, which clients of the contract read."""
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.error = error


def framed(message: bytes) -> bytes:
    """Return a message with its prefix, not compressed."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def framed_gzip(message: bytes) -> bytes:
    """Return a message with its prefix, compressed quickly."""
    packer = zlib.compressobj(_FAST, zlib.DEFLATED, WINDOW_BITS["gzip"])
    packed = packer.compress(message) + packer.flush()
    return b"\1" + len(packed).to_bytes(4, "big") + packed


def decompress(message: bytes, encoding: bytes, max_bytes: int, room: Room) -> bytes:
    """Return a compressed message in full, at most `max_bytes`. They are counted in `room`: give them back.

    Raises:
        CallFailedError: it is longer, not of this encoding, or there is no room.

    """
    try:
        return inflate(message, encoding.decode(), max_bytes, room)
    except InflateError as error:
        raise CallFailedError(
            GrpcCode.INTERNAL, f"the message is not one {encoding.decode()} stream: it {error}"
        ) from None
    except TooLargeError:
        raise CallFailedError(
            GrpcCode.RESOURCE_EXHAUSTED, f"the message is larger than {max_bytes} bytes"
        ) from None
    except CrowdedError:
        raise CallFailedError(GrpcCode.UNAVAILABLE, CROWDED) from None


class Packed(NamedTuple):
    """A compressed message that a thread should decompress."""

    content: bytes
    encoding: bytes
    max_bytes: int
    room: Room

    def unpack(self) -> bytes:
        """Return the message in full, counted in the room. Raises CallFailedError."""
        return decompress(self.content, self.encoding, self.max_bytes, self.room)


class MessageReader:
    """Finds the messages in pieces of a body."""

    __slots__ = ("_buffer", "_encoding", "_max_bytes", "_room", "_wanted", "compressed")

    def __init__(self, encoding: bytes, max_bytes: int, room: Room) -> None:
        self._encoding = encoding
        self._max_bytes = max_bytes
        self._room = room
        self._buffer = bytearray()
        self._wanted = PREFIX
        self.compressed = False
        """Some message was compressed."""

    @property
    def unfinished(self) -> int:
        """Bytes of a message that is not complete."""
        return len(self._buffer)

    def clear(self) -> None:
        """Forget what is not complete: no more will be read."""
        self._buffer.clear()

    def feed(self, data: bytes) -> list[bytes | Packed]:
        """Return the messages that `data` completes. Raises CallFailedError."""
        buffer = self._buffer
        buffer += data
        if len(buffer) < self._wanted:
            return []
        messages: list[bytes | Packed] = []
        start = 0
        while len(buffer) - start >= PREFIX:
            size = int.from_bytes(buffer[start + 1 : start + PREFIX], "big")
            flag = buffer[start]
            if flag > 1:
                raise CallFailedError(GrpcCode.INTERNAL, f"the message's first byte is {flag}; allowed: 0, 1")
            if size > self._max_bytes:
                raise CallFailedError(
                    GrpcCode.RESOURCE_EXHAUSTED,
                    f"the message has {size} bytes; allowed: at most {self._max_bytes}",
                )
            end = start + PREFIX + size
            if end > len(buffer):
                break
            with memoryview(buffer) as view:
                message = bytes(view[start + PREFIX : end])
            messages.append(self._in_full(message) if flag else message)
            start = end
        del buffer[:start]
        self._wanted = PREFIX
        if len(buffer) >= PREFIX:
            self._wanted += int.from_bytes(buffer[1:PREFIX], "big")
        return messages

    def _in_full(self, message: bytes) -> bytes | Packed:
        if self._encoding == b"identity":
            raise CallFailedError(
                GrpcCode.INTERNAL, "the message is compressed, and grpc-encoding is missing"
            )
        self.compressed = True
        if len(message) > _AT_ONCE:
            return Packed(message, self._encoding, self._max_bytes, self._room)
        full = decompress(message, self._encoding, self._max_bytes, self._room)
        self._room.give(len(full))
        return full
