"""Dynamic batching as client and server negotiate it: what each offers, and what follows (SPEC R2.3).

One meaning, three carriers: three settings in the first HTTP/2 SETTINGS frame, a header of an HTTP/1.1
request, and gRPC metadata of the same name. Batching is active only where both sides have offered it;
then a batch leaves as soon as it has `min_size` rows or its first request has waited `max_delay_ms`.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from mcp2026.api.names import BATCH_CAPABLE_HEADER, BATCHING_HEADER

SETTINGS_DYNAMIC_BATCHING: Final = 0xF0B0
SETTINGS_MAX_BATCH_DELAY_MS: Final = 0xF0B1
SETTINGS_MIN_BATCH_SIZE: Final = 0xF0B2
"""Ids of HTTP/2 settings, of the range for experiments (0xf000 to 0xffff)."""

MAX_DELAY_MS: Final = 65_535
MAX_MIN_SIZE: Final = 255
DEFAULT_DELAY_MS: Final = 50
DEFAULT_MIN_SIZE: Final = 3

_DELAY = "max-delay-ms"
_SIZE = "min-size"
_EARLY_HINTS = "early-hints"
_ACTIVE = "active"
_FORM = re.compile(r" *([^; ]*)((?:; *[^; ]*)*) *")
"""An item and its parameters; what they may be is looked at one by one, so that an error can name it."""
_MAX_VALUE_BYTES = 1_024
"""Of a header. What is longer is not read: it would take the server 20 ms for what a client sends in one."""
_RANGES = {_DELAY: (0, MAX_DELAY_MS), _SIZE: (1, MAX_MIN_SIZE), _EARLY_HINTS: (0, 1)}
_INTEGER = re.compile(r"-?[0-9]{1,15}")


Rule = Literal["pattern", "minimum", "maximum"]
Refusal = Literal["malformed", "out_of_range"]
"""Why an offer is refused, as metrics count it."""


class NegotiationError(ValueError):
    """An offer has a value that it may not have."""

    def __init__(self, field: str, problem: str, allowed: str, rule: Rule = "pattern") -> None:
        super().__init__(f"{field}: {problem}; allowed: {allowed}")
        self.field = field
        self.problem = problem
        self.allowed = allowed
        self.rule = rule
        """What JSON Schema calls the rule that is broken."""

    @property
    def reason(self) -> Refusal:
        """Why the offer is refused."""
        return "malformed" if self.rule == "pattern" else "out_of_range"


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


class BatchCapable(NamedTuple):
    """What a request says of itself in `x-mcp-batch-capable`. None: it leaves that open."""

    capable: bool
    max_delay_ms: int | None = None
    min_size: int | None = None
    early_hints: bool = False
    """The client can read a 103 over HTTP/1.1."""

    @property
    def offers(self) -> bool:
        """Whether the request says itself what it is ready for."""
        return self.capable and (self.max_delay_ms is not None or self.min_size is not None)

    def offer(self, otherwise: BatchingOffer) -> BatchingOffer:
        """Return what the request offers; what it leaves open is as in `otherwise`."""
        delay = otherwise.max_delay_ms if self.max_delay_ms is None else self.max_delay_ms
        size = otherwise.min_size if self.min_size is None else self.min_size
        return otherwise._replace(max_delay_ms=delay, min_size=size)


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


def format_batch_capable(said: BatchCapable) -> bytes:
    """Return the value of `x-mcp-batch-capable`: `1; max-delay-ms=20; min-size=4; early-hints=1`.

    Raises:
        NegotiationError: a value is out of its range.

    """
    parts = ["1" if said.capable else "0"]
    if said.max_delay_ms is not None:
        _check(_DELAY, said.max_delay_ms, 0, MAX_DELAY_MS)
        parts.append(f"{_DELAY}={said.max_delay_ms}")
    if said.min_size is not None:
        _check(_SIZE, said.min_size, 1, MAX_MIN_SIZE)
        parts.append(f"{_SIZE}={said.min_size}")
    if said.early_hints:
        parts.append(f"{_EARLY_HINTS}=1")
    return "; ".join(parts).encode()


def parse_batch_capable(value: bytes) -> BatchCapable:
    """Return what a request says in `x-mcp-batch-capable`, an item of RFC 8941 with parameters.

    Of a parameter that is repeated the last counts (RFC 8941 §4.2.3.2). One that is not known is refused: a
    misspelt limit must not be lost.

    Raises:
        NegotiationError: the value is malformed, or a number is out of its range; `field` names which.

    """
    item, parameters = _item(BATCH_CAPABLE_HEADER, value)
    numbers = _numbers(BATCH_CAPABLE_HEADER, parameters, (_DELAY, _SIZE, _EARLY_HINTS))
    if item not in ("0", "1"):
        raise NegotiationError(BATCH_CAPABLE_HEADER, f"{_shown(item)} is neither yes nor no", "0 or 1")
    return BatchCapable(
        item == "1", numbers.get(_DELAY), numbers.get(_SIZE), numbers.get(_EARLY_HINTS, 0) == 1
    )


def format_batching(negotiated: NegotiatedBatching) -> bytes:
    """Return the value of `mcp-batching`: `active; max-delay-ms=20; min-size=4`.

    Raises:
        NegotiationError: a value is out of its range.

    """
    _check(_DELAY, negotiated.max_delay_ms, 0, MAX_DELAY_MS)
    _check(_SIZE, negotiated.min_size, 1, MAX_MIN_SIZE)
    return b"active; max-delay-ms=%d; min-size=%d" % negotiated


def parse_batching(value: bytes) -> NegotiatedBatching:
    """Return what a response says in `mcp-batching`.

    Parameters that are not known are passed over: a newer server may say more.

    Raises:
        NegotiationError: it is malformed, lacks a value, or a number is out of its range.

    """
    item, parameters = _item(BATCHING_HEADER, value)
    if item != _ACTIVE:
        raise NegotiationError(BATCHING_HEADER, f"{_shown(item)} is no state", _ACTIVE)
    known = {name: text for name, text in parameters.items() if name in (_DELAY, _SIZE)}
    numbers = _numbers(BATCHING_HEADER, known, (_DELAY, _SIZE))
    for name in (_DELAY, _SIZE):
        if name not in numbers:
            raise NegotiationError(f"{BATCHING_HEADER}.{name}", "is missing", "a whole number")
    return NegotiatedBatching(numbers[_DELAY], numbers[_SIZE])


def _item(header: str, value: bytes) -> tuple[str, dict[str, str]]:
    """Return the bare item and the parameters of `value`, all as text."""
    if len(value) > _MAX_VALUE_BYTES:
        raise NegotiationError(header, f"has {len(value)} bytes", f"at most {_MAX_VALUE_BYTES}")
    text = value.decode("latin-1")
    form = _FORM.fullmatch(text)
    if form is None or not form[1]:
        raise NegotiationError(header, f"{_shown(text)} is malformed", "an item with parameters (RFC 8941)")
    parameters: dict[str, str] = {}
    for part in form[2].split(";")[1:]:
        name, _, number = part.strip(" ").partition("=")
        parameters[name] = number
    return form[1], parameters


def _numbers(header: str, parameters: Mapping[str, str], known: tuple[str, ...]) -> dict[str, int]:
    """Return the parameters as numbers within their ranges."""
    numbers: dict[str, int] = {}
    for name, text in parameters.items():
        if name not in known:
            raise NegotiationError(header, f"{_shown(name)} is no parameter", ", ".join(known))
        field = f"{header}.{name}"
        low, high = _RANGES[name]
        if _INTEGER.fullmatch(text) is None:
            raise NegotiationError(field, f"{_shown(text)} is no whole number", f"{low} to {high}")
        numbers[name] = int(text)
        _check(field, numbers[name], low, high)
    return numbers


def _shown(text: str) -> str:
    return repr(text[:40])


def _check(field: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        rule: Rule = "minimum" if value < low else "maximum"
        raise NegotiationError(field, f"{value} is out of range", f"{low} to {high}", rule)
