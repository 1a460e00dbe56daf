"""A request of HTTP/1.1 that was taken in, and its response as bytes."""

import asyncio
from http import HTTPStatus
from typing import Protocol

import msgspec

from mcp2026.runtime.negotiation.terms import Terms
from mcp2026.runtime.protocol.connections import Connections
from mcp2026.runtime.protocol.exchange import Cancel, Response

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
_LARGE = 64 * 1024
"""A body from this size on is handed to the transport as it is, not copied behind its head."""


class Owner(Protocol):
    """The connection that a request came on."""

    def flush(self) -> None:
        """Write the responses that are due, in the order of the requests."""


class Exchange(msgspec.Struct, eq=False):
    """A request that was taken in, and its response once there is one."""

    owner: Owner
    keep_alive: bool
    """The connection stays after the response."""
    head_only: bool
    http_10: bool = False
    response: Response | None = None
    cancel: Cancel | None = None
    terms: Terms | None = None
    """What was negotiated about batching: the response says it again."""
    hint: bytes = b""
    """An interim response that is due when the responses before it are out."""

    def give_hint(self, transport: asyncio.Transport) -> None:
        """Write the interim response, if one is still due."""
        if self.hint:
            transport.write(self.hint)
            self.hint = b""

    def respond(self, response: Response) -> None:
        """Take the response; only the first one counts."""
        if self.response is None:
            self.response = response
            self.cancel = None  # it may lead back to this object
            self.owner.flush()

    def write(self, response: Response, transport: asyncio.Transport, connections: Connections) -> None:
        """Write `response`. A client of HTTP/1.0 is told that the connection stays, others that it ends."""
        body, size = response.body, len(response.body)
        key = (response.status, response.content_type)
        start = connections.response_starts.get(key)
        if start is None:
            start = connections.response_starts[key] = b"%b%bcontent-type: %b\r\ncontent-length: " % (
                _STATUS_LINES[response.status],
                connections.date_line,
                response.content_type,
            )
        usual = self.keep_alive and not (response.headers or self.head_only or self.http_10 or self.terms)
        if usual and size < _LARGE:
            transport.write(b"%b%d\r\n\r\n%b" % (start, size, body))
            return
        lines = [b"%b%d\r\n" % (start, size)]
        lines += [b"%b: %b\r\n" % header for header in response.headers]
        if self.terms is not None:
            self.give_hint(transport)
            lines.append(b"%b: %b\r\n" % self.terms.field)
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        elif self.http_10:
            lines.append(b"connection: keep-alive\r\n")
        if self.head_only or size >= _LARGE:
            transport.write(b"".join([*lines, b"\r\n"]))
            if not self.head_only:
                transport.write(body)
        else:
            transport.write(b"".join([*lines, b"\r\n", body]))
