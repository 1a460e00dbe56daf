"""What a gRPC service is to the transport: methods found by path, fed with message bytes.

Contract: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md. The transport frames, decompresses,
keeps deadlines and writes trailers; a service sees whole messages and answers with whole messages.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from mcp2026.api.grpc_codes import GrpcCode
from mcp2026.runtime.negotiation.terms import Terms
from mcp2026.runtime.protocol.exchange import Cancel


@dataclass(frozen=True, slots=True)
class CallHead:
    """What is known of a call before its messages."""

    path: str
    """`/package.Service/Method`."""
    metadata: dict[bytes, bytes]
    """Names in lower case, values as sent; of repeated names the last."""
    timeout_ns: int | None
    """From `grpc-timeout`, None if the caller set no deadline."""
    batching: Terms | None = None
    """What was negotiated; None: the call is on its own."""


class Reply(msgspec.Struct, frozen=True, gc=False):
    """The end of a unary call: a message, or a status other than OK."""

    message: bytes = b""
    code: GrpcCode = GrpcCode.OK
    detail: str = ""
    """The status message; percent-encoded by the transport."""
    trailers: tuple[tuple[bytes, bytes], ...] = ()


Respond = Callable[[Reply], None]
"""Sends the reply; called exactly once, at once or later, on the event loop."""

UnaryMethod = Callable[[CallHead, bytes, Respond], Cancel | None]
"""Serves one call whose only message is given whole. Never raises."""


class Outbound(Protocol):
    """The answering half of a streaming call."""

    def send(self, message: bytes) -> None:
        """Send one message. Does nothing if the caller has gone."""

    def finish(
        self,
        code: GrpcCode = GrpcCode.OK,
        detail: str = "",
        trailers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        """End the call; called exactly once unless it was cancelled."""


class Inbound(Protocol):
    """What a service does with the requesting half of a streaming call. Never raises."""

    def message(self, message: bytes) -> None:
        """The caller sent one whole message."""

    def half_closed(self) -> None:
        """The caller will send no more."""

    def cancelled(self) -> None:
        """The caller has gone; nothing can be sent any more."""


StreamMethod = Callable[[CallHead, Outbound], Inbound]
"""Begins a streaming call of any kind. Never raises."""


class GrpcService(Protocol):
    """The methods of all services of one port."""

    def unary(self, path: str) -> UnaryMethod | None:
        """Return the unary method at `path`."""

    def streaming(self, path: str) -> StreamMethod | None:
        """Return the streaming method at `path`."""

    @property
    def closing(self) -> bool:
        """Connections should end when their calls are done (GOAWAY)."""
