"""What client and server offer each other, in each of its forms, and what follows."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp2026.api.batching_negotiation import (
    SETTINGS_DYNAMIC_BATCHING,
    SETTINGS_MAX_BATCH_DELAY_MS,
    SETTINGS_MIN_BATCH_SIZE,
    BatchCapable,
    BatchingOffer,
    NegotiatedBatching,
    NegotiationError,
    format_batch_capable,
    format_batching,
    negotiate,
    offer_in_settings,
    parse_batch_capable,
    parse_batching,
    settings_of,
)

DELAYS = st.integers(0, 65_535)
SIZES = st.integers(1, 255)
OFFERS = st.builds(BatchingOffer, DELAYS, SIZES, SIZES)
SAID = st.builds(BatchCapable, st.booleans(), st.none() | DELAYS, st.none() | SIZES, st.booleans())


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"1", BatchCapable(True)),
        (b"0", BatchCapable(False)),
        (b"  1  ", BatchCapable(True)),
        (b"1;max-delay-ms=0", BatchCapable(True, 0)),
        (b"1;  min-size=255", BatchCapable(True, None, 255)),
        (b"1; max-delay-ms=20; min-size=4; early-hints=1", BatchCapable(True, 20, 4, True)),
        (b"1; early-hints=0", BatchCapable(True)),
        (b"1; min-size=4; min-size=5", BatchCapable(True, None, 5)),
        (b"0; max-delay-ms=65535", BatchCapable(False, 65_535)),
    ],
)
def test_a_request_says_what_it_is_ready_for(value: bytes, said: BatchCapable) -> None:
    assert parse_batch_capable(value) == said


@pytest.mark.parametrize(
    ("value", "field", "allowed"),
    [
        (b"", "x-mcp-batch-capable", "RFC 8941"),
        (b"2", "x-mcp-batch-capable", "0 or 1"),
        (b"yes", "x-mcp-batch-capable", "0 or 1"),
        (b"?1", "x-mcp-batch-capable", "0 or 1"),
        (b"1, 1", "x-mcp-batch-capable", "RFC 8941"),
        (b"1 ; min-size=4", "x-mcp-batch-capable", "RFC 8941"),
        (b"1; min-size = 4", "x-mcp-batch-capable", "RFC 8941"),
        (b"1; size=4", "x-mcp-batch-capable", "max-delay-ms, min-size, early-hints"),
        (b"1;", "x-mcp-batch-capable", "max-delay-ms, min-size, early-hints"),
        (b"1; MIN-SIZE=4", "x-mcp-batch-capable", "max-delay-ms, min-size, early-hints"),
        (b"1; min-size", "x-mcp-batch-capable.min-size", "1 to 255"),
        (b"1; min-size=0", "x-mcp-batch-capable.min-size", "1 to 255"),
        (b"1; min-size=256", "x-mcp-batch-capable.min-size", "1 to 255"),
        (b"1; min-size=4.0", "x-mcp-batch-capable.min-size", "1 to 255"),
        (b"1; min-size=\xb2", "x-mcp-batch-capable.min-size", "1 to 255"),
        (b"1; max-delay-ms=-1", "x-mcp-batch-capable.max-delay-ms", "0 to 65535"),
        (b"1; max-delay-ms=65536", "x-mcp-batch-capable.max-delay-ms", "0 to 65535"),
        (b'1; max-delay-ms="20"', "x-mcp-batch-capable.max-delay-ms", "0 to 65535"),
        (b"1; max-delay-ms=" + b"9" * 900, "x-mcp-batch-capable.max-delay-ms", "0 to 65535"),
        (b"1; early-hints=2", "x-mcp-batch-capable.early-hints", "0 to 1"),
        (b"0; min-size=0", "x-mcp-batch-capable.min-size", "1 to 255"),
    ],
)
def test_what_a_request_may_not_say(value: bytes, field: str, allowed: str) -> None:
    with pytest.raises(NegotiationError) as caught:
        parse_batch_capable(value)
    assert caught.value.field == field
    assert caught.value.reason == ("malformed" if caught.value.rule == "pattern" else "out_of_range")
    assert allowed in caught.value.allowed
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("value", "negotiated"),
    [
        (b"active; max-delay-ms=20; min-size=4", NegotiatedBatching(20, 4)),
        (b"active;min-size=1;max-delay-ms=0", NegotiatedBatching(0, 1)),
        (b"active; max-delay-ms=20; min-size=4; shape=any", NegotiatedBatching(20, 4)),
    ],
)
def test_a_response_says_what_holds(value: bytes, negotiated: NegotiatedBatching) -> None:
    assert parse_batching(value) == negotiated


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (b"", "mcp-batching"),
        (b"passive; max-delay-ms=20; min-size=4", "mcp-batching"),
        (b"active", "mcp-batching.max-delay-ms"),
        (b"active; max-delay-ms=20", "mcp-batching.min-size"),
        (b"active; max-delay-ms=20; min-size=0", "mcp-batching.min-size"),
        (b"active; max-delay-ms=; min-size=4", "mcp-batching.max-delay-ms"),
    ],
)
def test_what_a_response_may_not_say(value: bytes, field: str) -> None:
    with pytest.raises(NegotiationError) as caught:
        parse_batching(value)
    assert caught.value.field == field


@given(SAID)
def test_a_request_is_read_as_it_was_written(said: BatchCapable) -> None:
    assert parse_batch_capable(format_batch_capable(said)) == said


@given(DELAYS, SIZES)
def test_a_response_is_read_as_it_was_written(delay: int, size: int) -> None:
    negotiated = NegotiatedBatching(delay, size)
    assert parse_batching(format_batching(negotiated)) == negotiated


@given(OFFERS)
def test_settings_are_read_as_they_were_written(offer: BatchingOffer) -> None:
    assert offer_in_settings(settings_of(offer)) == offer._replace(min_size_limit=255)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(value: bytes) -> None:
    for parse in (parse_batch_capable, parse_batching):
        with suppress(NegotiationError):
            parse(value)


@given(OFFERS, OFFERS)
def test_both_sides_come_to_the_same_result_and_can_live_with_it(
    ours: BatchingOffer, theirs: BatchingOffer
) -> None:
    result = negotiate(ours, theirs)
    assert result is not None
    assert result == negotiate(theirs, ours)
    for side in (ours, theirs):
        assert result.max_delay_ms <= side.max_delay_ms
        assert result.min_size <= side.min_size_limit
        assert result.min_size >= min(side.min_size, ours.min_size_limit, theirs.min_size_limit)
    assert negotiate(ours, None) is negotiate(None, theirs) is None


@pytest.mark.parametrize(
    ("settings", "offer"),
    [
        ({}, None),
        ({SETTINGS_DYNAMIC_BATCHING: 0, SETTINGS_MIN_BATCH_SIZE: 9}, None),
        ({SETTINGS_MIN_BATCH_SIZE: 9}, None),
        ({SETTINGS_DYNAMIC_BATCHING: 1}, BatchingOffer(50, 3)),
        ({SETTINGS_DYNAMIC_BATCHING: 1, SETTINGS_MAX_BATCH_DELAY_MS: 0}, BatchingOffer(0, 3)),
        ({SETTINGS_DYNAMIC_BATCHING: 1, SETTINGS_MIN_BATCH_SIZE: 255}, BatchingOffer(50, 255)),
    ],
)
def test_settings_that_are_left_out_have_their_defaults(
    settings: dict[int, int], offer: BatchingOffer | None
) -> None:
    assert offer_in_settings(settings) == offer


@pytest.mark.parametrize(
    ("identifier", "value", "field"),
    [
        (SETTINGS_DYNAMIC_BATCHING, 2, "SETTINGS_DYNAMIC_BATCHING"),
        (SETTINGS_MAX_BATCH_DELAY_MS, 65_536, "SETTINGS_MAX_BATCH_DELAY_MS"),
        (SETTINGS_MAX_BATCH_DELAY_MS, 2**32 - 1, "SETTINGS_MAX_BATCH_DELAY_MS"),
        (SETTINGS_MIN_BATCH_SIZE, 0, "SETTINGS_MIN_BATCH_SIZE"),
        (SETTINGS_MIN_BATCH_SIZE, 256, "SETTINGS_MIN_BATCH_SIZE"),
    ],
)
def test_settings_out_of_their_range_are_refused_even_if_nothing_is_offered(
    identifier: int, value: int, field: str
) -> None:
    with pytest.raises(NegotiationError) as caught:
        offer_in_settings({identifier: value})
    assert caught.value.field == field


@pytest.mark.parametrize("parse", [parse_batch_capable, parse_batching])
def test_a_value_that_is_too_long_is_malformed_whatever_it_says(parse: Callable[[bytes], object]) -> None:
    for value in (b"1" + b";max-delay-ms=1" * 100, b"active" + b";" * 2_000, b"1; " * 20_000):
        with pytest.raises(NegotiationError, match=r"bytes; allowed: at most 1024") as caught:
            parse(value)
        assert caught.value.reason == "malformed"
    assert parse_batch_capable(b"1" + b";max-delay-ms=1" * 60).max_delay_ms == 1


def test_what_a_request_leaves_open_is_as_on_its_connection() -> None:
    connection = BatchingOffer(10, 8)
    assert BatchCapable(True).offer(connection) == connection
    assert BatchCapable(True, 5).offer(connection) == BatchingOffer(5, 8)
    assert BatchCapable(True, None, 2).offer(connection) == BatchingOffer(10, 2)
    assert not BatchCapable(True, early_hints=True).offers
    assert not BatchCapable(False, 5).offers
    assert BatchCapable(True, 5).offers
