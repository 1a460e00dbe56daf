"""What was counted of one version, and the numbers that a canary is judged by."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from mcp2026.api.canary import Measured

_P95 = 0.95
_MS = 1e3


@dataclass(frozen=True, slots=True)
class Counts:
    """Requests of one version that say something about it: answered, or failed by the server's fault."""

    requests: int = 0
    errors: int = 0
    """Of `requests`, those that failed."""
    answered: Mapping[float, int] = field(default_factory=dict)
    """By upper bound in s of their bucket (the last one is infinite), the answered requests in it alone."""

    def __add__(self, other: "Counts") -> "Counts":
        bounds = chain(self.answered, other.answered)
        return Counts(
            self.requests + other.requests,
            self.errors + other.errors,
            {bound: self.answered.get(bound, 0) + other.answered.get(bound, 0) for bound in bounds},
        )

    def since(self, earlier: "Counts") -> "Counts":
        """Return what was counted after `earlier`, by the same counters.

        A counter that fell began again from zero, and all others with it.
        """
        if self._fell_below(earlier):
            return self
        return Counts(
            self.requests - earlier.requests,
            self.errors - earlier.errors,
            {bound: count - earlier.answered.get(bound, 0) for bound, count in self.answered.items()},
        )

    def _fell_below(self, earlier: "Counts") -> bool:
        return (
            self.requests < earlier.requests
            or self.errors < earlier.errors
            or any(self.answered.get(bound, 0) < count for bound, count in earlier.answered.items())
        )


def measured(counts: Counts) -> Measured:
    """Return the numbers that a rule compares."""
    return Measured(counts.requests, counts.errors, p95_ms(counts.answered))


def total(counts: Iterable[Counts]) -> Counts:
    """Return the sum."""
    return sum(counts, Counts())


def p95_ms(answered: Mapping[float, int]) -> float | None:
    """Return the time in ms within which 95 percent were answered; None where nothing was.

    As far as the buckets tell: within the bucket that holds it, requests are taken to lie evenly, so it is at
    most one bucket wrong. Above the last finite bound it is that bound.

    Args:
        answered: by upper bound in s of a bucket, the requests in it alone.

    """
    wanted = _P95 * sum(answered.values())
    if not wanted:
        return None
    below, lower = 0, 0.0
    for bound in sorted(answered):
        inside = answered[bound]
        if below + inside >= wanted:
            if bound == float("inf"):
                break
            return (lower + (bound - lower) * (wanted - below) / inside) * _MS
        below, lower = below + inside, bound
    return lower * _MS
