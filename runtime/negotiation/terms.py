"""What holds for one request, and why: decided from what both sides have said.

A connection of HTTP/2 may have settled it by settings. Where they are missing, because the protocol has none,
because a library does not let its user choose them, or because a proxy ate them, the request says it all.
"""

from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from mcp2026.api.batching_negotiation import (
    BatchCapable,
    BatchingOffer,
    NegotiatedBatching,
    format_batching,
    negotiate,
    parse_batch_capable,
)
from mcp2026.api.names import BATCH_CAPABLE_HEADER, BATCHING_HEADER

CAPABLE: Final = BATCH_CAPABLE_HEADER.encode()
BATCHING: Final = BATCHING_HEADER.encode()
_MAX_REMEMBERED: Final = 256
_MAX_REMEMBERED_BYTES: Final = 128
"""Values of the header; clients send few."""


class Carrier(StrEnum):
    """What carried a client's offer."""

    SETTINGS = "settings"
    """SETTINGS frames of HTTP/2."""
    HEADER = "header"
    METADATA = "metadata"
    """Of a gRPC call."""


class Terms(NamedTuple):
    """What holds for one request."""

    carrier: Carrier
    offer: BatchingOffer
    """The client's."""
    negotiated: NegotiatedBatching
    field: tuple[bytes, bytes]
    """The header of the response."""
    early_hints: bool
    """The client of HTTP/1.1 asks for a 103."""


class PeerSettings(NamedTuple):
    """What the settings of a client's connection say of batching."""

    declared: bool = False
    """It has sent SETTINGS_DYNAMIC_BATCHING, be it 0 or 1."""
    offer: BatchingOffer | None = None


NO_SETTINGS: Final = PeerSettings()


def terms_of(
    ours: BatchingOffer | None,
    value: bytes,
    peer: PeerSettings,
    otherwise: Carrier,
    *,
    plain_offers: bool,
) -> Terms | None:
    """Return what holds for a request with `value` in `x-mcp-batch-capable`; None: it is on its own.

    `otherwise` carries the offer if there are no settings. Then a plain `1` offers the defaults if
    `plain_offers`; else it refers to settings, and without them to nothing.

    Raises:
        NegotiationError: the value is malformed or out of range, and this side offers something.

    """
    if ours is None:
        return None
    said = _parsed(value) if len(value) <= _MAX_REMEMBERED_BYTES else parse_batch_capable(value)
    if not said.capable:
        return None
    if peer.offer is not None:
        return _agreed(Carrier.SETTINGS, ours, said.offer(peer.offer), said.early_hints)
    if peer.declared or not (said.offers or plain_offers):
        return None
    return _agreed(otherwise, ours, said.offer(BatchingOffer()), said.early_hints)


@lru_cache(_MAX_REMEMBERED)
def _parsed(value: bytes) -> BatchCapable:
    return parse_batch_capable(value)


@lru_cache(_MAX_REMEMBERED)
def _agreed(carrier: Carrier, ours: BatchingOffer, theirs: BatchingOffer, early_hints: bool) -> Terms | None:
    negotiated = negotiate(ours, theirs)
    if negotiated is None:
        return None
    return Terms(carrier, theirs, negotiated, (BATCHING, format_batching(negotiated)), early_hints)
