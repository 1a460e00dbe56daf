"""What a client offers about batching, and what is known of the server's side."""

from collections.abc import Mapping

from mcp2026.api.batching_negotiation import (
    BatchCapable,
    BatchingOffer,
    NegotiatedBatching,
    check_offer,
    format_batch_capable,
    negotiate,
    offer_in_settings,
    settings_of,
)
from mcp2026.client.addresses import Transport


def offer_of(asked: BatchingOffer | bool | None, transport: Transport) -> BatchingOffer | None:
    """Return what a client offers whose `batching` is `asked`; None: over HTTP/2 the default, else nothing.

    Raises:
        NegotiationError: a value is out of its range.

    """
    if asked is None:
        asked = transport is Transport.HTTP2
    if isinstance(asked, bool):
        return BatchingOffer() if asked else None
    check_offer(asked)
    return asked


def header_of(offer: BatchingOffer | None, *, early_hints: bool = False) -> str:
    """Return `x-mcp-batch-capable` for a carrier without settings; empty without an offer."""
    if offer is None:
        return ""
    said = BatchCapable(True, offer.max_delay_ms, offer.min_size, early_hints)
    return format_batch_capable(said).decode()


class SettingsNegotiation:
    """The offers of both sides of an HTTP/2 connection, as far as their settings have come."""

    def __init__(self, ours: BatchingOffer | None) -> None:
        self.ours = ours
        self._theirs: BatchingOffer | None = None
        self._heard = False

    @property
    def settings(self) -> dict[int, int]:
        """What belongs into our SETTINGS frame."""
        return settings_of(self.ours) if self.ours is not None else {}

    def hear(self, settings: Mapping[int, int]) -> None:
        """Take all settings that the server has sent so far.

        Raises:
            NegotiationError: a value is out of its range.

        """
        self._theirs = offer_in_settings(settings)
        self._heard = True

    @property
    def result(self) -> NegotiatedBatching | None:
        """What holds for the connection."""
        return negotiate(self.ours, self._theirs)

    @property
    def header(self) -> str:
        """`x-mcp-batch-capable` of the next request, empty for none.

        The settings carry the offer. Where those of the other side came and say nothing about batching, it
        may be a proxy that also ate ours: then the header carries it.
        """
        if self.ours is None:
            return ""
        if self._heard and self._theirs is None:
            return header_of(self.ours)
        return "1"
