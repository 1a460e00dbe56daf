"""HTTP/1.1 on an asyncio protocol, parsed by httptools.

A connection reads requests ahead (pipelining) and answers them in order. It holds back what a client may
do to others: heads, bodies and pauses are limited, and an oversized body is refused before it is read.
A whole request whose head is known by its bytes (`http1_head.py`) never meets the parser.
"""

import asyncio
import math
import socket
import time
from collections import deque
from typing import Any, cast

import httptools

from mcp2026.runtime.protocol.connections import CROWDED, ConnectionLimits, Connections
from mcp2026.runtime.protocol.exchange import Application, RequestHead, Response
from mcp2026.runtime.protocol.http1_exchange import Exchange
from mcp2026.runtime.protocol.http1_head import HEAD_END, KnownHeads, path_of

_NEVER = math.inf
_HEAD_END_BYTES = len(HEAD_END)
_SMALL_BODY = 64 * 1024
"""A refused request's body up to this size is read and dropped, and the connection stays."""
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_PROBE_SECONDS = 0.5
"""How long a client that has closed its side may take to reset what is sent to it."""
_MAX_NEW_HEADS = 16
"""A client that sends so many heads in a row that were never seen is not expected to repeat itself."""
_STEP = 512
_CHUNKED_STEP = 2 * 1024
"""Bytes that are parsed before it is asked whether this client has had its turn: outside bodies, where many
requests may stand, and in a body whose end is not known."""
_TURN_SECONDS = 0.005
"""After so long, or `max_pipelined` requests, a client's next requests wait until others were served."""
_SMALL_PIECE = 4 * 1024
"""Pieces of a body up to this size are collected in one buffer: as objects they may cost 30 times as much."""


class Http1Connection(asyncio.Protocol):
    """One client connection."""

    def __init__(
        self,
        application: Application,
        limits: ConnectionLimits,
        connections: Connections,
        heads: KnownHeads,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._application = application
        self._limits = limits
        self._heads = heads
        self._connections = connections
        self._loop = loop
        self._transport: asyncio.Transport = None  # type: ignore[assignment]  # set before anything else
        self._parser: Any = None
        self._exchanges: deque[Exchange] = deque()
        self._closed = False
        self._refusing = False  # nothing that comes from now on is looked at
        self._lingering = False
        self._half_closed = False  # the client sends nothing more, but may still read
        self._paused = False
        self._blocked = False  # the client does not read
        self._draining = False
        self.deadline = _NEVER
        self._body_deadline = _NEVER
        self._in_request = False
        self._head_done = False
        self._head_bytes = 0
        self._new_heads = 0
        self._held = b""  # what came and waits for this client's next turn
        self._next_turn_due = False
        self._begun = 0  # requests in this turn
        self._unfinished = 0  # bytes of a body that is not complete, as the process counts them
        self._unsent = 0  # bytes that the client does not read, as the process counts them
        self._length: int | None = None
        self._begin_request()

    def _begin_request(self) -> None:
        self._drop_body()
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._header_count = 0
        self._body_bytes = 0
        self._head: RequestHead | None = None
        self._refusal: Response | None = None
        self._continue_due = False  # the client waits for a word before it sends the body
        self._offer = False  # the request offers another protocol

    # --- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to read."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's derive from nothing
        self._parser = httptools.HttpRequestParser(self)
        self.deadline = self._loop.time() + self._limits.head_seconds
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Parse what came; the callbacks below are called from here."""
        if self._refusing:
            return
        if self._held:
            self._held += data
            return
        if not self._in_request and not self._head_bytes:
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
        if len(data) <= _STEP:
            self._parse(data)
        else:
            until = time.monotonic() + _TURN_SECONDS  # the loop's clock stands still during a round
            position = 0
            while position < len(data) and not self._refusing:
                end = position + self._step
                self._parse(data[position:end])
                position = end
                if self._crowded or time.monotonic() >= until:
                    self._held = data[position:]
                    self._pause()
                    self._soon()
                    break
        self._count_unfinished()
        self._watch()

    @property
    def _crowded(self) -> bool:
        """The client has had its share of this round, or does not take its answers."""
        most = self._limits.max_pipelined
        return self._blocked or self._begun >= most or len(self._exchanges) >= most

    @property
    def _step(self) -> int:
        """Bytes that can be parsed at once without beginning many requests."""
        if not (self._in_request and self._head_done):
            return _STEP
        if self._length is None:
            return _CHUNKED_STEP
        return max(_STEP, self._length - self._body_bytes)

    def _soon(self) -> None:
        if not self._next_turn_due:
            self._next_turn_due = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        """Go on with what was held back; nothing is read before it is used up."""
        self._next_turn_due = False
        if self._closed:
            return
        if self._refusing:
            self._held = b""
        elif self._blocked or len(self._exchanges) >= self._limits.max_pipelined:
            return  # goes on when the client reads, or an answer is out
        elif self._held:
            held, self._held = self._held, b""
            self._take_turn(held)
        if not self._held and not self._blocked and len(self._exchanges) < self._limits.max_pipelined:
            self._resume()
        if self._draining and not self._exchanges and not self._in_request and not self._held:
            self._end()

    def _parse(self, data: bytes) -> None:
        if not self._head_done:
            self._head_bytes += len(data)
        body_bytes = self._body_bytes
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # The parser stops where the other protocol would begin. An offer may be ignored: the request
            # is read once more, without its offer.
            if not self._refusing:
                again = self._without_offer() + data[upgrade.args[0] :]
                self._parser = httptools.HttpRequestParser(self)
                self._parse(again)
            return
        except httptools.HttpParserError as error:
            if not self._refusing:
                self.refuse(400, f"not HTTP/1.1: {error}")
            return
        if self._in_request and self._head_done:
            # Trailers and chunk extensions are heads too: bytes that are no body.
            self._head_bytes = 0 if self._body_bytes != body_bytes else self._head_bytes + len(data)
        if self._in_request and self._head_bytes > self._limits.max_head_bytes and not self._refusing:
            self.refuse(431, f"more than {self._limits.max_head_bytes} bytes of headers")

    def eof_received(self) -> bool:
        """Answer what is owed to a client that sends nothing more; return whether anything is.

        A client that has closed its socket looks the same. It answers whatever is sent to it with a reset:
        an interim response tells the two apart, and saves the work for one that has gone.
        """
        exchanges = self._exchanges
        if self._lingering or not exchanges or (self._in_request and not self._refusing):
            return False
        self._refusing = self._half_closed = True
        exchanges[-1].keep_alive = False
        if not exchanges[0].http_10 and not self._blocked:
            self._transport.write(_CONTINUE)
            self.deadline = self._loop.time() + _PROBE_SECONDS
        return True

    def connection_lost(self, _error: Exception | None) -> None:
        """Cancel what nobody waits for any more."""
        self._closed = self._refusing = True
        self.deadline = _NEVER
        self._connections.remove(self)
        self._held = b""
        self._count_unsent(0)
        exchanges, self._exchanges = self._exchanges, deque()
        for exchange in exchanges:
            if exchange.cancel is not None and exchange.response is None:
                exchange.cancel()
        self._begin_request()

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

    # --- httptools

    def on_message_begin(self) -> None:
        """Begin a request."""
        if self._refusing:
            return
        self._in_request, self._head_done = True, False
        self._begin_request()

    def on_url(self, url: bytes) -> None:
        """Collect the request target, which may come in pieces."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect one header."""
        self._header_count += 1
        if not self._head_done and self._header_count <= self._limits.max_headers:
            self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Decide, before any of the body is read, whether it will be."""
        self._head_done = True
        if self._refusing:
            return
        limits, headers = self._limits, self._headers
        self.deadline = self._loop.time() + limits.stall_seconds
        self._body_deadline = self._loop.time() + limits.body_seconds
        if self._header_count > limits.max_headers:
            self.refuse(431, f"more than {limits.max_headers} headers")
            return
        if self._parser.get_http_version() == "1.1" and b"host" not in headers:
            self.refuse(400, "the Host header is missing")
            return
        length = int(headers[b"content-length"]) if b"content-length" in headers else None
        self._length = None if b"transfer-encoding" in headers else length or 0
        self._head_bytes = 0
        path = path_of(self._url)
        if self._parser.should_upgrade():
            if self._parser.get_method() == b"CONNECT":
                self.refuse(400, "this is no proxy")
            self._offer = True
            return
        self._head = RequestHead(self._parser.get_method().decode("latin-1"), path, headers)
        self._refusal = self._application.admit(self._head)
        if self._refusal is None and length is not None and length > limits.max_body_bytes:
            self.refuse(413, self._too_large())
            return
        expects = headers.get(b"expect", b"").lower() == b"100-continue" and not self._is_http_10()
        if self._refusal is not None:
            if expects or (length or 0) > _SMALL_BODY:
                self._refuse_with(self._refusal)
        elif expects:
            self._continue_due = True
            self._tell_to_continue()

    def on_body(self, body: bytes) -> None:
        """Collect a piece of the body."""
        if self._refusing:
            return
        self._body_bytes += len(body)
        if self._refusal is not None:
            if self._body_bytes > _SMALL_BODY:
                self._refuse_with(self._refusal)
            return
        if self._body_bytes > self._limits.max_body_bytes:
            self.refuse(413, self._too_large())
            return
        pieces = self._body
        if len(body) > _SMALL_PIECE or not pieces:
            pieces.append(body)
        elif isinstance(pieces[-1], bytearray):
            pieces[-1] += body
        else:
            pieces.append(bytearray(body))

    def on_message_complete(self) -> None:
        """Hand the whole request over."""
        if self._refusing or self._offer:
            return
        self._in_request = self._head_done = False
        self._head_bytes = 0
        head, pieces = self._head, self._body
        assert head is not None
        body = bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)
        self._drop_body()
        keep_alive = self._parser.should_keep_alive()
        if not keep_alive:
            self._refusing = True  # nothing may follow
        exchange = Exchange(self, keep_alive, head.method == "HEAD", self._is_http_10())
        self._begin(exchange, head, body, self._refusal)

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
        begin = head.handler or self._application.begin
        cancel = begin(head, body, exchange.respond)
        if exchange.response is None:
            exchange.cancel = cancel

    def _is_http_10(self) -> bool:
        return bool(self._parser.get_http_version() == "1.0")

    def _without_offer(self) -> bytes:
        lines = [b"%b %b HTTP/1.1" % (self._parser.get_method(), self._url)]
        lines += [b"%b: %b" % header for header in self._headers.items() if header[0] != b"upgrade"]
        self._in_request = self._head_done = False
        return b"\r\n".join(lines) + b"\r\n\r\n"

    # --- answers

    def flush(self) -> None:
        """Write the responses that are due, in the order of the requests."""
        exchanges = self._exchanges
        while exchanges and (response := exchanges[0].response) is not None and not self._closed:
            exchange = exchanges.popleft()
            if self._application.closing and not (exchanges or self._in_request or self._held):
                exchange.keep_alive = False
            exchange.write(response, self._transport, self._connections)
            if self._blocked:
                self._count_unsent(self._transport.get_write_buffer_size())
            if not exchange.keep_alive:
                self._end()
                return
        if self._in_request:
            self._tell_to_continue()
        elif self._draining and not exchanges and not self._held:
            self._end()
            return
        if self._paused and not self._blocked and len(exchanges) < self._limits.max_pipelined:
            self._resume()
        self._watch()

    def _tell_to_continue(self) -> None:
        """Say that the body may come, once the answers before it are out and if it has not begun."""
        if self._continue_due and not self._exchanges and not self._body_bytes and not self._refusing:
            self._continue_due = False
            self._transport.write(_CONTINUE)

    def _end(self) -> None:
        """Close when everything is written; a client that still sends is let finish, unread."""
        self._refusing = True
        self._held = b""
        self._exchanges.clear()
        self._begin_request()
        if self._transport.is_closing():
            return
        if self._in_request and self._transport.can_write_eof():
            # Closing with unread data would reset the connection and could destroy the answer on its way.
            self._lingering = True
            self._transport.write_eof()
            self._resume()
            self.deadline = self._loop.time() + self._limits.linger_seconds
        else:
            self._transport.close()

    def refuse(self, status: int, message: str) -> None:
        """Answer with an error of the protocol, and take nothing more from this client."""
        self._refuse_with(self._application.protocol_error(status, message))

    def _refuse_with(self, response: Response) -> None:
        """Answer with `response` after what is still owed, and take nothing more from this client."""
        self._refusing = self._in_request = True
        self._drop_body()
        exchange = Exchange(self, False, False)
        self._exchanges.append(exchange)
        exchange.respond(response)

    def _too_large(self) -> str:
        return f"the body is larger than {self._limits.max_body_bytes} bytes"

    # --- time

    def drain(self) -> None:
        """Close now if nothing is in progress, else after the last answer."""
        self._draining = True
        if not (self._exchanges or self._in_request or self._held or self._closed):
            self._end()

    def timed_out(self) -> None:
        """End a connection whose client was too slow."""
        if self._closed:
            return
        if self._half_closed and not self._blocked and not self._left():
            self.deadline = _NEVER
        elif self._refusing or self._blocked or self._transport.is_closing():
            self._transport.abort()
        elif self._in_request:
            self.refuse(408, "the request did not come in time")
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
        if self._exchanges and (self._refusing or not self._in_request):
            self.deadline = _NEVER  # it is the server's turn
        elif self._in_request:
            if self._head_done:
                self.deadline = min(now + limits.stall_seconds, self._body_deadline)
            elif self.deadline == _NEVER or self.deadline > now + limits.head_seconds:
                self.deadline = now + limits.head_seconds
        else:
            self.deadline = now + limits.idle_seconds

    # --- what the whole process holds

    def _drop_body(self) -> None:
        self._body: list[bytes | bytearray] = []
        if self._unfinished:
            self._connections.unfinished.add(-self._unfinished)
            self._unfinished = 0

    def _count_unfinished(self) -> None:
        """Count what came of a body that goes on; refuse it if all connections hold too much."""
        if not self._body or self._refusing:
            return
        unfinished = self._connections.unfinished
        unfinished.add(self._body_bytes - self._unfinished)
        self._unfinished = self._body_bytes
        if unfinished.over:
            self.refuse(503, CROWDED)

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
