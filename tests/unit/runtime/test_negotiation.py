"""What holds for a request and a connection, from what both sides have said; and what is counted of it."""

from collections import Counter
from typing import Any

import pytest

from mcp2026.api.batching_negotiation import (
    SETTINGS_DYNAMIC_BATCHING,
    SETTINGS_MAX_BATCH_DELAY_MS,
    SETTINGS_MIN_BATCH_SIZE,
    BatchingOffer,
    NegotiationError,
    settings_of,
)
from mcp2026.runtime.negotiation.connection import ConnectionNegotiation, Negotiation, SettingsNegotiation
from mcp2026.runtime.negotiation.terms import NO_SETTINGS, Carrier, PeerSettings, Terms, terms_of

OURS = BatchingOffer(50, 3)
SILENT = NO_SETTINGS
DECLINED = PeerSettings(True, None)
OFFERED = PeerSettings(True, BatchingOffer(20, 6))


class Counted:
    """Counts as the metrics do."""

    def __init__(self) -> None:
        self.totals: Counter[Any] = Counter()

    def session_began(self, carrier: Carrier) -> None:
        self.totals["open", carrier] += 1
        self.totals["begun", carrier] += 1

    def session_ended(self, carrier: Carrier) -> None:
        self.totals["open", carrier] -= 1

    def request(self, carrier: Carrier) -> None:
        self.totals["requests", carrier] += 1

    def refused(self, carrier: Carrier, reason: str) -> None:
        self.totals["refused", carrier, reason] += 1

    def http2_connections(self, negotiated: int, single: int) -> None:
        self.totals["negotiated"] += negotiated
        self.totals["single"] += single


def negotiation(counts: Counted | None = None, offer: BatchingOffer = OURS) -> Negotiation:
    return Negotiation(offer, lambda path: path == "/infer", counts or Counted(), lambda: 1_000.0)


@pytest.mark.parametrize(
    ("value", "peer", "plain_offers", "carrier", "holds"),
    [
        pytest.param(
            b"1", OFFERED, False, Carrier.SETTINGS, (20, 6), id="settings, and the request refers to them"
        ),
        pytest.param(b"0", OFFERED, False, None, None, id="the request wants to be on its own"),
        pytest.param(
            b"1; max-delay-ms=5", OFFERED, False, Carrier.SETTINGS, (5, 6), id="a shorter wait of its own"
        ),
        pytest.param(
            b"1; min-size=2", OFFERED, False, Carrier.SETTINGS, (20, 3), id="a smaller batch of its own"
        ),
        pytest.param(b"1", DECLINED, False, None, None, id="settings that decline"),
        pytest.param(b"1; min-size=4", DECLINED, False, None, None, id="settings that decline, and an offer"),
        pytest.param(b"1", SILENT, False, None, None, id="the client sent no settings"),
        pytest.param(b"1; min-size=4", SILENT, False, Carrier.HEADER, (50, 4), id="a proxy ate the settings"),
        pytest.param(b"1", SILENT, True, Carrier.HEADER, (50, 3), id="a protocol without settings"),
        pytest.param(b"1; max-delay-ms=0", SILENT, True, Carrier.HEADER, (0, 3), id="no wait at all"),
    ],
)
def test_what_holds_for_a_request(
    value: bytes,
    peer: PeerSettings,
    plain_offers: bool,
    carrier: Carrier | None,
    holds: tuple[int, int] | None,
) -> None:
    terms = terms_of(OURS, value, peer, Carrier.HEADER, plain_offers=plain_offers)
    if holds is None:
        assert terms is None
        return
    assert terms is not None
    assert (terms.carrier, tuple(terms.negotiated)) == (carrier, holds)
    assert terms.field == (b"mcp-batching", b"active; max-delay-ms=%d; min-size=%d" % holds)


def test_nothing_holds_where_the_server_offers_nothing() -> None:
    assert terms_of(None, b"nonsense", OFFERED, Carrier.HEADER, plain_offers=True) is None


def test_only_paths_whose_requests_can_be_batched_are_looked_at() -> None:
    assert negotiation().decide("/models", b"nonsense", SILENT, Carrier.HEADER, plain_offers=True) is None


@pytest.mark.parametrize(("value", "reason"), [(b"yes", "malformed"), (b"1; min-size=0", "out_of_range")])
def test_a_refusal_is_counted_by_its_reason(value: bytes, reason: str) -> None:
    counts = Counted()
    with pytest.raises(NegotiationError):
        negotiation(counts).decide("/infer", value, SILENT, Carrier.METADATA, plain_offers=True)
    assert counts.totals == {("refused", Carrier.METADATA, reason): 1}


class Connection:
    """A connection of HTTP/2 as a client and a server see it."""

    def __init__(self, ours: Negotiation) -> None:
        self.said: dict[int, int] = {}
        self.told: list[dict[int, int]] = []
        self.side = SettingsNegotiation(ours, self.told.append)

    def settings(self, settings: dict[int, int]) -> None:
        self.side.check(settings)
        self.said |= settings
        self.side.settings_came(self.said, settings)

    def request(self, value: bytes = b"1") -> Terms | None:
        terms = self.side.decide("/infer", value, grpc=False)
        if terms is not None:
            self.side.asked(terms)
        return terms


def test_a_connection_is_negotiated_by_settings_and_again() -> None:
    counts = Counted()
    ours = negotiation(counts)
    connection = Connection(ours)
    assert counts.totals["single"] == 1
    assert connection.request() is None
    connection.settings(settings_of(BatchingOffer(20, 6)))
    first = connection.request()
    assert first is not None
    assert tuple(first.negotiated) == (20, 6)
    connection.settings({SETTINGS_MIN_BATCH_SIZE: 2})
    second = connection.request()
    assert second is not None
    assert tuple(second.negotiated) == (20, 3)
    (session,) = ours.sessions
    assert (session.requests, tuple(session.negotiated), session.since) == (2, (20, 3), 1_000.0)
    connection.settings({SETTINGS_DYNAMIC_BATCHING: 0})
    assert connection.request() is None
    assert not list(ours.sessions)
    connection.settings({SETTINGS_DYNAMIC_BATCHING: 1})
    assert connection.request() is not None
    assert counts.totals["begun", Carrier.SETTINGS] == 2
    connection.side.closed()
    connection.side.closed()
    assert not ours.listeners
    assert not any(counts.totals[key] for key in (("open", Carrier.SETTINGS), "single", "negotiated"))


def test_other_settings_change_nothing() -> None:
    connection = Connection(negotiation())
    connection.settings({4: 100, 0xF0B3: 1, 0xF000: 1})
    assert connection.told == []


@pytest.mark.parametrize(
    "settings",
    [{SETTINGS_DYNAMIC_BATCHING: 2}, {SETTINGS_MAX_BATCH_DELAY_MS: 1 << 16}, {SETTINGS_MIN_BATCH_SIZE: 256}],
)
def test_settings_out_of_range_are_refused_and_counted(settings: dict[int, int]) -> None:
    counts = Counted()
    with pytest.raises(NegotiationError):
        Connection(negotiation(counts)).settings(settings)
    assert counts.totals["refused", Carrier.SETTINGS, "out_of_range"] == 1


def test_the_server_renegotiates_with_those_who_negotiate() -> None:
    ours = negotiation()
    silent, client = Connection(ours), Connection(ours)
    client.settings(settings_of(BatchingOffer(20, 2)))
    client.told.clear()
    ours.change(BatchingOffer(10, 5))
    assert client.told == [settings_of(BatchingOffer(10, 5))]
    terms = client.request()
    assert terms is not None
    assert tuple(terms.negotiated) == (10, 5)
    ours.change(None)
    assert client.told[1:] == [{SETTINGS_DYNAMIC_BATCHING: 0}]
    assert client.request() is None
    assert [told for told in silent.told if told] == []
    silent.settings({SETTINGS_DYNAMIC_BATCHING: 1})
    assert silent.told[-1] == {SETTINGS_DYNAMIC_BATCHING: 0}


def test_a_client_that_negotiates_by_its_requests_has_a_session_from_the_first() -> None:
    counts = Counted()
    ours = negotiation(counts)
    connection = ConnectionNegotiation(ours)
    assert len(ours.sessions) == 0
    for value in (b"1; min-size=4", b"1; min-size=9"):
        terms = ours.decide("/infer", value, SILENT, Carrier.HEADER, plain_offers=True)
        assert terms is not None
        connection.asked(terms)
    (session,) = ours.sessions
    assert (session.requests, session.negotiated.min_size) == (2, 9)
    connection.closed()
    assert counts.totals == {
        ("open", Carrier.HEADER): 0,
        ("begun", Carrier.HEADER): 1,
        ("requests", Carrier.HEADER): 2,
    }


def test_the_latest_sessions_come_first() -> None:
    ours = negotiation()
    for _ in range(5):
        Connection(ours).settings(settings_of(OURS))
    assert [session.id for session in ours.sessions.latest(2)] == [5, 4]
