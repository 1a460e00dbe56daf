"""What gRPC puts into HTTP/2: messages with a prefix, paths, statuses. Pure.

Source: "gRPC over HTTP2", https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md.
"""

import struct
from urllib.parse import quote, unquote

from mcp2026.api.grpc_codes import GrpcCode

CONTENT_TYPE = "application/grpc"
_PREFIX = struct.Struct(">BI")
"""Whether the message is compressed, and its length in bytes."""
_PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
"""What a status message has unescaped."""


class CallError(Exception):
    """A call that ended otherwise than with OK."""

    def __init__(self, code: GrpcCode, details: str) -> None:
        super().__init__(f"{code.name}: {details}")
        self.code = code
        self.details = details


def prefixed(message: bytes) -> bytes:
    """Return `message` as it goes over the wire."""
    return _PREFIX.pack(0, len(message)) + message


def single_message(body: bytes | bytearray) -> bytes:
    """Return the one message that `body` consists of.

    Raises:
        CallError: it is compressed, or not exactly one.

    """
    if len(body) < _PREFIX.size:
        raise CallError(GrpcCode.INTERNAL, f"a message of {len(body)} bytes, not even its length")
    compressed, length = _PREFIX.unpack_from(body)
    if compressed:
        raise CallError(GrpcCode.UNIMPLEMENTED, "messages are taken uncompressed")
    if len(body) != _PREFIX.size + length:
        told = len(body) - _PREFIX.size
        raise CallError(GrpcCode.INTERNAL, f"a message of {length} bytes was announced, {told} came")
    return bytes(body[_PREFIX.size :])


def status_headers(code: GrpcCode, details: str) -> list[tuple[str, str]]:
    """Return the trailers that end a call."""
    headers = [("grpc-status", str(int(code)))]
    if details:
        headers.append(("grpc-message", quote(details.strip(), safe=_PLAIN)))
    return headers


def raise_for_status(headers: dict[str, str]) -> None:
    """Do nothing if `headers`, of an answer and its trailers, tell of a call that went well.

    Raises:
        CallError: it ended otherwise, or not as a gRPC call does.

    """
    if headers.get(":status") != "200":
        raise CallError(GrpcCode.UNKNOWN, f"HTTP status {headers.get(':status')}")
    told = headers.get("grpc-status", "")
    try:
        code = GrpcCode(int(told))
    except ValueError:
        raise CallError(GrpcCode.UNKNOWN, f"grpc-status is {told!r}") from None
    if code is not GrpcCode.OK:
        raise CallError(code, unquote(headers.get("grpc-message", "")))
