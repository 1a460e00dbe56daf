"""How often a peer may do something that costs the server more than the peer."""

from mcp2026.runtime.protocol.http2.errors import ConnectionProtocolError, Http2Code
from mcp2026.runtime.protocol.http2.limits import Http2Limits


class Budget:
    """A bucket of tokens that fills with time. The clock is the caller's, in s."""

    __slots__ = ("_per_second", "_since", "_size", "_tokens")

    def __init__(self, size: int, per_second: float, now: float) -> None:
        self._size = float(size)
        self._per_second = per_second
        self._tokens = float(size)
        self._since = now

    def spend(self, now: float) -> bool:
        """Take one token; False if there is none."""
        tokens = min(self._size, self._tokens + (now - self._since) * self._per_second)
        self._since = now
        if tokens < 1.0:
            self._tokens = tokens
            return False
        self._tokens = tokens - 1.0
        return True

    def refund(self, tokens: int) -> None:
        """Give tokens back."""
        self._tokens = min(self._size, self._tokens + tokens)


class Conduct:
    """What one client has done that brought nothing. Raises ConnectionProtocolError when it is too much."""

    __slots__ = ("_idle_frames", "_per_work", "_resets", "_settings", "work")

    def __init__(self, limits: Http2Limits, now: float) -> None:
        self._resets = Budget(limits.resets, limits.resets_per_second, now)
        self._idle_frames = Budget(limits.idle_frames, limits.idle_frames_per_second, now)
        self._settings = Budget(limits.settings_frames, limits.settings_frames_per_second, now)
        self._per_work = limits.idle_frames_per_work
        self.work = 0
        """Frames that brought work since the last that brought none."""

    def reset(self, now: float) -> None:
        """A stream was dropped, by the client or for its fault."""
        if not self._resets.spend(now):
            raise ConnectionProtocolError(Http2Code.ENHANCE_YOUR_CALM, "too many streams were reset")

    def settings(self, now: float) -> None:
        """The client sent a SETTINGS frame."""
        if not self._settings.spend(now):
            raise ConnectionProtocolError(Http2Code.ENHANCE_YOUR_CALM, "too many SETTINGS frames")

    def idle_frame(self, now: float) -> None:
        """A frame brought no work."""
        self._idle_frames.refund(self.work * self._per_work)
        self.work = 0
        if not self._idle_frames.spend(now):
            raise ConnectionProtocolError(Http2Code.ENHANCE_YOUR_CALM, "too many frames that bring no work")
