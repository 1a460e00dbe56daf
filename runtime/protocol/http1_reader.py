"""Bytes of HTTP/1.1 into requests, one after the other, by httptools.

What is wrong with a request is said as soon as it is seen: heads and bodies are limited, and an oversized
body is refused before it is read. The bodies that are not complete are counted for the whole process.
"""

from typing import Any, Protocol

import httptools

from mcp2026.runtime.negotiation.connection import Negotiation
from mcp2026.runtime.protocol.connections import CROWDED, ConnectionLimits, Connections
from mcp2026.runtime.protocol.exchange import Application, RequestHead, Response
from mcp2026.runtime.protocol.http1_head import path_of, settle_batching

_SMALL_BODY = 64 * 1024
"""A refused request's body up to this size is read and dropped, and the connection stays."""
STEP = 512
_CHUNKED_STEP = 2 * 1024
"""Bytes that are parsed before it is asked whether this client has had its turn: outside bodies, where many
requests may stand, and in a body whose end is not known."""
_SMALL_PIECE = 4 * 1024
"""Pieces of a body up to this size are collected in one buffer: as objects they may cost 30 times as much."""


class Receiver(Protocol):
    """The connection that the requests come on."""

    refusing: bool
    """Nothing that comes from now on is looked at."""

    def head_complete(self) -> None:
        """The client owes the body from now on."""

    def tell_to_continue(self) -> None:
        """Say that the body may come, once the answers before it are out and if it has not begun."""

    def complete(
        self, head: RequestHead, body: bytes, refusal: Response | None, *, keep_alive: bool, http_10: bool
    ) -> None:
        """Serve a whole request, or answer it with its refusal."""

    def refuse(self, status: int, message: str, allowed: str | None = None) -> None:
        """Answer with an error of the protocol, and take nothing more from this client."""

    def refuse_with(self, response: Response) -> None:
        """Answer with `response` after what is still owed, and take nothing more from this client."""


class RequestReader:
    """The request that a client is sending."""

    def __init__(
        self,
        receiver: Receiver,
        application: Application,
        limits: ConnectionLimits,
        connections: Connections,
        negotiation: Negotiation | None = None,
    ) -> None:
        self._receiver = receiver
        self._negotiation = negotiation
        self._application = application
        self._limits = limits
        self._held = connections.unfinished
        self._counted = 0  # bytes of a body that is not complete, as the process counts them
        self._parser: Any = httptools.HttpRequestParser(self)
        self._length: int | None = None
        self.in_request = False
        """A request has begun and is not complete."""
        self.head_done = False
        self.head_bytes = 0
        """Bytes since the last request or piece of a body."""
        self.clear()

    def clear(self) -> None:
        """Forget what came of a request."""
        self.drop_body()
        self.body_bytes = 0
        self.continue_due = False
        """The client waits for a word before it sends the body."""
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._header_count = 0
        self._repeats_host = False
        self._head: RequestHead | None = None
        self._refusal: Response | None = None
        self._offer = False  # the request offers another protocol

    @property
    def step(self) -> int:
        """Bytes that can be parsed at once without beginning many requests."""
        if not (self.in_request and self.head_done):
            return STEP
        if self._length is None:
            return _CHUNKED_STEP
        return max(STEP, self._length - self.body_bytes)

    def feed(self, data: bytes) -> None:
        """Parse `data`; the callbacks below are called from here."""
        receiver = self._receiver
        if not self.head_done:
            self.head_bytes += len(data)
        body_bytes = self.body_bytes
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # The parser stops where the other protocol would begin. An offer may be ignored: the request
            # is read once more, without its offer.
            if not receiver.refusing:
                again = self._without_offer() + data[upgrade.args[0] :]
                self._parser = httptools.HttpRequestParser(self)
                self.feed(again)
            return
        except httptools.HttpParserError as error:
            if not receiver.refusing:
                receiver.refuse(400, f"not HTTP/1.1: {error}")
            return
        if self.in_request and self.head_done:
            # Trailers and chunk extensions are heads too: bytes that are no body.
            self.head_bytes = 0 if self.body_bytes != body_bytes else self.head_bytes + len(data)
        if self.in_request and self.head_bytes > self._limits.max_head_bytes and not receiver.refusing:
            most = self._limits.max_head_bytes
            receiver.refuse(431, f"more than {most} bytes of headers", f"at most {most} bytes")

    def _without_offer(self) -> bytes:
        lines = [b"%b %b HTTP/1.1" % (self._parser.get_method(), self._url)]
        lines += [b"%b: %b" % header for header in self._headers.items() if header[0] != b"upgrade"]
        self.in_request = self.head_done = False
        return b"\r\n".join(lines) + b"\r\n\r\n"

    # --- httptools

    def on_message_begin(self) -> None:
        """Begin a request."""
        if self._receiver.refusing:
            return
        self.in_request, self.head_done = True, False
        self.clear()

    def on_url(self, url: bytes) -> None:
        """Collect the request target, which may come in pieces."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect one header."""
        self._header_count += 1
        if not self.head_done and self._header_count <= self._limits.max_headers:
            name = name.lower()
            if name == b"host" and name in self._headers:
                self._repeats_host = True
            self._headers[name] = value

    def on_headers_complete(self) -> None:
        """Decide, before any of the body is read, whether it will be."""
        self.head_done = True
        receiver = self._receiver
        if receiver.refusing:
            return
        limits, headers = self._limits, self._headers
        receiver.head_complete()
        if self._header_count > limits.max_headers:
            most = limits.max_headers
            receiver.refuse(431, f"more than {most} headers", f"at most {most}")
            return
        if self._parser.get_http_version() == "1.1" and b"host" not in headers:
            receiver.refuse(400, "the Host header is missing")
            return
        if self._repeats_host:
            receiver.refuse(400, "the Host header comes twice")
            return
        length = int(headers[b"content-length"]) if b"content-length" in headers else None
        self._length = None if b"transfer-encoding" in headers else length or 0
        self.head_bytes = 0
        path = path_of(self._url)
        if self._parser.should_upgrade():
            if self._parser.get_method() == b"CONNECT":
                receiver.refuse(400, "this is no proxy")
            self._offer = True
            return
        self._head = RequestHead(self._parser.get_method().decode("latin-1"), path, headers)
        settle_batching(self._head, self._negotiation)
        self._refusal = self._application.admit(self._head)
        if self._refusal is None and length is not None and length > limits.max_body_bytes:
            receiver.refuse(413, *limits.too_large)
            return
        expects = headers.get(b"expect", b"").lower() == b"100-continue" and not self._is_http_10()
        if self._refusal is not None:
            if expects or (length or 0) > _SMALL_BODY:
                receiver.refuse_with(self._refusal)
        elif expects:
            self.continue_due = True
            receiver.tell_to_continue()

    def on_body(self, body: bytes) -> None:
        """Collect a piece of the body."""
        receiver = self._receiver
        if receiver.refusing:
            return
        self.body_bytes += len(body)
        if self._refusal is not None:
            if self.body_bytes > _SMALL_BODY:
                receiver.refuse_with(self._refusal)
            return
        if self.body_bytes > self._limits.max_body_bytes:
            receiver.refuse(413, *self._limits.too_large)
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
        if self._receiver.refusing or self._offer:
            return
        self.in_request = self.head_done = False
        self.head_bytes = 0
        head, pieces = self._head, self._body
        assert head is not None
        body = bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)
        self.drop_body()
        self._receiver.complete(
            head,
            body,
            self._refusal,
            keep_alive=self._parser.should_keep_alive(),
            http_10=self._is_http_10(),
        )

    def _is_http_10(self) -> bool:
        return bool(self._parser.get_http_version() == "1.0")

    # --- what the whole process holds

    def drop_body(self) -> None:
        """Let go of what came of the body."""
        self._body: list[bytes | bytearray] = []
        if self._counted:
            self._held.add(-self._counted)
            self._counted = 0

    def count_unfinished(self) -> None:
        """Count what came of a body that goes on; refuse it if all connections hold too much."""
        if not self._body or self._receiver.refusing:
            return
        self._held.add(self.body_bytes - self._counted)
        self._counted = self.body_bytes
        if self._held.over:
            self._receiver.refuse(503, CROWDED)
