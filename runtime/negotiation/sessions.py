"""The connections on which batching was negotiated, and what became of them. No clock, no sockets."""

from collections.abc import Iterable, Iterator
from itertools import count, islice
from typing import NamedTuple, Protocol

from mcp2026.api.batching_negotiation import BatchingOffer, NegotiatedBatching, Refusal
from mcp2026.runtime.negotiation.terms import Carrier, Terms


class Counts(Protocol):
    """Counts for all workers of a server."""

    def session_began(self, carrier: Carrier) -> None:
        """Batching was negotiated on one more connection."""

    def session_ended(self, carrier: Carrier) -> None:
        """Such a connection is closed, or negotiates no more."""

    def request(self, carrier: Carrier) -> None:
        """A request came for which batching is active."""

    def refused(self, carrier: Carrier, reason: Refusal) -> None:
        """An offer was refused."""

    def http2_connections(self, negotiated: int, single: int) -> None:
        """HTTP/2 connections with and without active settings have become so many more."""


class CarrierTotals(NamedTuple):
    """What all workers counted for one carrier."""

    open: int = 0
    """Sessions."""
    begun: int = 0
    requests: int = 0
    """For which batching was active."""
    refused: int = 0
    """Offers."""


class Session:
    """One connection with negotiated batching."""

    __slots__ = ("carrier", "id", "negotiated", "offer", "requests", "since")

    def __init__(
        self,
        number: int,
        carrier: Carrier,
        offer: BatchingOffer,
        negotiated: NegotiatedBatching,
        since: float,
    ) -> None:
        self.id = number
        """Of the connection, counted in its worker."""
        self.carrier = carrier
        self.offer = offer
        """The client's, the last one."""
        self.negotiated = negotiated
        """What followed from it."""
        self.requests = 0
        """Those for which batching was active."""
        self.since = since
        """Seconds since the epoch."""


class Sessions:
    """The open sessions of one worker."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._open: dict[int, Session] = {}
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._open.values())

    def latest(self, most: int) -> Iterable[Session]:
        """Return at most so many, those that began last first."""
        return islice(reversed(self._open.values()), most)

    def begin(
        self, carrier: Carrier, offer: BatchingOffer, negotiated: NegotiatedBatching, since: float
    ) -> Session:
        """Add a session; `since` is the time, in seconds since the epoch."""
        session = Session(next(self._numbers), carrier, offer, negotiated, since)
        self._open[session.id] = session
        self._counts.session_began(carrier)
        return session

    def asked(self, session: Session, terms: Terms) -> None:
        """Count a request of `session` for which `terms` hold."""
        session.requests += 1
        session.offer, session.negotiated = terms.offer, terms.negotiated
        self._counts.request(terms.carrier)

    def end(self, session: Session) -> None:
        """Remove a session, once."""
        if self._open.pop(session.id, None) is not None:
            self._counts.session_ended(session.carrier)
