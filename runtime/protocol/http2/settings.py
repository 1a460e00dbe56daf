"""What each side of a connection says about itself (https://www.rfc-editor.org/rfc/rfc9113#section-6.5)."""

from collections.abc import Callable, Mapping

from mcp2026.runtime.protocol.http2 import frames
from mcp2026.runtime.protocol.http2.errors import ConnectionProtocolError, Http2Code
from mcp2026.runtime.protocol.http2.limits import Http2Limits
from mcp2026.runtime.protocol.http2.outbox import Outbox
from mcp2026.runtime.protocol.http2.stream import Stream

_STANDARD = range(1, 10)
"""Ids of RFC 9113 and RFC 9218. There are 65,536, and what a client says of unknown ones is not kept."""


class SettingsExchange:
    """What the server and one client have said to each other."""

    def __init__(
        self,
        limits: Http2Limits,
        outbox: Outbox,
        streams: Mapping[int, Stream],
        extra: Mapping[int, int] | None = None,
    ) -> None:
        """Let the client's settings act on `outbox` and the open `streams`."""
        self._limits = limits
        self._outbox = outbox
        self._streams = streams
        self.extra = dict(extra or {})
        """What the server says beyond RFC 9113: ids of 16 bits, values of 32."""
        self.peer: dict[int, int] = {}
        """What the client has said, by id: of RFC 9113, and of what the server says itself."""
        self.on_peer: Callable[[dict[int, int]], None] | None = None
        """Told of each SETTINGS frame of the client: `peer` has changed, and nothing is acknowledged yet."""
        self.check_extra: Callable[[Mapping[int, int]], None] | None = None
        """Raises ConnectionProtocolError if the client says something of `extra` that is out of range."""

    def start(self) -> None:
        """Send the server's first frame."""
        self._outbox.control(frames.settings_frame(own_settings(self._limits, self.extra)))

    def send(self, settings: Mapping[int, int]) -> None:
        """Send settings beyond RFC 9113 that have changed."""
        self.extra.update(settings)
        self._outbox.control(frames.settings_frame(settings))

    def receive(self, payload: bytes) -> None:
        """Take the client's settings and acknowledge them. Raises ConnectionProtocolError."""
        settings = frames.read_settings(payload)
        self._check(settings)
        if len(settings) < len(payload) // 6:  # of repeated ones the last counts, but each has to be good
            for identifier, value in frames.listed_settings(payload):
                self._check({identifier: value})
        self.peer |= {one: value for one, value in settings.items() if one in _STANDARD or one in self.extra}
        if self.on_peer is not None:
            self.on_peer(settings)
        self._outbox.peer_settings(settings, self._streams)
        self._outbox.control(frames.frame(frames.SETTINGS, frames.ACK, 0))

    def _check(self, settings: Mapping[int, int]) -> None:
        check_peer_settings(settings)
        if self.check_extra is not None and not self.extra.keys().isdisjoint(settings):
            self.check_extra(settings)


def own_settings(limits: Http2Limits, extra: Mapping[int, int]) -> dict[int, int]:
    """Return the settings of the server's first frame; `extra` are other ids, of 16 bits, values of 32."""
    return {
        frames.MAX_CONCURRENT_STREAMS: limits.max_streams,
        frames.INITIAL_WINDOW_SIZE: limits.stream_window_bytes,
        frames.MAX_FRAME_SIZE: limits.max_frame_bytes,
        frames.MAX_HEADER_LIST_SIZE: limits.max_header_bytes,
        frames.NO_RFC7540_PRIORITIES: 1,
        **extra,
    }


def check_peer_settings(settings: Mapping[int, int]) -> None:
    """Raise ConnectionProtocolError for a value that RFC 9113 or RFC 9218 excludes; other ids are free."""
    if settings.get(frames.ENABLE_PUSH, 0) > 1:
        raise ConnectionProtocolError(Http2Code.PROTOCOL_ERROR, "ENABLE_PUSH is 0 or 1")
    if settings.get(frames.NO_RFC7540_PRIORITIES, 0) > 1:
        raise ConnectionProtocolError(Http2Code.PROTOCOL_ERROR, "NO_RFC7540_PRIORITIES is 0 or 1")
    if settings.get(frames.INITIAL_WINDOW_SIZE, 0) > frames.MAX_WINDOW:
        raise ConnectionProtocolError(Http2Code.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE is at most 2^31 - 1")
    size = settings.get(frames.MAX_FRAME_SIZE, frames.SMALLEST_MAX_FRAME)
    if not frames.SMALLEST_MAX_FRAME <= size <= frames.LARGEST_MAX_FRAME:
        raise ConnectionProtocolError(Http2Code.PROTOCOL_ERROR, "MAX_FRAME_SIZE is 2^14 to 2^24 - 1")
