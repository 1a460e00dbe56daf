"""When must the plugin register with the kubelet again? A state without I/O: observations in, steps out.

A starting kubelet wipes the folder of the plugins' sockets, creates kubelet.sock anew and knows no plugin any
more. A kubelet that lost its stream to the plugin takes all its devices as unhealthy until it registers
again; and a kubelet that is told of a restarted plugin too early drops the new connection along with the old
one. So a registration counts only while the kubelet watches the device list.
"""

from dataclasses import dataclass
from enum import Enum

STREAMLESS_S = 10.0
"""How long a registered kubelet may go without a stream before the plugin registers again."""
FIRST_RETRY_S = 0.02
"""A kubelet that starts makes its socket before it listens there, and admits pods that waited for it within a
second: those whose devices are not registered by then are refused for good."""
LAST_RETRY_S = 10.0
_JUST_AFTER_S = 0.01
"""A look at the very moment would find that it is not time yet."""

SocketIdentity = tuple[int, int, int]
"""Device, inode and modification time (ns) of a socket's file: a new file differs, also in a reused inode."""


class Step(Enum):
    """What to do now."""

    NOTHING = "nothing"
    REGISTER = "register"
    SERVE_AND_REGISTER = "serve and register"
    """The plugin's own socket is gone: create it again first."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What the folder and the server look like: the kubelet's socket, whether ours is there, open streams."""

    kubelet: SocketIdentity | None
    own_socket: bool
    streams: int


class Registration:
    """Decides when to register. Times are seconds of a monotonic clock, given by the caller."""

    def __init__(self) -> None:
        self._registered_with: SocketIdentity | None = None
        self._tried: SocketIdentity | None = None
        self._retry_at = 0.0
        self._retry_s = FIRST_RETRY_S
        self._stream_seen_at = 0.0
        self._watched = False

    @property
    def registered(self) -> bool:
        """Whether the kubelet that runs now took the plugin's registration."""
        return self._registered_with is not None

    def wait_s(self, now: float, longest: float) -> float:
        """Return how long to wait until it is time for another try, at most `longest`.

        A new socket, a lost one and a stream that begins or ends are told of by others.
        """
        if self._retry_at > now:
            return min(longest, self._retry_at - now)
        if self.registered and not self._watched:
            return min(longest, max(0.0, self._stream_seen_at + STREAMLESS_S - now) + _JUST_AFTER_S)
        return longest

    def next_step(self, observed: Observation, now: float) -> Step:
        """Return what to do about `observed`."""
        if observed.kubelet is None:
            self._registered_with = None
            return Step.NOTHING
        if observed.kubelet != self._tried:
            self._retry_at, self._retry_s = now, FIRST_RETRY_S
        if observed.streams or self._watched:  # a stream that was open was so until just now
            self._stream_seen_at = now
        self._watched = observed.streams > 0
        if not observed.own_socket:
            wanted = Step.SERVE_AND_REGISTER
        elif observed.kubelet != self._registered_with or now - self._stream_seen_at > STREAMLESS_S:
            wanted = Step.REGISTER
        else:
            return Step.NOTHING
        return wanted if now >= self._retry_at else Step.NOTHING

    def succeeded(self, kubelet: SocketIdentity, now: float) -> None:
        """Note that the kubelet with the socket `kubelet` took the registration."""
        self._registered_with = self._tried = kubelet
        self._retry_at, self._retry_s = now, FIRST_RETRY_S
        self._stream_seen_at = now
        self._watched = False

    def failed(self, kubelet: SocketIdentity, now: float) -> None:
        """Note that it did not: the next try comes later each time, up to LAST_RETRY_S."""
        self._registered_with = None
        self._tried = kubelet
        self._retry_at = now + self._retry_s
        self._retry_s = min(2 * self._retry_s, LAST_RETRY_S)
