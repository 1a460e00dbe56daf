"""From one status to the next: the phase moves by explicit events alone, and what changed is told once."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from mcp2026.api.conditions import Condition, ConditionType, Reason, merge_condition
from mcp2026.api.errors import TransitionRefusedError
from mcp2026.api.inference_model import InferenceModelStatus, Transition
from mcp2026.api.lifecycle import Event, transition
from mcp2026.operator.actions import EmitEvent
from mcp2026.operator.canary.deciding import canary_events
from mcp2026.operator.manifests import Manifest

TRANSITIONS_KEPT = 16
"""As many as the CRD's maxItems."""
_NO_FAILURES = (Reason.COMPLETED, Reason.SERVERS_ENDED)
_TOLD_OF_READY = (Reason.WAITING_FOR_DEPENDENCIES, Reason.STOPPING)


def timestamp(now: datetime) -> str:
    """Return `now` as RFC 3339 in UTC, to the second, as Kubernetes writes times."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def advance(status: InferenceModelStatus, event: Event, now: datetime) -> InferenceModelStatus:
    """Return `status` after `event`; where the life cycle refuses it, unchanged."""
    try:
        phase = transition(status.phase, event)
    except TransitionRefusedError:
        return status
    step = Transition(event=type(event).__name__, from_=status.phase, to=phase, time=timestamp(now))
    return msgspec.structs.replace(
        status, phase=phase, transitions=(*status.transitions, step)[-TRANSITIONS_KEPT:]
    )


def with_conditions(
    status: InferenceModelStatus, new: tuple[Condition, ...], now: datetime
) -> InferenceModelStatus:
    """Return `status` with `new` merged in; a condition whose status stays keeps its time."""
    merged = status.conditions
    for condition in new:
        timed = msgspec.structs.replace(condition, last_transition_time=timestamp(now))
        merged = merge_condition(merged, timed)
    return msgspec.structs.replace(status, conditions=merged)


def events_between(old: InferenceModelStatus, new: InferenceModelStatus) -> list[EmitEvent]:
    """Return what a user is told about the way from `old` to `new`."""
    events = [
        EmitEvent("Normal", step.event, f"{step.from_} to {step.to}")
        for step in new.transitions
        if step not in old.transitions
    ]
    before = {condition.type: condition for condition in old.conditions}
    for condition in new.conditions:
        known = before.get(condition.type)
        if known is not None and (known.status, known.reason) == (condition.status, condition.reason):
            continue
        if event := _told(condition):
            events.append(event)
    return [*events, *canary_events(old.canary, new.canary)]


def _told(condition: Condition) -> EmitEvent | None:
    blocked = condition.type == ConditionType.ROLLOUT_BLOCKED and condition.status == "True"
    if blocked or condition.reason == Reason.INVALID_SPEC:
        return EmitEvent("Warning", condition.reason, condition.message)
    ended = condition.type == ConditionType.RUN_ENDED and condition.status == "True"
    failed = ended and condition.reason not in _NO_FAILURES
    if failed or condition.reason == Reason.ARCHIVE_FAILED:
        return EmitEvent("Warning", condition.reason, condition.message)
    good_news = condition.type in (
        ConditionType.READY,
        ConditionType.TRAFFIC_SETTLED,
        ConditionType.DATA_SYNCED,
    )
    waiting = condition.type == ConditionType.READY and condition.reason in _TOLD_OF_READY
    stopped = ended and condition.reason == Reason.SERVERS_ENDED
    if waiting or stopped or (good_news and condition.status == "True"):
        return EmitEvent("Normal", condition.reason, condition.message)
    return None


def status_document(status: InferenceModelStatus) -> dict[str, Any]:
    """Return `status` in the JSON shape of the resource, every field present, lists as lists.

    None is a field that a merge patch removes.
    """
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(status))
    return document


def says(resource: Manifest, status: InferenceModelStatus) -> bool:
    """Say whether `status` is what stands in the resource."""
    return _without_none(resource.get("status") or {}) == _without_none(status_document(status))


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
