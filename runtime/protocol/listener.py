"""The first bytes of a connection decide which protocol it speaks.

HTTP/2 clients that know the server begin with a fixed preface (RFC 9113 §3.4); all others speak HTTP/1.1. An
offer to change to HTTP/2 (`Upgrade: h2c`) is ignored: RFC 9113 has given it up. The same factories serve TCP
and Unix sockets.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import cast

from mcp2026.runtime.negotiation.connection import Negotiation
from mcp2026.runtime.protocol.connections import ConnectionLimits, Connections
from mcp2026.runtime.protocol.exchange import Application, Cancel, RequestHead, Respond, Response
from mcp2026.runtime.protocol.grpc.calls import GrpcCalls
from mcp2026.runtime.protocol.grpc.service import GrpcService
from mcp2026.runtime.protocol.http1 import Http1Connection
from mcp2026.runtime.protocol.http1_head import KnownHeads
from mcp2026.runtime.protocol.http2.connection import Http2Connection
from mcp2026.runtime.protocol.http2.limits import Http2Limits

_HTTP2_START = b"PRI "
"""The preface's first bytes; no method of HTTP/1.1 begins so, though POST shares the first one."""
_TEXT = b"text/plain; charset=utf-8"
_GRPC_ONLY = b"this port speaks gRPC: HTTP/2 with prior knowledge, content-type application/grpc\n"

_Begun = Http1Connection | Http2Connection


def connection_factory(
    application: Application,
    limits: ConnectionLimits,
    connections: Connections,
    loop: asyncio.AbstractEventLoop,
    grpc: GrpcService | None = None,
    negotiation: Negotiation | None = None,
    http2_limits: Http2Limits | None = None,
) -> Callable[[], asyncio.Protocol]:
    """Return what `create_server` or `create_unix_server` calls for each new connection.

    Without `negotiation` clients are told of none, and what they say of batching is not looked at.

    HTTP/1.1 and HTTP/2 lead to `application`; calls of the type application/grpc to `grpc`, if there is one.
    """
    calls = None if grpc is None else GrpcCalls(grpc, limits.max_body_bytes, connections.room, loop)
    heads = KnownHeads(limits, application.admit, negotiation)

    def http1() -> Http1Connection:
        return Http1Connection(application, limits, connections, heads, loop, negotiation)

    def http2() -> Http2Connection:
        return Http2Connection(application, limits, connections, loop, calls, http2_limits, negotiation)

    return lambda: _FirstBytes(http1, http2, limits, connections, loop)


def grpc_connection_factory(
    grpc: GrpcService,
    limits: ConnectionLimits,
    connections: Connections,
    loop: asyncio.AbstractEventLoop,
    negotiation: Negotiation | None = None,
    http2_limits: Http2Limits | None = None,
) -> Callable[[], asyncio.Protocol]:
    """Return the factory of a port that speaks gRPC alone: other requests of either version get 415."""
    return connection_factory(_NotGrpc(grpc), limits, connections, loop, grpc, negotiation, http2_limits)


class _NotGrpc:
    """What a port for gRPC answers to everything else."""

    def __init__(self, grpc: GrpcService) -> None:
        self._grpc = grpc

    @property
    def closing(self) -> bool:
        return self._grpc.closing

    def admit(self, _head: RequestHead) -> Response | None:
        return Response(415, _GRPC_ONLY, _TEXT)

    def begin(self, _head: RequestHead, _body: bytes, respond: Respond) -> Cancel | None:
        respond(Response(415, _GRPC_ONLY, _TEXT))
        return None

    def protocol_error(self, status: int, message: str, allowed: str | None = None) -> Response:
        what = f"{message}; allowed: {allowed}" if allowed else message
        return Response(status, f"{HTTPStatus(status).phrase}: {what}\n".encode(), _TEXT)


class _FirstBytes(asyncio.Protocol):
    """A connection that has not said enough yet to know its protocol."""

    def __init__(
        self,
        http1: Callable[[], Http1Connection],
        http2: Callable[[], Http2Connection],
        limits: ConnectionLimits,
        connections: Connections,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._http1 = http1
        self._http2 = http2
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
        connection: _Begun = self._http2() if self._start.startswith(_HTTP2_START) else self._http1()
        self._transport.set_protocol(connection)
        connection.connection_made(self._transport)
        self._connections.remove(self)
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
