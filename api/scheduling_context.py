"""What is carried with a request from its caller to the log line: its trace, its QoS class, its SLA.

Contracts: SPEC R2.5; Trace Context (https://www.w3.org/TR/trace-context/) for `traceparent` and `tracestate`;
https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/ for the QoS class. Nothing here fails on what a
caller sends: a header that cannot be read counts as none.
"""

import random
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Final

import msgspec

from mcp2026.api.quantities import parse_quantity

PRIORITY_RANGE: Final = (1, 100)
"""Of an SLA; 1 is served first. A model with fewer levels takes its last one."""
WEIGHT_RANGE: Final = (1, 1_000)
"""Of an SLA: the tenant's share of execution time, relative to those of others."""

_SAMPLED: Final = 0x01
_RANDOM: Final = 0x02
_TRACEPARENT: Final = re.compile(
    rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL
)
_NO_TRACE: Final = b"0" * 32
_NO_SPAN: Final = b"0" * 16

_MAX_STATE: Final = 512
_MAX_MEMBERS: Final = 32
_LONG_MEMBER: Final = 128
_MAX_STATE_READ: Final = 32 * 1_024
"""Bytes; 32 members of the longest keys and values have half of that. What is longer is not read."""
_STATE_KEY: Final = re.compile(
    r"[a-z0-9][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13}"
)
_STATE_VALUE: Final = re.compile(r"[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]")


class QosClass(StrEnum):
    """The classes of Kubernetes, the best first."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class SlaRefusal(StrEnum):
    """Why a token is not taken: in errors, logs and metrics."""

    MISSING = "missing"
    MALFORMED = "malformed"
    UNSUPPORTED_ALGORITHM = "unsupported_algorithm"
    UNKNOWN_KEY = "unknown_key"
    BAD_SIGNATURE = "bad_signature"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    TOO_LONG_LIVED = "too_long_lived"
    WRONG_AUDIENCE = "wrong_audience"
    WRONG_POD = "wrong_pod"
    BAD_CLAIMS = "bad_claims"


class SlaClaims(msgspec.Struct, frozen=True):
    """What a verified token says about its bearer."""

    qos_class: QosClass
    priority: int
    """1 to 100, 1 is served first."""
    weight: int
    """1 to 1000, relative to the weights of other tenants."""
    tenant: str
    """Who is charged; empty: the default tenant."""
    profile: str
    """The name of the profile that the claims come from."""


class TraceContext(msgspec.Struct, frozen=True):
    """The place of one request in a trace. Ids are in lower-case hex."""

    trace_id: str
    """32 digits."""
    span_id: str
    """16 digits: of this server's part."""
    parent_id: str = ""
    """16 digits: of the caller's span; empty where the trace begins here."""
    sampled: bool = False
    random: bool = False
    """Whoever began the trace says that its id is random (flag 02 of level 2)."""
    tracestate: str = ""
    """What other tracing systems hung on to the trace; travels with its spans."""

    @property
    def traceparent(self) -> str:
        """The header that names this server's part."""
        return f"00-{self.trace_id}-{self.span_id}-{self.sampled | self.random << 1:02x}"


class SchedulingContext(msgspec.Struct, frozen=True):
    """What is known of one request besides what it asks."""

    trace: TraceContext
    qos_class: QosClass | None = None
    claims: SlaClaims | None = None
    """Of a token that verified."""
    refusal: SlaRefusal | None = None
    """Why its token is not taken: it is served by the last priority for the default tenant, if at all."""


RandomBits = Callable[[int], int]
"""Returns so many random bits."""


def new_id(digits: int, bits: RandomBits = random.getrandbits) -> str:
    """Return a random id of `digits` hex digits that is not zero."""
    return f"{bits(4 * digits) or 1:0{digits}x}"


def new_trace(*, sampled: bool = False, bits: RandomBits = random.getrandbits) -> TraceContext:
    """Return the beginning of a trace."""
    return TraceContext(new_id(32, bits), new_id(16, bits), sampled=sampled)


def continued_trace(
    traceparent: bytes, tracestate: bytes = b"", bits: RandomBits = random.getrandbits
) -> TraceContext | None:
    """Return this server's part of the trace that a caller names; None if the header is not one.

    Of a later version of the header, what version 00 has is read. Flags that are not known are dropped.
    """
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None:
        return None
    version, trace_id, parent_id, flags, rest = match.groups()
    if version == b"ff" or trace_id == _NO_TRACE or parent_id == _NO_SPAN:
        return None
    if version == b"00" and rest is not None:
        return None
    known = int(flags, 16)
    return TraceContext(
        trace_id.decode(),
        new_id(16, bits),
        parent_id.decode(),
        bool(known & _SAMPLED),
        bool(known & _RANDOM),
        accepted_tracestate(tracestate) if tracestate else "",
    )


def accepted_tracestate(header: bytes) -> str:
    """Return `tracestate` as it is passed on: at most 512 characters; empty if it is not one.

    Of a longer one, members over 128 characters go first, then the last ones, as the specification says.
    """
    if len(header) > _MAX_STATE_READ:
        return ""
    try:
        members = [member.strip(" \t") for member in header.decode("ascii").split(",")]
    except UnicodeDecodeError:
        return ""
    members = [member for member in members if member]
    keys = set()
    for member in members:
        key, equals, value = member.partition("=")
        if not (equals and _STATE_KEY.fullmatch(key) and _STATE_VALUE.fullmatch(value)):
            return ""
        keys.add(key)
    if len(members) > _MAX_MEMBERS or len(keys) != len(members):
        return ""
    if len(",".join(members)) > _MAX_STATE:
        members = [member for member in members if len(member) <= _LONG_MEMBER]
    while len(",".join(members)) > _MAX_STATE:
        members.pop()
    return ",".join(members)


def sampled_by_ratio(trace_id: str, ratio: float) -> bool:
    """Return whether a new trace is recorded: the same answer for one id everywhere, for `ratio` of all."""
    return int(trace_id[16:], 16) < round(ratio * (1 << 64))


Quantities = Mapping[str, str | int]
"""Kubernetes quantities by the names of resources, as YAML has them: `2` or `500m`."""


def pod_qos_class(containers: Iterable[tuple[Quantities, Quantities]]) -> QosClass:
    """Return the class of a pod from the requests and limits of all its containers, also initial ones.

    Guaranteed: each container limits CPU and memory, and the sums of requests equal those of limits.
    BestEffort: none asks for or limits either. Burstable: all others. As in Kubernetes, a limit stands for
    a request that is missing, and a quantity of 0, or one that is none, counts as missing.
    """
    requests: dict[str, Decimal] = {}
    limits: dict[str, Decimal] = {}
    guaranteed = True
    for container_requests, container_limits in containers:
        limited = _positive(container_limits)
        _add(limits, limited)
        _add(requests, limited | _positive(container_requests))
        guaranteed = guaranteed and len(limited) == len(_CLASSIFYING)
    if not requests and not limits:
        return QosClass.BEST_EFFORT
    return QosClass.GUARANTEED if guaranteed and requests == limits else QosClass.BURSTABLE


_CLASSIFYING: Final = ("cpu", "memory")


def _positive(quantities: Quantities) -> dict[str, Decimal]:
    parsed = {name: parse_quantity(str(quantities[name])) for name in _CLASSIFYING if name in quantities}
    return {name: value for name, value in parsed.items() if value}


def _add(sums: dict[str, Decimal], more: Mapping[str, Decimal]) -> None:
    for name, value in more.items():
        sums[name] = sums.get(name, Decimal(0)) + value
