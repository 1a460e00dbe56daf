"""What a worker counts of negotiated batching, and what all workers counted together."""

from collections.abc import Sequence
from typing import get_args

from mcp2026.api.batching_negotiation import Refusal
from mcp2026.runtime.metrics.families import SERVER
from mcp2026.runtime.negotiation.sessions import CarrierTotals
from mcp2026.runtime.negotiation.terms import Carrier

_column = SERVER.layout.column
_OPEN = {carrier: _column(SERVER.sessions, carrier.value) for carrier in Carrier}
_BEGUN = {carrier: _column(SERVER.sessions_begun, carrier.value) for carrier in Carrier}
_REQUESTS = {carrier: _column(SERVER.negotiated_requests, carrier.value) for carrier in Carrier}
_REFUSED: dict[tuple[Carrier, Refusal], int] = {
    (carrier, reason): _column(SERVER.refused_offers, carrier.value, reason)
    for carrier in Carrier
    for reason in get_args(Refusal)
}
_NEGOTIATED = _column(SERVER.http2_connections, "negotiated")
_SINGLE = _column(SERVER.http2_connections, "single")

GAUGES = (*_OPEN.values(), _NEGOTIATED, _SINGLE)
"""Columns that begin at zero again with each process."""


class NegotiationCounts:
    """Counts in one process's row of the server's block."""

    def __init__(self, row: "memoryview[float]") -> None:
        self._row = row

    def session_began(self, carrier: Carrier) -> None:
        """Batching was negotiated on one more connection."""
        self._row[_OPEN[carrier]] += 1
        self._row[_BEGUN[carrier]] += 1

    def session_ended(self, carrier: Carrier) -> None:
        """Such a connection is closed, or negotiates no more."""
        self._row[_OPEN[carrier]] -= 1

    def request(self, carrier: Carrier) -> None:
        """A request came for which batching is active."""
        self._row[_REQUESTS[carrier]] += 1

    def refused(self, carrier: Carrier, reason: Refusal) -> None:
        """An offer was refused."""
        self._row[_REFUSED[carrier, reason]] += 1

    def http2_connections(self, negotiated: int, single: int) -> None:
        """HTTP/2 connections with and without active settings have become so many more."""
        self._row[_NEGOTIATED] += negotiated
        self._row[_SINGLE] += single


def carrier_totals(totals: Sequence[float]) -> dict[Carrier, CarrierTotals]:
    """Return what all processes counted, given the sums of the server's block."""
    return {
        carrier: CarrierTotals(
            open=int(totals[_OPEN[carrier]]),
            begun=int(totals[_BEGUN[carrier]]),
            requests=int(totals[_REQUESTS[carrier]]),
            refused=sum(int(totals[_REFUSED[carrier, reason]]) for reason in get_args(Refusal)),
        )
        for carrier in Carrier
    }
