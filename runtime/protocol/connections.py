"""The open connections of a worker: their limits, their timeouts, and their end."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from typing import Protocol

from mcp2026.runtime.protocol.inflating import Room

MIB = 1024 * 1024

NOTICEABLE = 32 * MIB
"""Freed memory that is worth to be given back."""
CROWDED = "too much of unfinished requests is held already; try again later"
"""What a client is told whose body is refused for the sake of all."""


@dataclass(frozen=True)
class ConnectionLimits:
    """What one client may ask of a connection. Seconds and bytes."""

    max_body_bytes: int = 64 * MIB
    max_head_bytes: int = 64 * 1024
    max_headers: int = 128
    max_pipelined: int = 32
    """Requests taken from one connection before the first of them is answered."""
    head_seconds: float = 10.0
    """From the first byte of a request to the end of its headers."""
    stall_seconds: float = 10.0
    """Longest pause inside a body, and longest that a client may refuse to read."""
    body_seconds: float = 300.0
    """Longest for one whole body."""
    idle_seconds: float = 75.0
    """Between two requests."""
    linger_seconds: float = 5.0
    """How long what a refused client still sends is read and thrown away, so that it sees the refusal."""
    unfinished_bytes: int = 512 * MIB
    """Bodies that are not complete, of all connections together; beyond, they are refused as they grow."""
    unsent_bytes: int = 512 * MIB
    """Answers that clients do not read, of all connections together; beyond, such clients are given up."""
    inflated_bytes: int = 512 * MIB
    """What compressed bodies stand for that are being read, of all together; beyond, they are refused."""

    @property
    def too_large(self) -> tuple[str, str]:
        """What the client of a larger body is told, and what is allowed."""
        most = self.max_body_bytes
        return f"the body is larger than {most} bytes", f"at most {most} bytes (--max-body-mib)"

    @property
    def too_slow(self) -> tuple[str, str]:
        """What the client of a request that does not come is told, and what is allowed."""
        body = f"a body within {self.body_seconds:g} s, without a pause of {self.stall_seconds:g} s"
        return "the request did not come in time", f"headers within {self.head_seconds:g} s, {body}"


class Connection(Protocol):
    """What the registry needs of a connection, of any protocol."""

    deadline: float
    """Loop time at which `timed_out` is called; infinity while the server owes the answer."""

    def timed_out(self) -> None:
        """The deadline has passed."""

    def drain(self) -> None:
        """Close now if nothing is in progress, else after the last answer."""


class SharedBytes:
    """Counts what all connections of a worker hold of one kind, in bytes."""

    __slots__ = ("held", "highest", "most")

    def __init__(self, most: int) -> None:
        self.held = 0
        self.highest = 0
        """Of what was held since someone last set this back."""
        self.most = most

    def add(self, size: int) -> None:
        """Count `size` more; less if it is negative."""
        self.held += size
        if self.held > self.highest:
            self.highest = self.held

    @property
    def over(self) -> bool:
        """More is held than should be."""
        return self.held > self.most


class Ebb:
    """Tells when much less is held than before: only then is it worth while to give memory back.

    The C library keeps freed blocks. After 500 MiB of unfinished bodies had gone it kept 150 to 330 MiB.
    """

    def __init__(self) -> None:
        self._high = 0

    @property
    def due(self) -> bool:
        """So much was held that it will have to be given back."""
        return self._high >= NOTICEABLE

    def ebbed(self, highest: int) -> bool:
        """Return whether to give back now, once per ebb; `highest` is the most held since the last call."""
        self._high = max(self._high, highest)
        if self._high - highest < NOTICEABLE or highest > self._high // 2:
            return False
        self._high = highest
        return True


class Connections:
    """The connections of one worker. One sweep a second watches all deadlines: no timer per request."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_change: Callable[[int], None],
        limits: ConnectionLimits | None = None,
        on_ebb: Callable[[], None] | None = None,
    ) -> None:
        """Call `on_change` with each new number of connections, `on_ebb` when much memory was freed."""
        limits = limits or ConnectionLimits()
        self.unfinished = SharedBytes(limits.unfinished_bytes)
        """Bodies that are not complete."""
        self.unsent = SharedBytes(limits.unsent_bytes)
        """Answers, or the rest of them, that wait for clients to read."""
        self.room = Room(limits.inflated_bytes)
        """For compressed bodies and messages that are being read."""
        self._loop = loop
        self._on_change = on_change
        self._on_ebb = on_ebb
        self._ebb = Ebb()
        self._open: set[Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self.date_line = b""
        """The Date header, as it is now to the second."""
        self.response_starts: dict[tuple[int, bytes], bytes] = {}
        """Per status and content type how a response of HTTP/1.1 begins, made anew with each date."""
        self.empty = asyncio.Event()
        self.empty.set()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Connection) -> None:
        """Watch `connection`."""
        self._open.add(connection)
        self.empty.clear()
        self._on_change(len(self._open))
        if self._sweep is None:
            self._look()

    def remove(self, connection: Connection) -> None:
        """Forget `connection`, which is closed."""
        self._open.discard(connection)
        self._on_change(len(self._open))
        if not self._open:
            self.empty.set()

    def drain(self) -> None:
        """Close every connection as soon as it has answered what it took in."""
        for connection in list(self._open):
            connection.drain()

    def _look(self) -> None:
        self.date_line = f"date: {formatdate(usegmt=True)}\r\n".encode()
        self.response_starts.clear()
        now = self._loop.time()
        for connection in [one for one in self._open if one.deadline <= now]:
            connection.timed_out()
        held = (self.unfinished, self.unsent, self.room)
        if self._ebb.ebbed(sum([one.highest for one in held])) and self._on_ebb is not None:
            self._on_ebb()
        for one in held:
            one.highest = one.held
        self._sweep = self._loop.call_later(1.0, self._look) if self._open or self._ebb.due else None
