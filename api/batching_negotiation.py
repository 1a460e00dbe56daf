"""Dynamic batching as client and server negotiate it: what each offers, and what follows (SPEC R2.3).

One meaning, three carriers: three settings in the first HTTP/2 SETTINGS frame, a header of an HTTP/1.1
request, and gRPC metadata of the same name. Batching is active only where both sides have offered it;
then a batch leaves as soon as it has `min_size` rows or its first request has waited `max_delay_ms`.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

SETTINGS_DYNAMIC_BATCHING: Final = 0xF0B0
SETTINGS_MAX_BATCH_DELAY_MS: Final = 0xF0B1
SETTINGS_MIN_BATCH_SIZE: Final = 0xF0B2
"""Ids of HTTP/2 settings, of the range for experiments (0xf000 to 0xffff)."""

MAX_DELAY_MS: Final = 65_535
MAX_MIN_SIZE: Final = 255
DEFAULT_DELAY_MS: Final = 50
DEFAULT_MIN_SIZE: Final = 3


class NegotiationError(ValueError):
    """An offer has a value that it may not have."""

    def __init__(self, field: str, problem: str, allowed: str) -> None:
        super().__init__(f"{field}: {problem}; allowed: {allowed}")
        self.field = field
        self.problem = problem
        self.allowed = allowed


class BatchingOffer(NamedTuple):
    """What one side is ready for."""

    max_delay_ms: int = DEFAULT_DELAY_MS
    """Longest that a request may wait for company, 0 to 65,535."""
    min_size: int = DEFAULT_MIN_SIZE
    """Rows from which a batch need not wait, 1 to 255."""
    min_size_limit: int = MAX_MIN_SIZE
    """Largest `min_size` that this side goes along with. Not on the wire: each side keeps to its own."""


class NegotiatedBatching(NamedTuple):
    """What holds for the requests of one connection, or one request."""

    max_delay_ms: int
    min_size: int


def settings_of(offer: BatchingOffer) -> dict[int, int]:
    """Return `offer` as HTTP/2 settings, for the first SETTINGS frame.

    Raises:
        NegotiationError: a value does not fit.

    """
    check_offer(offer)
    return {
        SETTINGS_DYNAMIC_BATCHING: 1,
        SETTINGS_MAX_BATCH_DELAY_MS: offer.max_delay_ms,
        SETTINGS_MIN_BATCH_SIZE: offer.min_size,
    }


def offer_in_settings(settings: Mapping[int, int]) -> BatchingOffer | None:
    """Return what the other side offers by `settings`, all that it has sent so far; None: nothing.

    Values that it left out have their defaults.

    Raises:
        NegotiationError: a value is out of its range; HTTP/2 calls that a PROTOCOL_ERROR.

    """
    capable = settings.get(SETTINGS_DYNAMIC_BATCHING, 0)
    _check("SETTINGS_DYNAMIC_BATCHING", capable, 0, 1)
    delay = settings.get(SETTINGS_MAX_BATCH_DELAY_MS, DEFAULT_DELAY_MS)
    _check("SETTINGS_MAX_BATCH_DELAY_MS", delay, 0, MAX_DELAY_MS)
    size = settings.get(SETTINGS_MIN_BATCH_SIZE, DEFAULT_MIN_SIZE)
    _check("SETTINGS_MIN_BATCH_SIZE", size, 1, MAX_MIN_SIZE)
    return BatchingOffer(delay, size) if capable else None


def check_offer(offer: BatchingOffer) -> None:
    """Raise unless each value of `offer` is in its range.

    Raises:
        NegotiationError: one is not; the field is named.

    """
    _check("max_delay_ms", offer.max_delay_ms, 0, MAX_DELAY_MS)
    _check("min_size", offer.min_size, 1, MAX_MIN_SIZE)
    _check("min_size_limit", offer.min_size_limit, 1, MAX_MIN_SIZE)


def negotiate(ours: BatchingOffer | None, theirs: BatchingOffer | None) -> NegotiatedBatching | None:
    """Return what holds between two sides: the smaller delay and the larger size, as far as both go along.

    None: one side offers nothing, each request is on its own.
    """
    if ours is None or theirs is None:
        return None
    size = max(ours.min_size, theirs.min_size)
    return NegotiatedBatching(
        min(ours.max_delay_ms, theirs.max_delay_ms), min(size, ours.min_size_limit, theirs.min_size_limit)
    )


def _check(field: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise NegotiationError(field, f"{value} is out of range", f"{low} to {high}")
