"""Fields into header blocks, without the dynamic table: a block depends on its fields alone.

So blocks are made once and sent on any connection, whatever it sent before. A peer that allows no table is
served by the same bytes.
"""

from collections.abc import Iterable
from functools import lru_cache

from mcp2026.runtime.protocol.http2.header_decoder import STATIC_TABLE, Field

EMPTY_TABLE = b"\x20"
"""A size update to nothing: owed at the start of the next block when the peer lowers its table's size."""

_STATUS_INDEX = {int(value): n + 1 for n, (name, value) in enumerate(STATIC_TABLE) if name == b":status"}
_NAME_INDEX = {name: n + 1 for n, (name, _) in reversed(list(enumerate(STATIC_TABLE)))}


def _integer(value: int, prefix_bits: int) -> bytes:
    """Return an integer with a prefix of zeros before it (RFC 7541 §5.1)."""
    full = (1 << prefix_bits) - 1
    if value < full:
        return bytes((value,))
    out = bytearray((full,))
    value -= full
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def literal(name: bytes, value: bytes) -> bytes:
    """Return one field, its name in lower case, as a literal that enters no table."""
    index = _NAME_INDEX.get(name, 0)
    named = _integer(index, 4) if index else b"\x00" + _integer(len(name), 7) + name
    return named + _integer(len(value), 7) + value


def block(fields: Iterable[Field]) -> bytes:
    """Return the fields one after the other."""
    return b"".join(literal(name, value) for name, value in fields)


def status(code: int) -> bytes:
    """Return `:status`."""
    index = _STATUS_INDEX.get(code)
    return bytes((0x80 | index,)) if index else literal(b":status", b"%d" % code)


@lru_cache(maxsize=256)
def response_start(code: int, content_type: bytes, more: tuple[Field, ...]) -> bytes:
    """Return what is the same in many responses: all but length and date."""
    return status(code) + literal(b"content-type", content_type) + block(more)


@lru_cache(maxsize=1024)
def content_length(length: int) -> bytes:
    """Return `content-length`."""
    return literal(b"content-length", b"%d" % length)


@lru_cache(maxsize=4)
def date(line: bytes) -> bytes:
    """Return `date` of the line `date: …` with which HTTP/1.1 says it."""
    return literal(b"date", line.partition(b":")[2].strip())
