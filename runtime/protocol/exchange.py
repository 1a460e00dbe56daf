"""One request and its response, whatever carried them. HTTP versions stand below this, the API above."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from mcp2026.api.batching_negotiation import NegotiationError
from mcp2026.runtime.negotiation.terms import Terms

JSON = b"application/json"

Respond = Callable[["Response"], None]
"""Sends the response; called exactly once, at once or later, on the event loop."""
Cancel = Callable[[], None]
"""Tells the application that the caller has gone."""


@dataclass(slots=True)
class RequestHead:
    """What is known of a request before its body. One object may stand for many requests with equal heads."""

    method: str
    path: str
    headers: dict[bytes, bytes]
    """Names in lower case; of repeated headers the last."""
    handler: "Handler | None" = field(default=None, compare=False, repr=False)
    """What serves it, once the application has looked for that."""
    batching: Terms | None = field(default=None, compare=False, repr=False)
    """What was negotiated; None: the request is on its own."""
    refused_offer: NegotiationError | None = field(default=None, compare=False, repr=False)
    """What is wrong with its offer to negotiate; the application does not admit it then."""


class Response(msgspec.Struct, frozen=True, gc=False):
    """A whole response."""

    status: int
    body: bytes
    content_type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()


Handler = Callable[[RequestHead, bytes, Respond], Cancel | None]
"""Starts serving a whole request. Never raises."""


class Application(Protocol):
    """What a protocol serves."""

    @property
    def closing(self) -> bool:
        """Connections should end with their next response."""

    def admit(self, head: RequestHead) -> Response | None:
        """Return a refusal that does not need the body, or None to go on reading.

        Depends on the head alone: a head that was admitted once may be taken as admitted.
        """

    def begin(self, head: RequestHead, body: bytes, respond: Respond) -> Cancel | None:
        """Start serving a whole request. Never raises."""

    def protocol_error(self, status: int, message: str, allowed: str | None = None) -> Response:
        """Return the response for a request that the protocol itself refuses; `allowed` would be accepted."""
