"""HTTP/1.1 on an asyncio protocol: the turns, answers, deadlines and end of a connection.

A connection reads requests ahead (pipelining, `http1_reader.py`) and answers them in order. It holds back
what a client may do to others: requests are limited in number and size, and pauses in length.
A whole request whose head is known by its bytes (`http1_head.py`) never meets the parser.
"""

import asyncio
import math
import socket
import time
from collections import deque
from typing import cast

from mcp2026.runtime.negotiation.connection import ConnectionNegotiation, Negotiation
from mcp2026.runtime.negotiation.terms import Terms
from mcp2026.runtime.protocol.connections import ConnectionLimits, Connections
from mcp2026.runtime.protocol.exchange import Application, RequestHead, Response
from mcp2026.runtime.protocol.http1_exchange import Exchange
from mcp2026.runtime.protocol.http1_head import HEAD_END, KnownHeads
from mcp2026.runtime.protocol.http1_reader import STEP, RequestReader

_NEVER = math.inf
_HEAD_END_BYTES = len(HEAD_END)
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_EARLY_HINTS = b"HTTP/1.1 103 Early Hints\r\n%b: %b\r\n\r\n"
_PROBE_SECONDS = 0.5
"""How long a client that has closed its side may take to reset what is sent to it."""
_MAX_NEW_HEADS = 16
"""A client that sends so many heads in a row that were never seen is not expected to repeat itself."""
_TURN_SECONDS = 0.005
"""After so long, or `max_pipelined` requests, a client's next requests wait until others were served."""


class Http1Connection(asyncio.Protocol):
    """One client connection."""

    def __init__(
        self,
        application: Application,
        limits: ConnectionLimits,
        connections: Connections,
        heads: KnownHeads,
        loop: asyncio.AbstractEventLoop,
        negotiation: Negotiation | None = None,
    ) -> None:
        self._application = application
        self._limits = limits
        self._heads = heads
        self._connections = connections
        self._loop = loop
        self._transport: asyncio.Transport = None  # type: ignore[assignment]  # set before anything else
        self._reader = RequestReader(self, application, limits, connections, negotiation)
        self._negotiation = negotiation
        self._negotiated: ConnectionNegotiation | None = None  # once a request has negotiated
        self._exchanges: deque[Exchange] = deque()
        self._closed = False
        self.refusing = False  # nothing that comes from now on is looked at
        self._lingering = False
        self._half_closed = False  # the client sends nothing more, but may still read
        self._paused = False
        self._blocked = False  # the client does not read
        self._draining = False
        self.deadline = _NEVER
        self._body_deadline = _NEVER
        self._new_heads = 0
        self._held = b""  # what came and waits for this client's next turn
        self._next_turn_due = False
        self._begun = 0  # requests in this turn
        self._unsent = 0  # bytes that the client does not read, as the process counts them

    # --- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to read."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's derive from nothing
        self.deadline = self._loop.time() + self._limits.head_seconds
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Begin what came whole under a known head; parse everything else."""
        if self.refusing:
            return
        if self._held:
            self._held += data
            return
        reader = self._reader
        if not reader.in_request and not reader.head_bytes:
            self._begun = 0
            end = data.find(HEAD_END) + _HEAD_END_BYTES
            known = self._heads.get(data[:end])
            if known is not None:
                self._new_heads = 0
                if len(data) == end + known.body_bytes:
                    self.deadline = _NEVER
                    self._begin(Exchange(self, True, known.head_only), known.head, data[end:])
                    return
            elif self._new_heads < _MAX_NEW_HEADS:
                self._new_heads += 1
                self._heads.note(data[:end])
        self._take_turn(data)

    def _take_turn(self, data: bytes) -> None:
        """Parse `data`; hold the rest back if there is more in it than this client's share."""
        self._begun = 0
        if len(data) <= STEP:
            self._reader.feed(data)
        else:
            until = time.monotonic() + _TURN_SECONDS  # the loop's clock stands still during a round
            position = 0
            while position < len(data) and not self.refusing:
                end = position + self._reader.step
                self._reader.feed(data[position:end])
                position = end
                if self._crowded or time.monotonic() >= until:
                    self._held = data[position:]
                    self._pause()
                    self._soon()
                    break
        self._reader.count_unfinished()
        self._watch()

    @property
    def _crowded(self) -> bool:
        """The client has had its share of this round, or does not take its answers."""
        most = self._limits.max_pipelined
        return self._blocked or self._begun >= most or len(self._exchanges) >= most

    def _soon(self) -> None:
        if not self._next_turn_due:
            self._next_turn_due = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        """Go on with what was held back; nothing is read before it is used up."""
        self._next_turn_due = False
        if self._closed:
            return
        if self.refusing:
            self._held = b""
        elif self._blocked or len(self._exchanges) >= self._limits.max_pipelined:
            return  # goes on when the client reads, or an answer is out
        elif self._held:
            held, self._held = self._held, b""
            self._take_turn(held)
        if not self._held and not self._blocked and len(self._exchanges) < self._limits.max_pipelined:
            self._resume()
        if self._draining and not self._exchanges and not self._reader.in_request and not self._held:
            self._end()

    def eof_received(self) -> bool:
        """Answer what is owed to a client that sends nothing more; return whether anything is.

        A client that has closed its socket looks the same. It answers whatever is sent to it with a reset:
        an interim response tells the two apart, and saves the work for one that has gone.
        """
        exchanges = self._exchanges
        if self._lingering or not exchanges or (self._reader.in_request and not self.refusing):
            return False
        self.refusing = self._half_closed = True
        exchanges[-1].keep_alive = False
        if not exchanges[0].http_10 and not self._blocked:
            self._transport.write(_CONTINUE)
            self.deadline = self._loop.time() + _PROBE_SECONDS
        return True

    def connection_lost(self, _error: Exception | None) -> None:
        """Cancel what nobody waits for any more."""
        self._closed = self.refusing = True
        self.deadline = _NEVER
        self._connections.remove(self)
        if self._negotiated is not None:
            self._negotiated.closed()
        self._held = b""
        self._count_unsent(0)
        exchanges, self._exchanges = self._exchanges, deque()
        for exchange in exchanges:
            if exchange.cancel is not None and exchange.response is None:
                exchange.cancel()
        self._reader.clear()

    def pause_writing(self) -> None:
        """Stop taking requests from a client that does not read its answers."""
        self._blocked = True
        self._pause()
        self._count_unsent(self._transport.get_write_buffer_size())
        self.deadline = self._loop.time() + self._limits.stall_seconds

    def resume_writing(self) -> None:
        """Go on."""
        self._blocked = False
        self._count_unsent(0)
        self._resume()
        self._watch()

    # --- requests

    def head_complete(self) -> None:
        """Begin the time in which the body has to come."""
        now = self._loop.time()
        self.deadline = now + self._limits.stall_seconds
        self._body_deadline = now + self._limits.body_seconds

    def complete(
        self, head: RequestHead, body: bytes, refusal: Response | None, *, keep_alive: bool, http_10: bool
    ) -> None:
        """Serve a whole request, or answer it with its refusal."""
        if not keep_alive:
            self.refusing = True  # nothing may follow
        self._begin(Exchange(self, keep_alive, head.method == "HEAD", http_10), head, body, refusal)

    def _begin(
        self, exchange: Exchange, head: RequestHead, body: bytes, refusal: Response | None = None
    ) -> None:
        self._exchanges.append(exchange)
        self._begun += 1
        if len(self._exchanges) >= self._limits.max_pipelined:
            self._pause()
        if refusal is not None:
            exchange.respond(refusal)
            return
        if head.batching is not None:
            self._confirm(exchange, head.batching)
        begin = head.handler or self._application.begin
        cancel = begin(head, body, exchange.respond)
        if exchange.response is None:
            exchange.cancel = cancel

    def _confirm(self, exchange: Exchange, terms: Terms) -> None:
        """Tell the client what holds: with the response, and before it if it can read that."""
        if self._negotiated is None:
            assert self._negotiation is not None
            self._negotiated = ConnectionNegotiation(self._negotiation)
        self._negotiated.asked(terms)
        exchange.terms = terms
        if terms.early_hints and not exchange.http_10:
            exchange.hint = _EARLY_HINTS % terms.field
            if self._exchanges[0] is exchange and not self._blocked:
                exchange.give_hint(self._transport)

    # --- answers

    def flush(self) -> None:
        """Write the responses that are due, in the order of the requests."""
        exchanges = self._exchanges
        while exchanges and (response := exchanges[0].response) is not None and not self._closed:
            exchange = exchanges.popleft()
            if self._application.closing and not (exchanges or self._reader.in_request or self._held):
                exchange.keep_alive = False
            exchange.write(response, self._transport, self._connections)
            if self._blocked:
                self._count_unsent(self._transport.get_write_buffer_size())
            if not exchange.keep_alive:
                self._end()
                return
        if exchanges and exchanges[0].hint and not self._blocked:
            exchanges[0].give_hint(self._transport)
        if self._reader.in_request:
            self.tell_to_continue()
        elif self._draining and not exchanges and not self._held:
            self._end()
            return
        if self._paused and not self._blocked and len(exchanges) < self._limits.max_pipelined:
            self._resume()
        self._watch()

    def tell_to_continue(self) -> None:
        """Say that the body may come, once the answers before it are out and if it has not begun."""
        reader = self._reader
        if reader.continue_due and not self._exchanges and not reader.body_bytes and not self.refusing:
            reader.continue_due = False
            self._transport.write(_CONTINUE)

    def _end(self) -> None:
        """Close when everything is written; a client that still sends is let finish, unread."""
        self.refusing = True
        self._held = b""
        self._exchanges.clear()
        self._reader.clear()
        if self._transport.is_closing():
            return
        if self._reader.in_request and self._transport.can_write_eof():
            # Closing with unread data would reset the connection and could destroy the answer on its way.
            self._lingering = True
            self._transport.write_eof()
            self._resume()
            self.deadline = self._loop.time() + self._limits.linger_seconds
        else:
            self._transport.close()

    def refuse(self, status: int, message: str, allowed: str | None = None) -> None:
        """Answer with an error of the protocol, and take nothing more from this client."""
        self.refuse_with(self._application.protocol_error(status, message, allowed))

    def refuse_with(self, response: Response) -> None:
        """Answer with `response` after what is still owed, and take nothing more from this client."""
        self.refusing = self._reader.in_request = True
        self._reader.drop_body()
        exchange = Exchange(self, False, False)
        self._exchanges.append(exchange)
        exchange.respond(response)

    # --- time

    def drain(self) -> None:
        """Close now if nothing is in progress, else after the last answer."""
        self._draining = True
        if not (self._exchanges or self._reader.in_request or self._held or self._closed):
            self._end()

    def timed_out(self) -> None:
        """End a connection whose client was too slow."""
        if self._closed:
            return
        if self._half_closed and not self._blocked and not self._left():
            self.deadline = _NEVER
        elif self.refusing or self._blocked or self._transport.is_closing():
            self._transport.abort()
        elif self._reader.in_request:
            self.refuse(408, *self._limits.too_slow)
        else:
            self._transport.close()

    def _left(self) -> bool:
        """Return whether the client has reset the connection, which nobody reads any more."""
        return bool(self._transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))

    def _watch(self) -> None:
        """Set the next deadline from what the connection waits for."""
        if self._blocked or self._lingering or self._half_closed:
            return
        now, limits = self._loop.time(), self._limits
        if self._exchanges and (self.refusing or not self._reader.in_request):
            self.deadline = _NEVER  # it is the server's turn
        elif self._reader.in_request:
            if self._reader.head_done:
                self.deadline = min(now + limits.stall_seconds, self._body_deadline)
            elif self.deadline == _NEVER or self.deadline > now + limits.head_seconds:
                self.deadline = now + limits.head_seconds
        else:
            self.deadline = now + limits.idle_seconds

    # --- reading and writing

    def _count_unsent(self, size: int) -> None:
        """Count the answers that the client does not read; give it up if all connections hold too much."""
        unsent = self._connections.unsent
        unsent.add(size - self._unsent)
        self._unsent = size
        if size and unsent.over and not self._transport.is_closing():
            self._transport.abort()

    def _pause(self) -> None:
        if not self._paused and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._held:
            self._soon()
        elif self._paused and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()
