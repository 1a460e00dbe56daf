"""Messages in the body of a call: five bytes before each, and compression by message.

Contract: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md#requests and compression.md there.
"""

import zlib
from typing import Final, NamedTuple

from mcp2026.runtime.protocol.grpc.service import GrpcCode

PREFIX: Final = 5
"""Bytes before a message: one that tells whether it is compressed, four of its length."""

_WINDOW_BITS: Final = {b"gzip": 31, b"deflate": 15}
"""How zlib is told the format; gRPC's deflate is zlib's own (RFC 1950)."""
ENCODINGS: Final = (b"identity", *_WINDOW_BITS)
"""Values of `grpc-encoding` that are understood."""

_FAST: Final = 1
_AT_ONCE: Final = 16 * 1024
"""Compressed messages up to this size, in bytes, are decompressed by who reads them; larger ones are left to
a thread, since they may stand for a thousand times as much."""


class CallFailedError(Exception):
    """The call ends with this status."""

    def __init__(self, code: GrpcCode, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


def framed(message: bytes) -> bytes:
    """Return a message with its prefix, not compressed."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def framed_gzip(message: bytes) -> bytes:
    """Return a message with its prefix, compressed quickly."""
    packer = zlib.compressobj(_FAST, zlib.DEFLATED, _WINDOW_BITS[b"gzip"])
    packed = packer.compress(message) + packer.flush()
    return b"\1" + len(packed).to_bytes(4, "big") + packed


def decompress(message: bytes, encoding: bytes, max_bytes: int) -> bytes:
    """Return a compressed message in full; never makes more than `max_bytes` + 1 bytes of it."""
    unpacker = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        full = unpacker.decompress(message, max_bytes + 1)
    except zlib.error as error:
        raise CallFailedError(GrpcCode.INTERNAL, f"the message is not {encoding.decode()}: {error}") from None
    if len(full) > max_bytes:
        raise CallFailedError(GrpcCode.RESOURCE_EXHAUSTED, f"the message is larger than {max_bytes} bytes")
    if not unpacker.eof:
        raise CallFailedError(GrpcCode.INTERNAL, f"the message is not {encoding.decode()}: it is cut off")
    return full


class Packed(NamedTuple):
    """A compressed message that a thread should decompress."""

    content: bytes
    encoding: bytes
    max_bytes: int

    def unpack(self) -> bytes:
        """Return the message in full. Raises CallFailedError."""
        return decompress(self.content, self.encoding, self.max_bytes)


class MessageReader:
    """Finds the messages in pieces of a body."""

    __slots__ = ("_buffer", "_encoding", "_max_bytes", "_wanted", "compressed")

    def __init__(self, encoding: bytes, max_bytes: int) -> None:
        self._encoding = encoding
        self._max_bytes = max_bytes
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
            return Packed(message, self._encoding, self._max_bytes)
        return decompress(message, self._encoding, self._max_bytes)
