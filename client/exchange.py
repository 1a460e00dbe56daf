"""One question and its answer, as the wires carry them: plain data."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from mcp2026.api.batching_negotiation import NegotiatedBatching, NegotiationError, parse_batching
from mcp2026.api.names import BATCHING_HEADER
from mcp2026.client.datatypes import Buffer

Header = tuple[str, str]
"""The name is in lower case."""

Answer_co = TypeVar("Answer_co", covariant=True)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request over HTTP."""

    method: str
    path: str
    headers: tuple[Header, ...] = ()
    """Without those that every request has: host and content-length."""
    body: tuple[Buffer, ...] = ()
    batchable: bool = False
    """May share a batch with others if batching was negotiated."""

    @property
    def body_bytes(self) -> int:
        """Length of the body."""
        return sum(len(part) for part in self.body)


@dataclass(slots=True)
class HttpResponse:
    """A final response over HTTP; of the ones before it only the last `mcp-batching` is kept."""

    status: int
    headers: dict[str, str]
    """Names are in lower case; the last of several of a name."""
    body: bytearray = field(default_factory=bytearray)
    hinted_batching: str = ""
    """`mcp-batching` of a 103 Early Hints."""

    @property
    def batching(self) -> NegotiatedBatching | None:
        """What was negotiated for the request, None if it was on its own."""
        return batching_of(self.headers.get(BATCHING_HEADER, "") or self.hinted_batching)


class GrpcRequest(NamedTuple):
    """A unary call."""

    method: str
    """`/package.Service/Method`."""
    message: bytes
    metadata: tuple[Header, ...] = ()
    batchable: bool = False
    """May share a batch with others if batching was negotiated."""


class GrpcResponse(NamedTuple):
    """The answer of a unary call that ended well."""

    message: bytes
    metadata: dict[str, str]
    """Initial and trailing; names are in lower case, binary values are left out."""

    @property
    def batching(self) -> NegotiatedBatching | None:
        """What was negotiated for the request, None if it was on its own."""
        return batching_of(self.metadata.get(BATCHING_HEADER, ""))


class Operation(Protocol[Answer_co]):
    """Something that a server can be asked, in both protocols."""

    @property
    def idempotent(self) -> bool:
        """Whether asking twice is as good as asking once."""

    def http_request(self, timeout: float) -> HttpRequest:
        """Return the question; the server is told that it has `timeout` s."""

    def http_answer(self, response: HttpResponse) -> Answer_co:
        """Return what the response says; raise `ClientError` if it says that it failed."""

    def grpc_request(self, timeout: float) -> GrpcRequest:
        """Return the question; the server is told that it has `timeout` s."""

    def grpc_answer(self, response: GrpcResponse) -> Answer_co:
        """Return what the response says."""


def batching_of(header: str) -> NegotiatedBatching | None:
    """Return what `mcp-batching` says; None if it is missing or nothing that this client knows."""
    if not header:
        return None
    try:
        return parse_batching(header.encode("latin-1", "replace"))
    except NegotiationError:
        return None


def coalesced(parts: Sequence[Buffer], small: int = 16_384) -> list[Buffer]:
    """Return `parts` with neighbours below `small` bytes joined: a packet for each would cost more.

    Large parts stay views.
    """
    joined: list[Buffer] = []
    run: list[Buffer] = []
    for part in parts:
        if len(part) < small:
            run.append(part)
            continue
        if run:
            joined.append(b"".join(run))
            run = []
        joined.append(part)
    if run:
        joined.append(b"".join(run))
    return joined
