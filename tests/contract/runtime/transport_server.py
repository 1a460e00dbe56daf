"""The protocols of the runtime on real sockets, before applications that only show what arrived."""

import asyncio
import hashlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import uvloop

from mcp2026.api.batching_negotiation import BatchingOffer, Refusal
from mcp2026.api.grpc_codes import GrpcCode
from mcp2026.runtime.negotiation.connection import Negotiation
from mcp2026.runtime.negotiation.terms import Carrier
from mcp2026.runtime.protocol.connections import ConnectionLimits, Connections
from mcp2026.runtime.protocol.exchange import Cancel, RequestHead, Response
from mcp2026.runtime.protocol.exchange import Respond as RespondHttp
from mcp2026.runtime.protocol.grpc.service import (
    CallHead,
    Inbound,
    Outbound,
    Reply,
    Respond,
    StreamMethod,
    UnaryMethod,
)

PATIENCE = 60.0
"""Longest that a test waits for something that will surely happen, in s."""
TEXT = b"text/plain"


class Site:
    """Answers `/echo` with the body, `/digest` with its SHA-256, `/large` with 8 MiB, `/never` not at all."""

    def __init__(self) -> None:
        self.closing = False
        self.cancelled = 0

    def admit(self, head: RequestHead) -> Response | None:
        return Response(404, b"nothing there", TEXT) if head.path == "/nothing" else None

    def begin(self, head: RequestHead, body: bytes, respond: RespondHttp) -> Cancel | None:
        match head.path:
            case "/echo":
                respond(Response(200, body, TEXT, ((b"x-method", head.method.encode()),)))
            case "/digest":
                respond(Response(200, hashlib.sha256(body).hexdigest().encode(), TEXT))
            case "/large":
                respond(Response(200, bytes(range(256)) * (8 << 12), TEXT))
            case "/later":
                asyncio.get_running_loop().call_later(0.05, respond, Response(200, body, TEXT))
            case "/never":
                return self._cancel
            case _:
                respond(Response(200, b"this is " + head.path.encode(), TEXT))
        return None

    def _cancel(self) -> None:
        self.cancelled += 1

    def protocol_error(self, status: int, message: str, _allowed: str | None = None) -> Response:
        return Response(status, message.encode(), TEXT)


class NoCounts:
    """Counts of negotiated batching that nobody wants to know."""

    def session_began(self, carrier: Carrier) -> None: ...
    def session_ended(self, carrier: Carrier) -> None: ...
    def request(self, carrier: Carrier) -> None: ...
    def refused(self, carrier: Carrier, reason: Refusal) -> None: ...
    def http2_connections(self, negotiated: int, single: int) -> None: ...


def negotiation(*paths: str) -> Negotiation:
    """Return a server's side that offers 50 ms and 3 rows for `paths`."""
    return Negotiation(BatchingOffer(50, 3), lambda path: path in paths, NoCounts())


class Calls:
    """A gRPC service with one method of each kind that a test needs."""

    def __init__(self) -> None:
        self.closing = False
        self.cancelled = 0
        self.heads: list[CallHead] = []
        self._unary: dict[str, UnaryMethod] = {
            "/t.S/Echo": self._echo,
            "/t.S/Never": self._never,
            "/t.S/Fail": self._fail,
        }
        self._streaming: dict[str, StreamMethod] = {"/t.S/Chat": self._chat, "/t.S/Count": self._count}

    def unary(self, path: str) -> UnaryMethod | None:
        return self._unary.get(path)

    def streaming(self, path: str) -> StreamMethod | None:
        return self._streaming.get(path)

    def _echo(self, head: CallHead, message: bytes, respond: Respond) -> Cancel | None:
        self.heads.append(head)
        trailers = tuple((name, b"\0\xff") for name in head.metadata if name == b"back-bin")
        respond(Reply(message, trailers=trailers))
        return None

    def _never(self, head: CallHead, _message: bytes, _respond: Respond) -> Cancel | None:
        self.heads.append(head)
        return self._cancel

    def _fail(self, _head: CallHead, message: bytes, respond: Respond) -> Cancel | None:
        respond(
            Reply(code=GrpcCode.FAILED_PRECONDITION, detail=message.decode(), trailers=((b"why", b"so"),))
        )
        return None

    def _chat(self, head: CallHead, outbound: Outbound) -> Inbound:
        self.heads.append(head)
        return _Chat(outbound, self._cancel)

    def _count(self, _head: CallHead, outbound: Outbound) -> Inbound:
        return _Count(outbound)

    def _cancel(self) -> None:
        self.cancelled += 1


class _Chat:
    """Sends each message back; `end` ends the call with a status."""

    def __init__(self, outbound: Outbound, cancel: Callable[[], None]) -> None:
        self._outbound = outbound
        self._cancel = cancel

    def message(self, message: bytes) -> None:
        if message == b"end":
            self._outbound.finish(GrpcCode.ABORTED, "as you wish")
        else:
            self._outbound.send(message)

    def half_closed(self) -> None:
        self._outbound.finish()

    def cancelled(self) -> None:
        self._cancel()


class _Count:
    """Answers a number with as many messages of 1,000 bytes."""

    def __init__(self, outbound: Outbound) -> None:
        self._outbound = outbound

    def message(self, message: bytes) -> None:
        for number in range(int(message)):
            self._outbound.send(b"%1000d" % number)
        self._outbound.finish()

    def half_closed(self) -> None:
        pass

    def cancelled(self) -> None:
        pass


Factory = Callable[[Connections, asyncio.AbstractEventLoop], Callable[[], asyncio.Protocol]]


class TransportServer:
    """An event loop in a thread that serves one port, and a Unix socket if wanted."""

    def __init__(self, factory: Factory, unix: Path | None = None) -> None:
        self.connections: Connections
        self.port = 0
        self._factory = factory
        self._unix = unix
        self._loop: asyncio.AbstractEventLoop
        self._servers: list[asyncio.Server] = []
        self._stop: asyncio.Event
        started: Future[None] = Future()
        self._thread = threading.Thread(target=uvloop.run, args=(self._run(started),), daemon=True)
        self._thread.start()
        started.result(PATIENCE)

    async def _run(self, started: Future[None]) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.connections = Connections(loop, lambda _count: None)
        factory = self._factory(self.connections, loop)
        self._servers.append(await loop.create_server(factory, "127.0.0.1", 0))
        self.port = self._servers[0].sockets[0].getsockname()[1]
        if self._unix is not None:
            self._servers.append(await loop.create_unix_server(factory, str(self._unix)))
        started.set_result(None)
        await self._stop.wait()
        for server in self._servers:
            server.close()
        self.connections.drain()
        await asyncio.wait_for(self.connections.empty.wait(), PATIENCE)

    def call(self, function: Callable[[], Any]) -> Any:
        """Call `function` on the event loop and return what it returns."""

        async def called() -> Any:
            return function()

        return self.run(called())

    def call_soon(self, function: Callable[[], Any]) -> None:
        """Call `function` on the event loop, and do not wait for it."""
        self._loop.call_soon_threadsafe(function)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run `coroutine` on the event loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE)

    def close(self) -> None:
        """End as a worker does: drain the connections."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


def limits(**changes: Any) -> ConnectionLimits:
    """Return the usual limits, but for `changes`; a client that lingers is let go quickly."""
    return ConnectionLimits(**{"linger_seconds": 1.0, **changes})
