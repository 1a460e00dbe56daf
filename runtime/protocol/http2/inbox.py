"""The receiving half of flow control: how much more the client may send, on each stream and altogether.

What comes is taken at once, so the connection's window is always refilled. Unfinished bodies are held by
their consumers: while they are few, a stream's window is refilled, too, and grows; beyond the limit, only
the oldest stream's is, so that one body after the other completes and none waits for another.
"""

from mcp2026.runtime.protocol.connections import SharedBytes
from mcp2026.runtime.protocol.http2 import frames
from mcp2026.runtime.protocol.http2.errors import ConnectionProtocolError, Http2Code, StreamProtocolError
from mcp2026.runtime.protocol.http2.limits import Http2Limits
from mcp2026.runtime.protocol.http2.outbox import Outbox
from mcp2026.runtime.protocol.http2.stream import Stream


class Inbox:
    """Counts what came and grants more."""

    def __init__(
        self, limits: Http2Limits, outbox: Outbox, streams: dict[int, Stream], unfinished: SharedBytes
    ) -> None:
        self._limits = limits
        self._unfinished = unfinished
        self._outbox = outbox
        self._streams = streams
        self._window = self._window_target = limits.connection_window_bytes
        self._held = 0

    @property
    def full(self) -> bool:
        """Windows are kept from the clients, who cannot be blamed for their silence."""
        return self._held >= self._limits.held_bytes

    def start(self) -> None:
        """Widen the connection's window from what every connection begins with."""
        more = self._window_target - frames.DEFAULT_WINDOW
        self._outbox.control(frames.window_update_frame(0, more))

    def count(self, size: int) -> None:
        """Take `size` bytes of DATA frames from the connection's window, and refill it."""
        self._window -= size
        if self._window < 0:
            raise ConnectionProtocolError(
                Http2Code.FLOW_CONTROL_ERROR, "more data than the connection's window"
            )
        if self._window * 2 < self._window_target:
            self._outbox.control(frames.window_update_frame(0, self._window_target - self._window))
            self._window = self._window_target

    def spend(self, stream: Stream, size: int) -> None:
        """Take `size` bytes of a DATA frame from its stream's window."""
        stream.receive_window -= size
        if stream.receive_window < 0:
            raise StreamProtocolError(
                stream.id, Http2Code.FLOW_CONTROL_ERROR, "more data than the stream's window"
            )

    def hold(self, stream: Stream, size: int, padding: int) -> None:
        """Take a DATA frame of a stream that goes on: its bytes are kept, its padding is not."""
        self.spend(stream, size + padding)
        stream.held += size
        self._held += size
        self._unfinished.add(size)
        if stream.receive_window * 2 < stream.receive_target and not stream.unwanted:
            self._refill(stream)

    def release(self, stream: Stream, size: int) -> None:
        """Bytes of a stream that goes on have been used."""
        was_full = self.full
        stream.held -= size
        self._held -= size
        self._unfinished.add(-size)
        if was_full and not self.full:
            self._refill_all()

    def close(self, stream: Stream) -> None:
        """A stream receives no more; what it held has been used or dropped."""
        if stream.held:
            self.release(stream, stream.held)
            if self.full:
                self._refill_all()

    def forget(self, stream: Stream) -> None:
        """Let go of a stream whose connection is lost."""
        self._held -= stream.held
        self._unfinished.add(-stream.held)
        stream.held = 0

    def _refill_all(self) -> None:
        for stream in self._streams.values():
            if (
                stream.remote_open
                and not stream.unwanted
                and stream.receive_window * 2 < stream.receive_target
            ):
                self._refill(stream)

    def _refill(self, stream: Stream) -> None:
        limits = self._limits
        if self.full:
            oldest = next((one for one in self._streams.values() if one.remote_open and one.held), stream)
            if oldest is not stream:
                return
        else:
            stream.receive_target = min(stream.receive_target * 2, limits.max_stream_window_bytes)
        more = stream.receive_target - stream.receive_window
        self._outbox.control(frames.window_update_frame(stream.id, more))
        stream.receive_window += more
