"""Bytes into frames, however they are cut. A DATA frame is handed over as it comes, so none is collected."""

from collections.abc import Callable

from mcp2026.runtime.protocol.http2.errors import ConnectionProtocolError, Http2Code
from mcp2026.runtime.protocol.http2.frames import (
    DATA,
    END_STREAM,
    HEAD,
    HEAD_SIZE,
    MAX_STREAM_ID,
    PADDED,
    PREFACE,
)

HandleFrame = Callable[[int, int, int, bytes], None]
"""Takes type, flags, stream and payload. A DATA frame may come in parts, its flags with the last one."""


class FrameReader:
    """Reads what one client sends: the preface, then frames."""

    def __init__(self, max_frame_bytes: int, handle: HandleFrame) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._handle = handle
        self._preface_left = PREFACE
        self._rest = b""  # the start of a frame
        self._data_left = 0  # of a DATA frame that has begun
        self.held_back = False
        """Set by who handles a frame: the next ones wait for another call of `feed`, maybe with nothing."""
        self._data_stream = self._data_flags = 0

    def feed(self, data: bytes) -> None:
        """Handle all frames that `data` completes, until `held_back`. Raises ConnectionProtocolError."""
        if self._preface_left:
            data = self._after_preface(data)
        if self._rest:
            data, self._rest = self._rest + data, b""
        position, end = 0, len(data)
        handle = self._handle
        if self._data_left and end:
            position = min(self._data_left, end)
            self._data_left -= position
            flags = 0 if self._data_left else self._data_flags
            handle(DATA, flags, self._data_stream, data[:position])
        read_head = HEAD.unpack_from
        while end - position >= HEAD_SIZE:
            word, flags, stream_id = read_head(data, position)
            stream_id &= MAX_STREAM_ID
            length = word >> 8
            if length > self._max_frame_bytes:
                raise ConnectionProtocolError(
                    Http2Code.FRAME_SIZE_ERROR, f"a frame of more than {self._max_frame_bytes} bytes"
                )
            start = position + HEAD_SIZE
            after = start + length
            if after > end:
                if word & 0xFF == DATA and not flags & PADDED and end > start:
                    self._data_left = after - end
                    self._data_stream, self._data_flags = stream_id, flags & END_STREAM
                    handle(DATA, 0, stream_id, data[start:])
                    return
                break
            handle(word & 0xFF, flags, stream_id, data[start:after])
            position = after
            if self.held_back:
                break
        if position < end:
            self._rest = data[position:]
        else:
            self.held_back = False

    def _after_preface(self, data: bytes) -> bytes:
        size = min(len(self._preface_left), len(data))
        if data[:size] != self._preface_left[:size]:
            raise ConnectionProtocolError(Http2Code.PROTOCOL_ERROR, "not the preface of HTTP/2")
        self._preface_left = self._preface_left[size:]
        return data[size:]
