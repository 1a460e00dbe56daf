"""HTTP/2 on an asyncio protocol: the socket, the deadlines and the end of a connection."""

import asyncio
import math
import time
from collections.abc import Mapping
from typing import Final, cast

from mcp2026.api.batching_negotiation import NegotiationError
from mcp2026.runtime.negotiation.connection import Negotiation, SettingsNegotiation
from mcp2026.runtime.protocol.connections import ConnectionLimits, Connections
from mcp2026.runtime.protocol.exchange import Application
from mcp2026.runtime.protocol.grpc.calls import GrpcCalls
from mcp2026.runtime.protocol.http2.core import Http2Core
from mcp2026.runtime.protocol.http2.errors import ConnectionProtocolError, HeadersTooLargeError, Http2Code
from mcp2026.runtime.protocol.http2.http_exchange import HttpExchange
from mcp2026.runtime.protocol.http2.limits import Http2Limits
from mcp2026.runtime.protocol.http2.request_headers import RequestHeaders
from mcp2026.runtime.protocol.http2.stream import Consumer, Stream

_NEVER: Final = math.inf
_STEP: Final = 64 * 1024
"""Bytes that are looked at before it is asked whether this client has had its turn."""
_TURN_SECONDS: Final = 0.005


class Http2Connection(asyncio.Protocol):
    """One client connection. Requests of the type application/grpc go to `grpc`, if given, all others on."""

    def __init__(
        self,
        application: Application,
        limits: ConnectionLimits,
        connections: Connections,
        loop: asyncio.AbstractEventLoop,
        grpc: GrpcCalls | None = None,
        http2_limits: Http2Limits | None = None,
        negotiation: Negotiation | None = None,
    ) -> None:
        self._application = application
        self._grpc = grpc
        self._limits = limits
        self._connections = connections
        self._loop = loop
        self._transport: asyncio.Transport = None  # type: ignore[assignment]  # set before anything else
        if http2_limits is None:
            http2_limits = Http2Limits(
                max_header_bytes=limits.max_head_bytes,
                max_headers=limits.max_headers,
                held_bytes=limits.max_body_bytes,
                unsent_bytes=limits.max_body_bytes,
            )
        self.core = Http2Core(
            http2_limits,
            self._accept,
            self._wake,
            loop.time(),
            None if negotiation is None else negotiation.settings,
            unfinished=connections.unfinished,
            unsent=connections.unsent,
        )
        self._negotiation = negotiation
        self._batching: SettingsNegotiation | None = None
        self._receiving = False
        self._flush_due = False
        self._blocked = False  # the client does not read
        self._lingering = False
        self._held_back = False  # frames wait for this client's next turn
        self._later = b""  # what the state machine has not seen of them
        self._closed = False
        self._idle_since = 0.0
        self._leaving_until = _NEVER
        self.deadline = _NEVER

    # --- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send our settings and start to read."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's derive from nothing
        self.core.headers_since = self._idle_since = now = self._loop.time()
        self.deadline = now + self._limits.head_seconds
        self._connections.add(self)
        if self._negotiation is not None:
            self._batching = SettingsNegotiation(self._negotiation, self._batching_changed)
            self.core.settings.on_peer = self._settings_came
            self.core.settings.check_extra = self._check_settings
        self.core.start()

    def data_received(self, data: bytes) -> None:
        """Let the state machine see what came, and write what it answers at once."""
        if self._lingering:
            return
        if self._held_back:
            self._later += data
            return
        core = self.core
        now = self._loop.time()
        self._receiving = True
        if len(data) <= _STEP:
            core.receive(data, now)
            turn_over = core.held_back
        else:
            turn_over = self._receive_in_steps(data, now)
        self._receiving = False
        self._idle_since = now
        if turn_over:
            self._hold_back()
        self._flush()
        self._watch(now)

    def _receive_in_steps(self, data: bytes, now: float) -> bool:
        """Let the state machine see `data` until the client has had its turn; return whether it has."""
        core = self.core
        until = time.monotonic() + _TURN_SECONDS  # the loop's clock stands still during a round
        core.receive(data[:_STEP], now)
        position = _STEP
        while position < len(data) and not core.held_back and time.monotonic() < until:
            core.receive(data[position : position + _STEP], now, same_turn=True)
            position += _STEP
        self._later = data[position:]
        return bool(self._later) or core.held_back or time.monotonic() >= until

    def _hold_back(self) -> None:
        """Read nothing more until the others had their turn and what is here was looked at."""
        self._held_back = True
        if not self._transport.is_closing():
            self._transport.pause_reading()
        self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        if self._blocked or self._closed or not self._held_back:
            return  # goes on when the client reads
        self._held_back = False
        later, self._later = self._later, b""
        self.data_received(later)
        if not (self._held_back or self._blocked or self._closed or self._transport.is_closing()):
            self._transport.resume_reading()

    def eof_received(self) -> bool:
        """Take the end of the stream as the client's departure."""
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        """Cancel what nobody waits for any more."""
        self._closed = True
        self.deadline = _NEVER
        self._connections.remove(self)
        if self._batching is not None:
            self._batching.closed()
        self.core.lost()

    def pause_writing(self) -> None:
        """Take nothing more from a client that does not read."""
        self._blocked = self.core.outbox.blocked = True
        if not self._transport.is_closing():
            self._transport.pause_reading()
        self.deadline = self._loop.time() + self._limits.stall_seconds

    def resume_writing(self) -> None:
        """Go on."""
        self._blocked = self.core.outbox.blocked = False
        if self._closed or self._transport.is_closing():
            return
        if self._held_back:
            self._loop.call_soon(self._next_turn)
        else:
            self._transport.resume_reading()
        self.core.now = self._loop.time()
        self._flush()
        self._watch(self.core.now)

    # --- streams

    def _accept(self, stream: Stream, request: RequestHeaders | HeadersTooLargeError, ends: bool) -> Consumer:
        if isinstance(request, RequestHeaders):
            if request.batch_capable is not None and self._batching is not None:
                self._decide(request, request.batch_capable, self._batching)
            if self._grpc is not None and request.is_grpc:
                return self._grpc.begin(stream, request)
        return HttpExchange(self._application, self._limits, self._connections, stream, request, ends)

    # --- negotiation

    def _settings_came(self, settings: dict[int, int]) -> None:
        assert self._batching is not None
        self._batching.settings_came(self.core.settings.peer, settings)

    def _check_settings(self, settings: Mapping[int, int]) -> None:
        assert self._batching is not None
        try:
            self._batching.check(settings)
        except NegotiationError as error:
            raise ConnectionProtocolError(Http2Code.PROTOCOL_ERROR, str(error)) from error

    def _batching_changed(self, settings: dict[int, int]) -> None:
        """Tell the client what the server offers now, and let it hold for requests that begin from now on."""
        self.core.forget_requests()
        if settings and not self.core.closed:
            self.core.settings.send(settings)

    @staticmethod
    def _decide(request: RequestHeaders, value: bytes, batching: SettingsNegotiation) -> None:
        """Decide what holds for a request, and for others with equal headers until something changes."""
        head = request.head
        if head.batching is None:
            try:
                head.batching = batching.decide(head.path, value, grpc=request.is_grpc)
            except NegotiationError as error:
                head.refused_offer = error
        if head.batching is not None:
            batching.asked(head.batching)

    # --- writing

    def _wake(self) -> None:
        """Write in this round of the loop what the state machine has to say."""
        if not self._receiving and not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush_later)

    def _flush_later(self) -> None:
        self._flush_due = False
        if not self._closed:
            self.core.now = self._loop.time()
            self._flush()
            self._watch(self.core.now)

    def _flush(self) -> None:
        core = self.core
        if core.last_id and not core.leaving and self._closing:
            self._leave()  # a connection that is new even now may send one request
        data = core.outbox.take()
        if data and not self._transport.is_closing():
            self._transport.write(data)
        if core.finished:
            self._end()
        elif core.outbox.more:
            self._wake()

    @property
    def _closing(self) -> bool:
        return self._application.closing or (self._grpc is not None and self._grpc.closing)

    def _end(self) -> None:
        """Close when everything is written; what the client still sends is thrown away meanwhile."""
        if self._closed or self._lingering or self._transport.is_closing():
            return
        # Closing with unread data would reset the connection and could destroy what is on its way.
        self._lingering = True
        self._transport.write_eof()
        if not self._blocked:
            self.deadline = self._loop.time() + self._limits.linger_seconds

    # --- time

    def drain(self) -> None:
        """Take no new streams, answer those that are there, then close."""
        if not self._closed:
            self._leave()
            self._wake()

    def _leave(self) -> None:
        self.core.leave()
        if not self.core.started:
            self.core.refuse_more()
        self._leaving_until = self._loop.time() + self._limits.linger_seconds
        self.deadline = min(self.deadline, self._leaving_until)

    def timed_out(self) -> None:
        """End what the client was too slow for: the connection, or some streams."""
        if self._closed:
            return
        if self._blocked or self._lingering or self._transport.is_closing():
            self._transport.abort()
            return
        core, limits = self.core, self._limits
        core.now = now = self._loop.time()
        if now >= core.headers_since + limits.head_seconds:
            self._transport.abort()
            return
        if now >= self._leaving_until or (not core.streams and now >= self._idle_since + limits.idle_seconds):
            core.refuse_more()
        self._receiving = True
        for stream in list(core.streams.values()):
            if now >= self._deadline_of(stream):
                stream.consumer.too_slow()
        self._receiving = False
        self.deadline = min(map(self._deadline_of, core.streams.values()), default=_NEVER)
        self._flush()
        self._watch(now)

    def _watch(self, now: float) -> None:
        """Set the next deadline from what the connection waits for."""
        if self._blocked or self._lingering or self._closed:
            return
        if self.core.streams:
            self.deadline = min(self.deadline, now + self._limits.stall_seconds)
        else:
            self.deadline = self._idle_since + self._limits.idle_seconds
        self.deadline = min(self.deadline, self.core.headers_since + self._limits.head_seconds)
        if not self.core.refusing:
            self.deadline = min(self.deadline, self._leaving_until)

    def _deadline_of(self, stream: Stream) -> float:
        """Return when the client has been silent on a stream for too long, or has not read for too long."""
        limits = self._limits
        deadline = _NEVER
        began = stream.consumer.awaiting_since
        withheld = self.core.inbox.full and stream.receive_window <= 0
        if began is not None and not withheld:
            patience = limits.linger_seconds if stream.unwanted else limits.stall_seconds
            deadline = min(stream.moved_at + patience, began + limits.body_seconds)
        if stream.pending:
            deadline = min(deadline, stream.moved_at + limits.stall_seconds)
        return deadline
