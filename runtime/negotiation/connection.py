"""Negotiation on one connection, and a worker's side of it. Sans-IO: who has the connection calls.

What the worker offers may change while it runs (`Negotiation.change`): then connections of HTTP/2 are told by
another SETTINGS frame. What holds for a request is decided when it begins, and stays.
"""

import time
from collections.abc import Callable, Mapping

from mcp2026.api.batching_negotiation import (
    SETTINGS_DYNAMIC_BATCHING,
    SETTINGS_MAX_BATCH_DELAY_MS,
    SETTINGS_MIN_BATCH_SIZE,
    BatchingOffer,
    NegotiationError,
    negotiate,
    offer_in_settings,
    settings_of,
)
from mcp2026.runtime.negotiation.sessions import Counts, Session, Sessions
from mcp2026.runtime.negotiation.terms import NO_SETTINGS, Carrier, PeerSettings, Terms, terms_of

_IDS = frozenset((SETTINGS_DYNAMIC_BATCHING, SETTINGS_MAX_BATCH_DELAY_MS, SETTINGS_MIN_BATCH_SIZE))


class Negotiation:
    """What one worker offers, and the connections that took it up."""

    def __init__(
        self,
        offer: BatchingOffer | None,
        covers: Callable[[str], bool],
        counts: Counts,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Offer `offer`; None: nothing for now. `covers` tells the paths whose requests can be batched.

        Whoever does not negotiate at all has no such object: the settings are then unknown ids.

        `clock` gives seconds since the epoch.
        """
        self.offer = offer
        self.covers = covers
        self.counts = counts
        self.clock = clock
        self.sessions = Sessions(counts)
        self.listeners: dict[object, Callable[[], None]] = {}
        """Called after each change of the offer, by whoever wants to be."""

    @property
    def settings(self) -> dict[int, int]:
        """The offer as settings for the first frame of a connection; none if nothing is offered."""
        return {} if self.offer is None else settings_of(self.offer)

    def change(self, offer: BatchingOffer | None) -> None:
        """Offer something else from now on; None: nothing more."""
        if offer != self.offer:
            self.offer = offer
            for changed in list(self.listeners.values()):
                changed()

    def decide(
        self, path: str, value: bytes, peer: PeerSettings, otherwise: Carrier, *, plain_offers: bool
    ) -> Terms | None:
        """Return what holds for a request for `path` with `value` in `x-mcp-batch-capable` (`terms_of`).

        Raises:
            NegotiationError: the value cannot be taken; it was counted.

        """
        if not self.covers(path):
            return None
        try:
            return terms_of(self.offer, value, peer, otherwise, plain_offers=plain_offers)
        except NegotiationError as error:
            self.counts.refused(otherwise, error.reason)
            raise


class ConnectionNegotiation:
    """One connection of a client that negotiates by its requests."""

    def __init__(self, negotiation: Negotiation) -> None:
        self._negotiation = negotiation
        self._session: Session | None = None

    def asked(self, terms: Terms) -> None:
        """A request came for which `terms` hold."""
        session = self._session
        if session is None or session.carrier is not terms.carrier:
            session = self._begin(terms.carrier, terms)
        self._negotiation.sessions.asked(session, terms)

    def closed(self) -> None:
        """End what was negotiated."""
        if self._session is not None:
            self._negotiation.sessions.end(self._session)
            self._session = None

    def _begin(self, carrier: Carrier, terms: Terms) -> Session:
        ConnectionNegotiation.closed(self)
        negotiation = self._negotiation
        self._session = session = negotiation.sessions.begin(
            carrier, terms.offer, terms.negotiated, negotiation.clock()
        )
        return session


class SettingsNegotiation(ConnectionNegotiation):
    """One connection of HTTP/2, on which both sides can say by settings what they offer."""

    def __init__(self, negotiation: Negotiation, changed: Callable[[dict[int, int]], None]) -> None:
        """Call `changed` when what holds may have changed, with the settings to send for it, if any."""
        super().__init__(negotiation)
        self._peer = NO_SETTINGS
        self._active = False
        self._changed = changed
        self._told = negotiation.settings
        negotiation.listeners[self] = self._offer_changed
        negotiation.counts.http2_connections(0, 1)

    def check(self, settings: Mapping[int, int]) -> None:
        """Look at settings that the client sends, before they count.

        Raises:
            NegotiationError: a value is out of its range; it was counted.

        """
        try:
            offer_in_settings(settings)
        except NegotiationError as error:
            self._negotiation.counts.refused(Carrier.SETTINGS, error.reason)
            raise

    def settings_came(self, settings: Mapping[int, int], changed: Mapping[int, int]) -> None:
        """Take in `settings`, all that the client has said so far, after a frame with `changed`.

        All were checked.
        """
        if _IDS.isdisjoint(changed):
            return
        offer = offer_in_settings(settings)
        self._peer = PeerSettings(SETTINGS_DYNAMIC_BATCHING in settings, offer)
        self._settle()
        self._changed(self._news())

    def decide(self, path: str, value: bytes, *, grpc: bool) -> Terms | None:
        """Return what holds for a request that begins now (`Negotiation.decide`).

        Raises:
            NegotiationError: the value cannot be taken.

        """
        otherwise = Carrier.METADATA if grpc else Carrier.HEADER
        return self._negotiation.decide(path, value, self._peer, otherwise, plain_offers=grpc)

    def closed(self) -> None:
        """End what was negotiated."""
        super().closed()
        negotiation = self._negotiation
        if negotiation.listeners.pop(self, None) is not None:
            negotiation.counts.http2_connections(-int(self._active), int(self._active) - 1)

    def _offer_changed(self) -> None:
        self._settle()
        self._changed(self._news())

    def _news(self) -> dict[int, int]:
        """Return the settings that a client who negotiates has not been told yet."""
        now = self._negotiation.settings
        if not self._peer.declared or now == self._told:
            return {}
        self._told = now
        return now or {SETTINGS_DYNAMIC_BATCHING: 0}

    def _settle(self) -> None:
        """Begin, change or end the session by what both sides offer now."""
        negotiation, theirs = self._negotiation, self._peer.offer
        negotiated = negotiate(negotiation.offer, theirs)
        active = negotiated is not None
        if active is not self._active:
            self._active = active
            change = 1 if active else -1
            negotiation.counts.http2_connections(change, -change)
        session = self._session
        if negotiated is None or theirs is None:
            super().closed()
        elif session is None or session.carrier is not Carrier.SETTINGS:
            super().closed()
            self._session = negotiation.sessions.begin(
                Carrier.SETTINGS, theirs, negotiated, negotiation.clock()
            )
        else:
            session.offer, session.negotiated = theirs, negotiated
