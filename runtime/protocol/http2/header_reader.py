"""Header blocks, which may come in several frames, into requests; equal blocks are read once."""

from typing import Final

from mcp2026.runtime.protocol.http2.errors import (
    ConnectionProtocolError,
    HeadersTooLargeError,
    Http2Code,
    MalformedRequestError,
)
from mcp2026.runtime.protocol.http2.frames import (
    END_HEADERS,
    END_STREAM,
    PADDED,
    WITH_PRIORITY,
    dependency,
    unpadded,
)
from mcp2026.runtime.protocol.http2.header_decoder import HeaderDecoder
from mcp2026.runtime.protocol.http2.limits import Http2Limits
from mcp2026.runtime.protocol.http2.request_headers import RequestHeaders, check_trailers, read_request

_KEPT_BLOCKS: Final = 32
_KEPT_BYTES: Final = 512
"""Blocks up to this length are kept: those of a client whose headers are in the dynamic table are short."""


class HeaderReader:
    """The header blocks of one connection."""

    def __init__(self, limits: Http2Limits) -> None:
        self._limits = limits
        self._decoder = HeaderDecoder()
        self._known: dict[bytes, RequestHeaders] = {}
        self._known_at = 0  # changes of the table when the known blocks were read
        self._block = b""
        self._frames = 0
        self.stream_id = 0
        """The stream whose block has begun, 0 if none has."""
        self.ends_stream = False
        self.depends_on_itself = False

    def begin(self, flags: int, stream_id: int, payload: bytes) -> bool:
        """Take a HEADERS frame; return whether the block is complete."""
        if stream_id == 0:
            raise ConnectionProtocolError(Http2Code.PROTOCOL_ERROR, "HEADERS on stream 0")
        if flags & PADDED:
            payload, _ = unpadded(payload)
        self.depends_on_itself = False
        if flags & WITH_PRIORITY:
            if len(payload) < 5:
                raise ConnectionProtocolError(
                    Http2Code.FRAME_SIZE_ERROR, "HEADERS too short for its priority"
                )
            self.depends_on_itself = dependency(payload) == stream_id
            payload = payload[5:]
        self.stream_id = stream_id
        self.ends_stream = flags & END_STREAM != 0
        self._block = payload
        self._frames = 0
        if len(payload) > self._limits.max_header_bytes:
            raise ConnectionProtocolError(Http2Code.ENHANCE_YOUR_CALM, "the header block is too long")
        return flags & END_HEADERS != 0

    def add(self, flags: int, stream_id: int, piece: bytes) -> bool:
        """Take a CONTINUATION; return whether the block is complete."""
        if stream_id != self.stream_id or stream_id == 0:
            raise ConnectionProtocolError(Http2Code.PROTOCOL_ERROR, "CONTINUATION outside a header block")
        self._block += piece
        self._frames += 1
        limits = self._limits
        if len(self._block) > limits.max_header_bytes or self._frames > limits.max_continuations:
            raise ConnectionProtocolError(Http2Code.ENHANCE_YOUR_CALM, "the header block is too long")
        return flags & END_HEADERS != 0

    def request(self) -> RequestHeaders | MalformedRequestError | HeadersTooLargeError:
        """Return the block as a request, or what is wrong with that.

        Raises ConnectionProtocolError if the block cannot be decoded.
        """
        block, known, decoder = self._block, self._known, self._decoder
        if self._known_at != decoder.changes:
            known.clear()
            self._known_at = decoder.changes
        request = known.get(block)
        if request is not None:
            return request
        limits = self._limits
        try:
            request = read_request(decoder.decode(block, limits.max_header_bytes, limits.max_headers))
        except (MalformedRequestError, HeadersTooLargeError) as error:
            return error
        if self._known_at == decoder.changes and len(block) <= _KEPT_BYTES:
            if len(known) >= _KEPT_BLOCKS:
                known.clear()
            known[block] = request
        return request

    def forget(self) -> None:
        """Read no more requests as equal to those so far: something else holds for them from now on."""
        self._known.clear()

    def trailers(self) -> None:
        """Check the block as trailers, which nobody reads."""
        decoder = self._decoder
        fields = decoder.decode(self._block, self._limits.max_header_bytes, self._limits.max_headers)
        check_trailers(fields)
