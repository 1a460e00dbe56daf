"""Where a canary stands next, and what the user is told on the way."""

from datetime import datetime
from enum import StrEnum

import msgspec

from mcp2026.api.canary import CanaryOutcome, CanaryStatus, Hindrance, next_status
from mcp2026.operator.actions import EmitEvent
from mcp2026.operator.canary.comparison import Comparison

_PODS_NAMED = 3


class CanaryEvent(StrEnum):
    """What a user is told, as the reason of an Event."""

    STEP = "CanaryStep"
    PROMOTED = "CanaryPromoted"
    ROLLED_BACK = "CanaryRolledBack"


def is_measured(canary: CanaryStatus | None) -> bool:
    """Say whether a step is in progress, with its weights live, so that requests are to be counted."""
    return canary is not None and canary.outcome is CanaryOutcome.PROGRESSING and bool(canary.since)


def next_canary(
    canary: CanaryStatus | None, comparison: Comparison, now: datetime, hindrance: Hindrance | None
) -> CanaryStatus | None:
    """Return where the canary stands after a look at `comparison`, None where there is none.

    Args:
        canary: where it stands, by the present spec.
        comparison: what was measured in its step.
        now: with a time zone.
        hindrance: why the weights of its step are not live on every pod; None: they are.

    """
    if canary is None:
        return None
    following = next_status(canary, comparison.canary, comparison.others, now, hindrance)
    if following.outcome is CanaryOutcome.PROGRESSING and following.since and comparison.silent:
        return msgspec.structs.replace(
            following, message=f"{following.message}; not measured: {_named(comparison.silent)}"
        )
    return following


def _named(pods: tuple[str, ...]) -> str:
    more = len(pods) - _PODS_NAMED
    text = f"pod {', '.join(pods[:_PODS_NAMED])}"
    return f"{text} and {more} more" if more > 0 else text


def canary_events(old: CanaryStatus | None, new: CanaryStatus | None) -> list[EmitEvent]:
    """Return what is new in `new`."""
    if new is None:
        return []
    version = f"version {new.plan.version}"
    if old is None or (old.plan, old.step) != (new.plan, new.step):
        place = f"step {new.step + 1} of {len(new.plan.steps)}"
        return [EmitEvent("Normal", CanaryEvent.STEP, f"{version} gets {new.weight} percent ({place})")]
    if old.outcome is new.outcome:
        return []
    if new.outcome is CanaryOutcome.PROMOTED:
        return [EmitEvent("Normal", CanaryEvent.PROMOTED, f"{version} has {new.message}")]
    return [EmitEvent("Warning", CanaryEvent.ROLLED_BACK, f"{version} gets nothing: {new.message}")]
