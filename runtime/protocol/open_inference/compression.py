"""Bodies in gzip or deflate. What comes out of one is bounded: a small body can stand for a huge one."""

import zlib

from mcp2026.runtime.errors import ErrorCode, RequestError, invalid
from mcp2026.runtime.protocol.inflating import (
    WINDOW_BITS,
    Buffer,
    CrowdedError,
    InflateError,
    Room,
    TooLargeError,
    inflate,
)

ENCODINGS = tuple(WINDOW_BITS)
"""deflate is the zlib format, as RFC 9110 §8.4.1.2 says."""

SMALLEST = 1_024
"""Smaller answers are sent as they are, in bytes."""

AT_ONCE = 16 * 1_024
"""Bodies up to this size, in bytes, are decompressed or compressed by the event loop itself; larger ones by a
thread, while the loop serves others."""

_LEVEL = 1
"""Tensors compress badly: more work would save little."""


def encoding_of(header: bytes) -> str | None:
    """Return the encoding that a Content-Encoding header names, None if the body is as it is.

    Raises:
        RequestError: it is another one.

    """
    name = header.strip().lower()
    if name in (b"", b"identity"):
        return None
    for encoding in ENCODINGS:
        if name == encoding.encode():
            return encoding
    raise invalid(
        "content-encoding", f"{header[:32]!r} is not read here", ", ".join((*ENCODINGS, "identity"))
    )


def accepted(header: bytes) -> str | None:
    """Return the encoding that an Accept-Encoding header likes best, None for no encoding."""
    best, best_weight = None, 0.0
    for item in header[:512].decode("latin-1").lower().split(","):
        name, _, rest = item.partition(";")
        weight = _weight(rest)
        if name.strip() in ENCODINGS and weight > best_weight:
            best, best_weight = name.strip(), weight
    return best


def decompress(body: Buffer, encoding: str, limit: int, room: Room) -> bytes:
    """Return what `body` stands for, at most `limit` bytes. They are counted in `room`: give them back.

    Raises:
        RequestError: it is longer, not of this encoding, cut short, or more follows; or there is no room.

    """
    try:
        return inflate(body, encoding, limit, room)
    except InflateError as error:
        raise invalid("body", f"the {encoding} stream {error}", f"one whole {encoding} stream") from error
    except TooLargeError as error:
        raise RequestError(
            ErrorCode.BODY_TOO_LARGE,
            f"the body is larger than {limit} bytes when decompressed",
            "body",
            f"at most {limit} bytes (--max-body-mib)",
        ) from error
    except CrowdedError as error:
        raise RequestError(
            ErrorCode.QUEUE_FULL,
            f"compressed bodies of all callers stand for more than {room.most} bytes; try again later",
            "body",
            f"{room.most} bytes in all (--queue-mib)",
        ) from error


def compress(body: bytes, encoding: str) -> bytes:
    """Return `body` in `encoding`."""
    encoder = zlib.compressobj(_LEVEL, zlib.DEFLATED, WINDOW_BITS[encoding])
    return encoder.compress(body) + encoder.flush()


def _weight(parameters: str) -> float:
    name, _, value = parameters.strip().partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0
