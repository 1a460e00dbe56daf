"""A client's connection over HTTP/1.1: it sends prepared bytes and reads of an answer what it must."""

import asyncio
from collections.abc import Callable
from typing import cast

from bench.errors import BenchError

Answered = Callable[["ClientConnection", int], None]
"""Called with the HTTP status of each answer; 0 if the server closed the connection instead."""

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length:"


class ClientConnection(asyncio.Protocol):
    """One request at a time. `sent_at` is when the request was due, in s; its latency counts from there."""

    def __init__(self, answered: Answered) -> None:
        self._answered = answered
        self._received = b""
        self._busy = False
        self.sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  asyncio calls it so
        """Tell of the request that has no answer."""
        if self._busy:
            self._busy = False
            self._answered(self, 0)

    @property
    def is_open(self) -> bool:
        """Whether another request can be sent."""
        return not self._transport.is_closing()

    def send(self, request: bytes, sent_at: float) -> None:
        """Send one request."""
        self.sent_at = sent_at
        self._busy = True
        self._transport.write(request)

    def close(self) -> None:
        """Leave, also in the middle of a request."""
        self._busy = False
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take a piece of an answer."""
        self._received += data
        head_end = self._received.find(_HEAD_END)
        if head_end < 0:
            return
        if len(self._received) < head_end + len(_HEAD_END) + self._body_length(head_end):
            return
        status = int(self._received[9:12])
        self._received = b""
        if self._busy:
            self._busy = False
            self._answered(self, status)

    def _body_length(self, head_end: int) -> int:
        head = self._received[:head_end].lower()
        start = head.find(_LENGTH)
        if start < 0:
            raise BenchError("the client in Python needs answers with a Content-Length")
        end = head.find(b"\r\n", start)
        return int(head[start + len(_LENGTH) : end if end >= 0 else head_end])
