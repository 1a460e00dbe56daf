"""The sending half of a connection: frames in order, within the windows that the peer grants."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from mcp2026.runtime.protocol.connections import SharedBytes
from mcp2026.runtime.protocol.http2 import frames
from mcp2026.runtime.protocol.http2.errors import ConnectionProtocolError, Http2Code, StreamProtocolError
from mcp2026.runtime.protocol.http2.frames import DATA, END_HEADERS, END_STREAM, HEAD, HEADERS
from mcp2026.runtime.protocol.http2.header_encoder import EMPTY_TABLE
from mcp2026.runtime.protocol.http2.stream import Stream

_HEADERS_LAST: Final = END_HEADERS | END_STREAM
_TURN_FRAMES: Final = 4
"""DATA frames of one stream before the next one that waits has its turn."""
_ROUND_BYTES: Final = 1 << 18
"""DATA written at once; the rest follows when the transport has taken it."""


class Outbox:
    """Collects what is to be written. `wake` is called when there is something after there was nothing."""

    def __init__(
        self,
        wake: Callable[[], None],
        closed: Callable[[Stream], None],
        max_unsent: int,
        unsent: SharedBytes,
    ) -> None:
        """Let a stream be ahead by `max_unsent` bytes; `unsent` counts those of all connections."""
        self._wake = wake
        self._closed = closed
        self._max_unsent = max_unsent
        self._unsent = unsent
        self._parts: list[bytes | memoryview] = []
        self._window = frames.DEFAULT_WINDOW
        self._waiting: dict[int, Stream] = {}  # streams that may send as soon as connection and transport do
        self._block_start = b""
        self._table_in_use = True
        self.initial_window = frames.DEFAULT_WINDOW
        self.max_frame = frames.SMALLEST_MAX_FRAME
        self.blocked = False
        """The transport takes nothing more for now."""

    # --- towards the transport

    def take(self) -> bytes:
        """Return the bytes to write now; none if there is nothing."""
        if self._waiting:
            self._pump()
        parts = self._parts
        if not parts:
            return b""
        self._parts = []
        return b"".join(parts)

    @property
    def more(self) -> bool:
        """There will be more to take as soon as the transport is ready, without anything being received."""
        return bool(self._waiting) and self._window > 0 and not self.blocked

    # --- frames

    def control(self, frame: bytes) -> None:
        """Send a frame that no window holds back."""
        if not self._parts:
            self._wake()
        self._parts.append(frame)

    def respond(self, stream: Stream, block: bytes, body: bytes, trailers: bytes | None) -> None:
        """Send a whole response."""
        size = len(body)
        if (
            0 < size <= stream.send_window
            and size <= self.max_frame
            and size <= self._window
            and not self.blocked
            and not self._block_start
            and len(block) <= frames.SMALLEST_MAX_FRAME
            and (trailers is None or len(trailers) <= frames.SMALLEST_MAX_FRAME)
        ):
            stream_id = stream.id
            parts = self._parts
            if not parts:
                self._wake()
            self._window -= size
            parts.append(HEAD.pack(len(block) << 8 | HEADERS, END_HEADERS, stream_id))
            parts.append(block)
            if trailers is None:
                parts.append(HEAD.pack(size << 8, END_STREAM, stream_id))
                parts.append(body)
            else:
                parts.append(HEAD.pack(size << 8, 0, stream_id))
                parts.append(body)
                parts.append(HEAD.pack(len(trailers) << 8 | HEADERS, _HEADERS_LAST, stream_id))
                parts.append(trailers)
            stream.local_open = False
            self._closed(stream)
            return
        ends = size == 0 and trailers is None
        self.headers(stream, block, end=ends)
        if not ends:
            self.data(stream, body, trailers, end=True)

    def headers(self, stream: Stream, block: bytes, *, end: bool) -> None:
        """Send a header block, in as many frames as it needs."""
        if not self._parts:
            self._wake()
        if self._block_start:
            block, self._block_start = self._block_start + block, b""
        piece, rest = block[: self.max_frame], block[self.max_frame :]
        flags = (END_STREAM if end else 0) | (0 if rest else END_HEADERS)
        self._parts.append(frames.frame(HEADERS, flags, stream.id, piece))
        while rest:
            piece, rest = rest[: self.max_frame], rest[self.max_frame :]
            flags = 0 if rest else END_HEADERS
            self._parts.append(frames.frame(frames.CONTINUATION, flags, stream.id, piece))
        if end:
            stream.local_open = False
            self._closed(stream)

    def data(self, stream: Stream, data: bytes, trailers: bytes | None, *, end: bool) -> None:
        """Send a piece of a body after what waits already; `end` with its last, maybe before trailers."""
        if stream.pending is None:
            stream.pending = deque()
        if not stream.pending:
            stream.moved_at = stream.core.now
        if data:
            stream.pending.append(data)
            stream.pending_bytes += len(data)
            self._unsent.add(len(data))
            if (stream.pending_bytes > self._max_unsent and not end) or (
                self._unsent.over and self._waits(stream)
            ):
                stream.core.refuse_to_wait(stream)
                return
        stream.pending_end, stream.end_block = end, trailers
        if not stream.pending:
            if end:
                self._finish(stream)
        elif stream.send_window > 0:
            if not self._parts:
                self._wake()
            self._waiting[stream.id] = stream

    def _waits(self, stream: Stream) -> bool:
        """Return whether what a stream has to send cannot be sent before the client reads."""
        return self.blocked or stream.pending_bytes > min(stream.send_window, self._window)

    # --- the peer's windows

    def grant(self, increment: int) -> None:
        """Widen the connection's window."""
        if increment == 0:
            raise ConnectionProtocolError(Http2Code.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
        if self._window + increment > frames.MAX_WINDOW:
            raise ConnectionProtocolError(
                Http2Code.FLOW_CONTROL_ERROR, "the connection's window exceeds 2^31 - 1"
            )
        self._window += increment
        if self._waiting:
            self._wake()

    def grant_stream(self, stream: Stream, increment: int) -> None:
        """Widen a stream's window."""
        if increment == 0:
            raise StreamProtocolError(stream.id, Http2Code.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
        if stream.send_window + increment > frames.MAX_WINDOW:
            raise StreamProtocolError(stream.id, Http2Code.FLOW_CONTROL_ERROR, "the window exceeds 2^31 - 1")
        self._widen(stream, increment)

    def peer_settings(self, settings: dict[int, int], streams: Mapping[int, Stream]) -> None:
        """Follow what the peer says it takes."""
        self.max_frame = settings.get(frames.MAX_FRAME_SIZE, self.max_frame)
        table = settings.get(frames.HEADER_TABLE_SIZE)
        if table is not None and table < 4096 and self._table_in_use:
            # Nothing was ever put into the table, but its size has to be reduced explicitly (RFC 7541 §4.2).
            self._table_in_use = False
            self._block_start = EMPTY_TABLE
        window = settings.get(frames.INITIAL_WINDOW_SIZE)
        if window is not None and window != self.initial_window:
            change, self.initial_window = window - self.initial_window, window
            for stream in streams.values():
                if stream.send_window + change > frames.MAX_WINDOW:
                    raise ConnectionProtocolError(Http2Code.FLOW_CONTROL_ERROR, "a window exceeds 2^31 - 1")
                self._widen(stream, change)

    def _widen(self, stream: Stream, change: int) -> None:
        stream.send_window += change
        if stream.pending and stream.send_window > 0:
            self._waiting[stream.id] = stream
            self._wake()

    # --- what waits

    def forget(self, stream: Stream) -> None:
        """Drop what waits of a stream that is closed."""
        self._waiting.pop(stream.id, None)
        stream.pending = None
        self._unsent.add(-stream.pending_bytes)
        stream.pending_bytes = 0

    def _pump(self) -> None:
        """Move what waits into frames: the streams take turns, as far as the windows reach."""
        left = 0 if self.blocked else _ROUND_BYTES
        waiting = self._waiting
        while waiting and left > 0:
            stream_id, stream = next(iter(waiting.items()))
            del waiting[stream_id]
            written = self._turn(stream)
            if written < 0:
                waiting[stream_id] = stream
                return  # the connection's window is used up
            left -= written
            if stream.pending and stream.send_window > 0:
                waiting[stream_id] = stream

    def _turn(self, stream: Stream) -> int:
        """Write some frames of one stream; return the bytes, or -1 if the connection's window is empty."""
        pending = stream.pending
        assert pending is not None  # streams that wait have something that waits
        written = 0
        for _ in range(_TURN_FRAMES):
            if not pending:
                break
            size = min(len(pending[0]), stream.send_window, self._window, self.max_frame)
            if size <= 0:
                if self._window <= 0 and written == 0:
                    return -1
                return written
            self._data_frame(stream, pending, size)
            written += size
        if not pending and stream.pending_end and stream.local_open:
            self._finish(stream)
        return written

    def _data_frame(self, stream: Stream, pending: deque[bytes | memoryview], size: int) -> None:
        piece = pending[0]
        if size == len(piece):
            pending.popleft()
        else:
            view = memoryview(piece)
            piece, pending[0] = view[:size], view[size:]
        stream.pending_bytes -= size
        self._unsent.add(-size)
        stream.send_window -= size
        stream.moved_at = stream.core.now
        self._window -= size
        last = stream.pending_end and stream.end_block is None and not pending
        self._parts.append(HEAD.pack(size << 8 | DATA, END_STREAM if last else 0, stream.id))
        self._parts.append(piece)
        if last:
            stream.local_open = False
            self._closed(stream)

    def _finish(self, stream: Stream) -> None:
        if stream.end_block is not None:
            self.headers(stream, stream.end_block, end=True)
        else:
            if not self._parts:
                self._wake()
            self._parts.append(HEAD.pack(DATA, END_STREAM, stream.id))
            stream.local_open = False
            self._closed(stream)
