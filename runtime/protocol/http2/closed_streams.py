"""What a frame means on a stream that is not open any more, or never was."""

from typing import Final

from mcp2026.runtime.protocol.http2.errors import ConnectionProtocolError, Http2Code

_RESETS: Final = 1_000
"""Streams that were reset lately: what the client sent before it knew is dropped without a fault."""
_GAPS: Final = 8


class ClosedStreams:
    """Remembers just enough of closed streams to judge what still comes."""

    def __init__(self) -> None:
        self.last_id = 0
        """The highest number that the client has used."""
        self._gaps: list[range] = []
        self._reset: dict[int, None] = {}

    def advance(self, stream_id: int) -> None:
        """The client opens a stream with a higher number; those in between are closed by that."""
        if stream_id > self.last_id + 2:
            self._gaps = [*self._gaps[1 - _GAPS :], range(self.last_id + 1, stream_id)]
        self.last_id = stream_id

    def remember_reset(self, stream_id: int) -> None:
        """The server has reset a stream."""
        self._reset[stream_id] = None
        if len(self._reset) > _RESETS:
            del self._reset[next(iter(self._reset))]

    def judge(self, stream_id: int) -> None:
        """Return if a frame with content for a closed stream is to be dropped, or raise what it means."""
        if stream_id in self._reset:
            return
        if stream_id % 2 == 0 or any(stream_id in gap for gap in self._gaps):
            raise ConnectionProtocolError(Http2Code.PROTOCOL_ERROR, "a stream number that was passed over")
        raise ConnectionProtocolError(Http2Code.STREAM_CLOSED, "a frame on a stream that is closed")
