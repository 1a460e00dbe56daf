"""The first bytes of a connection decide which protocol it speaks.

HTTP/2 clients that know the server begin with a fixed preface. HTTP/2 is not served yet and is refused in
words; this is the one place where it will be taken in beside HTTP/1.1.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from mcp2026.runtime.protocol.connections import ConnectionLimits, Connections
from mcp2026.runtime.protocol.exchange import Application
from mcp2026.runtime.protocol.http1 import Http1Connection
from mcp2026.runtime.protocol.http1_head import KnownHeads

_HTTP2_START = b"PRI "
"""The preface's first bytes; no method of HTTP/1.1 begins so, though POST shares the first one."""


def connection_factory(
    application: Application,
    limits: ConnectionLimits,
    connections: Connections,
    loop: asyncio.AbstractEventLoop,
) -> Callable[[], asyncio.Protocol]:
    """Return what `create_server` calls for each new connection."""

    heads = KnownHeads(limits)

    def http1() -> Http1Connection:
        return Http1Connection(application, limits, connections, heads, loop)

    return lambda: _FirstBytes(http1, limits, connections, loop)


class _FirstBytes(asyncio.Protocol):
    """A connection that has not said enough yet to know its protocol."""

    def __init__(
        self,
        http1: Callable[[], Http1Connection],
        limits: ConnectionLimits,
        connections: Connections,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._http1 = http1
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._start = b""
        self.deadline = loop.time() + limits.head_seconds

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first bytes."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's derive from nothing
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Hand over to the protocol that `data` begins."""
        self._start += data
        if len(self._start) < len(_HTTP2_START) and _HTTP2_START.startswith(self._start):
            return
        assert self._transport is not None
        connection = self._http1()
        self._transport.set_protocol(connection)
        connection.connection_made(self._transport)
        self._connections.remove(self)
        if self._start.startswith(_HTTP2_START):
            connection.refuse(505, "HTTP/2 is not served here; use HTTP/1.1")
        else:
            connection.data_received(self._start)

    def connection_lost(self, _error: Exception | None) -> None:
        """Forget the connection."""
        self._connections.remove(self)

    def timed_out(self) -> None:
        """Close a connection that said nothing."""
        self.drain()

    def drain(self) -> None:
        """Close: nothing is in progress."""
        if self._transport is not None:
            self._transport.close()
