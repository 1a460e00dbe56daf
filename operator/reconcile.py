"""The one decision of the operator: from what is observed of a model to what has to be done.

Pure and level-triggered. It asks not what happened but what is, so a missed event, a restart or a hand that
deletes a child are all the same case. Nothing to do gives no actions. What differs by `spec.mode` is decided
in `modes.py`.
"""

from datetime import datetime

import msgspec

from mcp2026.api.conditions import Condition, ConditionType, Reason
from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.inference_model import InferenceModelStatus, parse_inference_model, parse_status
from mcp2026.api.lifecycle import Phase
from mcp2026.operator.actions import Action, ApplyChild, RequeueAfter, UpdateStatus
from mcp2026.operator.manifests import Manifest, covers
from mcp2026.operator.modes import MODES
from mcp2026.operator.observed import Observed, at
from mcp2026.operator.progress import events_between, says, with_conditions
from mcp2026.operator.promises import promises_renewed
from mcp2026.operator.settings import PodSettings
from mcp2026.operator.situation import Situation

NAME_TAKEN_RETRY_SECONDS = 30.0
"""Somebody else's object carries no label of ours, so nobody tells us when it goes."""


def reconcile(observed: Observed, now: datetime, settings: PodSettings) -> list[Action]:
    """Return what brings the cluster from `observed` to what the model asks for, in order."""
    if "deletionTimestamp" in observed.resource["metadata"]:
        return []  # the garbage collector takes the children, by their owner references
    try:
        model = parse_inference_model(observed.resource)
    except InvalidResourceError as error:
        return _invalid(observed.resource, error, now)
    mode = MODES[model.spec.mode]
    situation = Situation(model, observed, mode.children(model, observed, settings))
    actions: list[Action] = []
    if situation.may_apply:
        actions += [
            ApplyChild(child)
            for child in situation.wanted
            if not _is_applied(child, observed.child(child["kind"]))
        ]
    status = mode.next_status(situation, now)
    actions += _status_actions(observed.resource, model.status, status)
    if situation.may_apply:
        actions += promises_renewed(model, observed.pods)
    if (seconds := mode.look_again(situation, status, now)) is not None:
        actions.append(RequeueAfter(seconds))
    if situation.taken:
        actions.append(RequeueAfter(NAME_TAKEN_RETRY_SECONDS))
    return actions


def _is_applied(wanted: Manifest, child: Manifest | None) -> bool:
    """Say whether `child` was made from exactly this manifest and still has all its fields."""
    if child is None or "deletionTimestamp" in child["metadata"]:
        return False
    return covers(wanted, {"apiVersion": wanted["apiVersion"], "kind": wanted["kind"], **child})


def _status_actions(resource: Manifest, old: InferenceModelStatus, new: InferenceModelStatus) -> list[Action]:
    if says(resource, new):
        return []
    return [UpdateStatus(new), *events_between(old, new)]


def _invalid(resource: Manifest, error: InvalidResourceError, now: datetime) -> list[Action]:
    """Say on the resource itself that it cannot be understood. Its children stay as they are."""
    generation = resource["metadata"].get("generation", 1)
    condition = Condition(
        ConditionType.READY, "False", Reason.INVALID_SPEC, str(error), observed_generation=generation
    )
    old = _readable_status(resource)
    new = msgspec.structs.replace(old, observed_generation=generation)
    return _status_actions(resource, old, with_conditions(new, (condition,), now))


def _readable_status(resource: Manifest) -> InferenceModelStatus:
    """Return the status; of one that cannot be read the phase at least, since phases never jump."""
    try:
        return parse_status(resource)
    except InvalidResourceError:
        phase = at(resource, "status", "phase")
        return InferenceModelStatus(phase=Phase(phase) if phase in set(Phase) else Phase.PENDING)
