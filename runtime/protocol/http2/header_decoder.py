"""Header blocks into fields: HPACK (https://www.rfc-editor.org/rfc/rfc7541), the receiving half.

The dynamic table of a connection is state that every block may change. `changes` counts those changes: while
it stays the same, equal blocks have equal fields.
"""

from mcp2026.runtime.protocol.http2 import huffman
from mcp2026.runtime.protocol.http2.errors import ConnectionProtocolError, HeadersTooLargeError, Http2Code

Field = tuple[bytes, bytes]

STATIC_TABLE: tuple[Field, ...] = (
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
)
"""Entry n has index n + 1 (RFC 7541, appendix A)."""

_STATIC = ((b"", b""), *STATIC_TABLE)
_FIRST_DYNAMIC = len(_STATIC)
FIELD_OVERHEAD = 32
"""What an entry of a table or of a header list counts beyond its two strings (RFC 7541 §4.1)."""
_MAX_INTEGER = 1 << 28


class HeaderDecoder:
    """Decodes the header blocks of one connection, in the order in which they came."""

    def __init__(self, table_bytes: int = 4096) -> None:
        self._entries: list[Field] = []  # the newest last
        self._allowed = self._capacity = table_bytes
        self._used = 0
        self.changes = 0

    def decode(self, block: bytes, max_bytes: int, max_fields: int) -> list[Field]:
        """Return the fields of a whole block.

        Raises ConnectionProtocolError if the block is not HPACK, HeadersTooLargeError if the list exceeds
        `max_bytes` (with 32 bytes a field) or `max_fields`; the table is right after it nevertheless.
        """
        try:
            fields, size = self._fields(block, max_bytes)
        except (IndexError, ValueError) as error:
            raise ConnectionProtocolError(Http2Code.COMPRESSION_ERROR, f"header block: {error}") from None
        if size > max_bytes:
            raise HeadersTooLargeError(f"more than {max_bytes} bytes of headers")
        if len(fields) > max_fields:
            raise HeadersTooLargeError(f"more than {max_fields} headers")
        return fields

    def _fields(self, block: bytes, max_bytes: int) -> tuple[list[Field], int]:
        fields: list[Field] = []
        size = position = 0
        end = len(block)
        while position < end:
            byte = block[position]
            position += 1
            if byte & 0x80:
                index = byte & 0x7F
                if index == 0x7F:
                    index, position = _integer(block, position, index)
                field = _STATIC[index] if 0 < index < _FIRST_DYNAMIC else self._dynamic(index)
            elif byte & 0xE0 == 0x20:
                if fields:
                    raise ValueError("the size of the table changes inside the block")
                capacity = byte & 0x1F
                if capacity == 0x1F:
                    capacity, position = _integer(block, position, capacity)
                self._resize(capacity)
                continue
            else:
                mask = 0x3F if byte & 0x40 else 0x0F
                index = byte & mask
                if index == mask:
                    index, position = _integer(block, position, index)
                if index == 0:
                    name, position = _string(block, position)
                elif index < _FIRST_DYNAMIC:
                    name = _STATIC[index][0]
                else:
                    name = self._dynamic(index)[0]
                value, position = _string(block, position)
                field = (name, value)
                if byte & 0x40:
                    self._insert(field)
            size += len(field[0]) + len(field[1]) + FIELD_OVERHEAD
            if size <= max_bytes:
                fields.append(field)
        return fields, size

    def _dynamic(self, index: int) -> Field:
        place = index - _FIRST_DYNAMIC
        if not 0 <= place < len(self._entries):
            raise ValueError(f"there is no entry {index}")
        return self._entries[-1 - place]

    def _insert(self, field: Field) -> None:
        self.changes += 1
        self._entries.append(field)
        self._used += len(field[0]) + len(field[1]) + FIELD_OVERHEAD
        self._evict()

    def _resize(self, capacity: int) -> None:
        if capacity > self._allowed:
            raise ValueError(f"a table of {capacity} bytes, where {self._allowed} are allowed")
        self.changes += 1
        self._capacity = capacity
        self._evict()

    def _evict(self) -> None:
        oldest = 0
        while self._used > self._capacity:
            name, value = self._entries[oldest]
            self._used -= len(name) + len(value) + FIELD_OVERHEAD
            oldest += 1
        if oldest:
            del self._entries[:oldest]


def _integer(block: bytes, position: int, value: int) -> tuple[int, int]:
    """Return an integer whose prefix is full, and the position after it (RFC 7541 §5.1)."""
    shift = 0
    while True:
        byte = block[position]
        position += 1
        value += (byte & 0x7F) << shift
        if value > _MAX_INTEGER or shift > 28:
            raise ValueError("an integer is too large")
        if byte < 0x80:
            return value, position
        shift += 7


def _string(block: bytes, position: int) -> tuple[bytes, int]:
    """Return a string and the position after it (RFC 7541 §5.2)."""
    byte = block[position]
    length = byte & 0x7F
    position += 1
    if length == 0x7F:
        length, position = _integer(block, position, length)
    end = position + length
    if end > len(block):
        raise ValueError("a string ends after the block")
    text = block[position:end]
    return (huffman.decode(text) if byte & 0x80 else text), end
