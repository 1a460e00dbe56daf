"""A canary in steps: which weights hold now, and what follows from what was measured. Pure.

The operator never writes the spec. The weights that hold are a function of spec and status
(`effective_weights`), and the status moves by `next_status`.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated

import msgspec

from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.shares import shares

REFUSED_SECONDS = 30
"""A revision that a pod refuses for so long is given up: the pod has tried it five times by then."""
_LONGEST = 1024
"""Of a message, as the CRD has it."""


class RollbackRule(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """When a canary is given up, compared with the other versions in the same pods and the same time."""

    error_rate_percent: Annotated[float, msgspec.Meta(ge=0, le=100)] = 1.0
    """Percentage points by which its share of failed requests may lie above theirs."""
    latency_ratio: Annotated[float, msgspec.Meta(ge=1, le=100)] = 1.5
    """Times their p95 that its p95 may be."""
    minimum_requests: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 100
    """Of the canary in one step, before anything is judged."""


class Canary(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A plan by which one version takes over the traffic."""

    version: Annotated[str, msgspec.Meta(min_length=1, max_length=63)]
    steps: Annotated[
        tuple[Annotated[int, msgspec.Meta(ge=1, le=100)], ...], msgspec.Meta(min_length=1, max_length=16)
    ] = (5, 25, 50, 100)
    """Its share in percent, growing."""
    step_seconds: Annotated[int, msgspec.Meta(ge=1, le=604_800)] = 60
    """How long each step lasts at least, once the traffic has settled."""
    settle_seconds: Annotated[int, msgspec.Meta(ge=30, le=604_800)] = 600
    """How long the pods may take to serve a step's weights before the canary is given up."""
    rollback: RollbackRule = RollbackRule()


class CanaryOutcome(StrEnum):
    """How far a canary is."""

    PROGRESSING = "Progressing"
    PROMOTED = "Promoted"
    ROLLED_BACK = "RolledBack"


class CanaryStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Where a canary stands; part of the model's status."""

    plan: Canary
    """The plan that this is about: another plan in the spec begins anew."""
    outcome: CanaryOutcome = CanaryOutcome.PROGRESSING
    step: int = 0
    """Index in `plan.steps`."""
    since: str = ""
    """When the traffic of this step had settled, RFC 3339 in UTC; empty before."""
    message: str = ""
    """What it waits for, or why it was rolled back."""
    unsettled_since: str = ""
    """Since when the pods that should serve the step's weights do not; RFC 3339 in UTC; empty: they do."""
    withdrawn: bool = False
    """Rolled back because pods could not serve the version: it is not loaded any more."""

    @property
    def weight(self) -> int:
        """Percent that the canary gets now."""
        return 0 if self.outcome is CanaryOutcome.ROLLED_BACK else self.plan.steps[self.step]


class Hindrance(msgspec.Struct, frozen=True):
    """Why the weights of a step are not live on all pods."""

    message: str
    refused: bool = False
    """A pod says that it cannot serve the revision."""
    counts: bool = True
    """The canary may be the cause. False: only the cluster can be."""


class Measured(msgspec.Struct, frozen=True):
    """What was seen of some versions since the step began."""

    requests: int = 0
    errors: int = 0
    """Of `requests`, those that failed for the server's reasons."""
    latency_p95_ms: float | None = None
    """None where nothing was answered."""

    @property
    def error_percent(self) -> float:
        """Share of failed requests."""
        return 100 * self.errors / self.requests if self.requests else 0.0


def check_canary(canary: Canary, version_ids: tuple[str, ...]) -> None:
    """Check the rules that span several fields.

    Raises:
        InvalidResourceError: the version is none of the model's or its only one, or the steps do not grow.

    """
    if canary.version not in version_ids:
        raise InvalidResourceError(
            "spec.canary.version",
            f"there is no version {canary.version!r}",
            f"one of {', '.join(version_ids)}",
        )
    if len(version_ids) < 2:
        raise InvalidResourceError("spec.canary", "the model has no other version", "two versions or more")
    if list(canary.steps) != sorted(set(canary.steps)):
        raise InvalidResourceError(
            "spec.canary.steps", f"{list(canary.steps)} does not grow", "growing percentages, 1 to 100"
        )


def status_of(canary: Canary | None, status: CanaryStatus | None) -> CanaryStatus | None:
    """Return the status that belongs to `canary`: a new plan begins with its first step."""
    if canary is None:
        return None
    if status is None or status.plan != canary:
        return CanaryStatus(canary)
    return status


def effective_weights(weights: Mapping[str, int], status: CanaryStatus | None) -> dict[str, int]:
    """Return the percent that each version gets, with sum 100.

    Args:
        weights: what the spec says.
        status: of the canary, None without one. Its version has the weight of its step, and the others keep
            their proportions; where those have no weight they get equal parts.

    """
    if status is None:
        return dict(weights)
    others = [version_id for version_id in weights if version_id != status.plan.version]
    asked = [weights[version_id] for version_id in others]
    parts = shares(asked if any(asked) else [1] * len(others), 100 - status.weight)
    return {**dict(zip(others, parts, strict=True)), status.plan.version: status.weight}


def next_status(
    status: CanaryStatus,
    canary: Measured,
    others: Measured,
    now: datetime,
    hindrance: Hindrance | None,
) -> CanaryStatus:
    """Return where the canary stands after a look at the measurements.

    Args:
        status: where it stood.
        canary: what was measured of the canary since `status.since`.
        others: the same of all other versions together.
        now: with a time zone.
        hindrance: why the weights of the step are not live on every pod; None: they are.

    """
    if status.outcome is not CanaryOutcome.PROGRESSING:
        return status
    status = _clocked(status, hindrance, now)
    if hindrance is not None and (overdue := _overdue(status, hindrance, now)):
        return msgspec.structs.replace(
            status, outcome=CanaryOutcome.ROLLED_BACK, message=overdue, unsettled_since="", withdrawn=True
        )
    if not status.since:
        if hindrance is not None:
            return _saying(status, "the weights are not live on every pod yet")
        return _saying(msgspec.structs.replace(status, since=_text(now)), _waiting(status, canary))
    rule = status.plan.rollback
    if canary.requests < rule.minimum_requests:
        return _saying(status, _waiting(status, canary))
    if broken := _broken(rule, canary, others):
        return msgspec.structs.replace(status, outcome=CanaryOutcome.ROLLED_BACK, message=broken)
    until = datetime.fromisoformat(status.since) + timedelta(seconds=status.plan.step_seconds)
    if now < until:
        return _saying(status, f"{status.weight} percent until {_text(until)} at least")
    if status.unsettled_since:
        return _saying(status, "the weights are not live on every pod any more")
    if status.step + 1 < len(status.plan.steps):
        return CanaryStatus(status.plan, step=status.step + 1)
    return msgspec.structs.replace(
        status, outcome=CanaryOutcome.PROMOTED, message=f"{status.weight} percent, as planned"
    )


def seconds_until_given_up(
    status: CanaryStatus | None, hindrance: Hindrance | None, now: datetime
) -> float | None:
    """Return after how many seconds `next_status` would roll back if all stays as it is, None if never."""
    if status is None or hindrance is None or not status.unsettled_since:
        return None
    return max((_deadline(status, hindrance) - now).total_seconds(), 0.0)


def _clocked(status: CanaryStatus, hindrance: Hindrance | None, now: datetime) -> CanaryStatus:
    if hindrance is None or not hindrance.counts:
        return msgspec.structs.replace(status, unsettled_since="")
    return msgspec.structs.replace(status, unsettled_since=status.unsettled_since or _text(now))


def _overdue(status: CanaryStatus, hindrance: Hindrance, now: datetime) -> str | None:
    """Return why the canary is given up though nothing was measured, if its time is over."""
    if not status.unsettled_since or now < _deadline(status, hindrance):
        return None
    seconds = REFUSED_SECONDS if hindrance.refused else status.plan.settle_seconds
    return f"{status.weight} percent were not live on every pod within {seconds} s: {hindrance.message}"[
        :_LONGEST
    ]


def _deadline(status: CanaryStatus, hindrance: Hindrance) -> datetime:
    seconds = REFUSED_SECONDS if hindrance.refused else status.plan.settle_seconds
    return datetime.fromisoformat(status.unsettled_since) + timedelta(seconds=seconds)


def _broken(rule: RollbackRule, canary: Measured, others: Measured) -> str | None:
    """Return which rule does not hold, with what was seen."""
    most = others.error_percent + rule.error_rate_percent
    if canary.error_percent > most:
        return (
            f"{canary.error_percent:.2f} percent of {canary.requests} requests failed;"
            f" allowed: {most:.2f} ({others.error_percent:.2f} of the others and"
            f" {rule.error_rate_percent:g} more)"
        )
    theirs, its = others.latency_p95_ms, canary.latency_p95_ms
    if theirs is not None and its is not None and others.requests >= rule.minimum_requests:
        longest = theirs * rule.latency_ratio
        if its > longest:
            return (
                f"p95 of {canary.requests} requests is {its:.1f} ms; allowed: {longest:.1f} ms"
                f" ({rule.latency_ratio:g} times {theirs:.1f} ms of the others)"
            )
    return None


def _waiting(status: CanaryStatus, canary: Measured) -> str:
    """Return what is missing, in tenths: a message is written to the status whenever it changes."""
    least = status.plan.rollback.minimum_requests
    seen = canary.requests * 10 // least * 10
    return f"waits for {least} requests to judge {status.weight} percent by; {seen} percent of them were seen"


def _saying(status: CanaryStatus, message: str) -> CanaryStatus:
    return msgspec.structs.replace(status, message=message)


def _text(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
