"""Bodies in gzip or deflate. What comes out of one is bounded: a small body can stand for a huge one."""

import zlib

from mcp2026.runtime.errors import ErrorCode, RequestError, invalid

Buffer = bytes | bytearray | memoryview

ENCODINGS = ("gzip", "deflate")
"""deflate is the zlib format, as RFC 9110 §8.4.1.2 says."""

SMALLEST = 1_024
"""Smaller answers are sent as they are, in bytes."""

AT_ONCE = 16 * 1_024
"""Bodies up to this size, in bytes, are decompressed or compressed by the event loop itself; larger ones by a
thread, while the loop serves others."""

_WINDOW = {"gzip": 31, "deflate": 15}
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


def decompress(body: Buffer, encoding: str, limit: int) -> bytes:
    """Return what `body` stands for, at most `limit` bytes.

    Raises:
        RequestError: it is longer, not of this encoding, cut short, or more follows.

    """
    decoder = zlib.decompressobj(_WINDOW[encoding])
    try:
        content = decoder.decompress(body, limit + 1)
    except zlib.error as error:
        raise invalid("body", f"is not {encoding}: {error}", f"one {encoding} stream") from error
    if len(content) > limit:
        raise RequestError(
            ErrorCode.BODY_TOO_LARGE, f"the body is larger than {limit} bytes when decompressed", "body"
        )
    if not decoder.eof or decoder.unused_data:
        problem = "ends too early" if not decoder.eof else "has bytes after its end"
        raise invalid("body", f"the {encoding} stream {problem}", f"one whole {encoding} stream")
    return content


def compress(body: bytes, encoding: str) -> bytes:
    """Return `body` in `encoding`."""
    encoder = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW[encoding])
    return encoder.compress(body) + encoder.flush()


def _weight(parameters: str) -> float:
    name, _, value = parameters.strip().partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0
