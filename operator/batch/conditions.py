"""Where a run stands: its conditions, each of which answers one question.

What ended stays ended: RunEnded and DataSynced are kept once they are True, whatever becomes of Job and pods.
"""

from dataclasses import dataclass

import msgspec

from mcp2026.api.conditions import Condition, ConditionType, Reason
from mcp2026.api.inference_model import InferenceModelStatus
from mcp2026.api.lifecycle import Phase
from mcp2026.operator.batch.ending import Ending
from mcp2026.operator.manifests import Manifest
from mcp2026.operator.observed import at, is_scheduled
from mcp2026.operator.situation import Blocked, Situation

_ENDED = (Phase.SUCCEEDED, Phase.FAILED, Phase.COMPLETED)


@dataclass(frozen=True, slots=True)
class RunStanding:
    """What the conditions are made from."""

    situation: Situation
    status: InferenceModelStatus
    """With the phase that holds now, and the conditions as they were."""
    pods: tuple[Manifest, ...]
    """Of the present Job, those that have not ended."""
    ending: Ending | None
    attempt: Blocked | None = None
    """What keeps the present attempt from starting."""

    @property
    def ended(self) -> bool:
        """Whether the life cycle says that the run has ended."""
        return self.status.phase in _ENDED

    def hindrance(self) -> Blocked | None:
        """Return what keeps the run from going on, the nearest to its cause first."""
        if self.ended:
            return None
        return self.situation.refused() or self.situation.not_started_because() or self.attempt


def conditions(standing: RunStanding) -> tuple[Condition, ...]:
    """Return all conditions, without times."""
    ended = _run_ended(standing)
    return (
        _ready(standing, ended),
        _resources_allocated(standing, ended),
        _rollout_blocked(standing),
        ended,
        _data_synced(standing),
    )


def _ready(standing: RunStanding, ended: Condition) -> Condition:
    kind = ConditionType.READY
    if standing.ended:
        there = standing.status.phase is not Phase.FAILED
        return _condition(standing, kind, there, ended.reason, ended.message)
    if hindrance := standing.hindrance():
        return _condition(standing, kind, False, hindrance.reason, hindrance.message)
    if standing.status.phase is Phase.PENDING:
        return _waiting_for_a_node(standing, kind)
    return _condition(standing, kind, False, Reason.RUN_IN_PROGRESS, "the data set is being run")


def _resources_allocated(standing: RunStanding, ended: Condition) -> Condition:
    kind = ConditionType.RESOURCES_ALLOCATED
    if standing.ended:
        return _condition(standing, kind, False, ended.reason, "the run has ended")
    bound = next((pod for pod in standing.pods if is_scheduled(pod)), None)
    if bound is not None:
        name, node = bound["metadata"]["name"], at(bound, "spec", "nodeName") or "a node"
        return _condition(standing, kind, True, Reason.ALL_PODS_SCHEDULED, f"pod {name} is bound to {node}")
    if hindrance := standing.hindrance():
        return _condition(standing, kind, False, hindrance.reason, hindrance.message)
    return _waiting_for_a_node(standing, kind)


def _rollout_blocked(standing: RunStanding) -> Condition:
    kind = ConditionType.ROLLOUT_BLOCKED
    hindrance = None if standing.ended else standing.situation.refused() or standing.attempt
    if hindrance is not None:
        return _condition(standing, kind, True, hindrance.reason, hindrance.message)
    return _condition(standing, kind, False, Reason.PROGRESSING, "")


def _run_ended(standing: RunStanding) -> Condition:
    kind = ConditionType.RUN_ENDED
    known = _known(standing, kind)
    if known is not None and known.status == "True":
        return known
    if not standing.ended:
        return _condition(standing, kind, False, Reason.RUN_IN_PROGRESS, "")
    if standing.ending is not None:
        return _condition(standing, kind, True, standing.ending.reason, standing.ending.message)
    # Somebody took the condition out of the status, and its evidence is gone: the phase still says this much.
    how = Reason.POD_FAILED if standing.status.phase is Phase.FAILED else Reason.COMPLETED
    return _condition(standing, kind, True, how, "")


def _data_synced(standing: RunStanding) -> Condition:
    kind = ConditionType.DATA_SYNCED
    known = _known(standing, kind)
    if known is not None and (known.status == "True" or (standing.ended and standing.ending is None)):
        return known
    batch, ending = standing.situation.model.spec.batch, standing.ending
    place = batch.archive_place if batch else ""
    of_this_run = ending is not None and (ending.validated or standing.status.phase is Phase.FAILED)
    if standing.ended and ending is not None and ending.archive_sha256 is not None and of_this_run:
        message = f"the log is {place}, sha256 {ending.archive_sha256}"
        return _condition(standing, kind, True, Reason.ARCHIVED, message)
    if standing.ended and ending is not None:
        why = ending.archive_error or ("the run ended before it could" if of_this_run else ending.message)
        message = f"the log is not at {place}: {why}"
        return _condition(standing, kind, False, Reason.ARCHIVE_FAILED, message)
    return _condition(standing, kind, False, Reason.WAITING_FOR_ARCHIVE, "")


def _waiting_for_a_node(standing: RunStanding, kind: ConditionType) -> Condition:
    message = "the pod is not bound to a node yet" if standing.pods else "the Job has made no pod yet"
    return _condition(standing, kind, False, Reason.WAITING_FOR_SCHEDULING, message)


def _known(standing: RunStanding, kind: ConditionType) -> Condition | None:
    for known in standing.status.conditions:
        if known.type == kind:
            return msgspec.structs.replace(known, observed_generation=standing.situation.model.generation)
    return None


def _condition(
    standing: RunStanding, kind: ConditionType, holds: bool, reason: Reason | str, message: str
) -> Condition:
    return Condition(
        type=kind,
        status="True" if holds else "False",
        reason=reason,
        message=message,
        observed_generation=standing.situation.model.generation,
    )
