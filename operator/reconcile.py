"""The one decision of the operator: from what is observed of a model to what has to be done.

Pure and level-triggered. It asks not what happened but what is, so a missed event, a restart or a hand that
deletes a child are all the same case. Nothing to do gives no actions.
"""

from datetime import datetime

import msgspec

from mcp2026.api.conditions import Condition, ConditionType, Reason
from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.inference_model import (
    InferenceModel,
    InferenceModelStatus,
    Traffic,
    parse_inference_model,
    parse_status,
)
from mcp2026.api.lifecycle import Phase, ResourceAllocated
from mcp2026.api.names import (
    MODEL_LABEL,
    SERVING_REVISION_ANNOTATION,
)
from mcp2026.operator.actions import Action, ApplyChild, RequeueAfter, UpdateStatus
from mcp2026.operator.children import (
    deployment,
    service,
    serving_config,
    serving_config_map,
    serving_digest,
    serving_revision,
)
from mcp2026.operator.children.deployment import template_digest
from mcp2026.operator.manifests import Manifest, covers
from mcp2026.operator.observed import (
    Observed,
    at,
    belongs_to,
    dependency_is_met,
    is_ready,
    newest_pods,
)
from mcp2026.operator.progress import advance, events_between, status_document, with_conditions
from mcp2026.operator.rollout import Blocked, blocked_by
from mcp2026.operator.settings import PodSettings
from mcp2026.operator.standing import Standing, conditions

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
    wanted = _children(model, observed, settings)
    taken = [child for child in wanted if _is_taken(observed.child(child["kind"]), model)]
    waiting_for = tuple(
        name for name in model.spec.depends_on if not dependency_is_met(observed.dependencies.get(name))
    )
    may_start = not waiting_for or observed.deployment is not None
    actions: list[Action] = []
    if may_start and not taken:
        actions += [
            ApplyChild(child) for child in wanted if not _is_applied(child, observed.child(child["kind"]))
        ]
    status = _next_status(model, observed, wanted, taken, waiting_for, now)
    actions += _status_actions(observed.resource, model.status, status)
    if taken:
        actions.append(RequeueAfter(NAME_TAKEN_RETRY_SECONDS))
    return actions


def _children(model: InferenceModel, observed: Observed, settings: PodSettings) -> list[Manifest]:
    """Return the children in the order of their creation: pods must find their ConfigMap."""
    config = serving_config(model, serving_revision(model, observed))
    return [
        serving_config_map(model, config),
        service(model),
        deployment(model, serving_digest(config), settings),
    ]


def _is_taken(child: Manifest | None, model: InferenceModel) -> bool:
    return child is not None and not belongs_to(child, model.uid)


def _is_applied(wanted: Manifest, child: Manifest | None) -> bool:
    """Say whether `child` was made from exactly this manifest and still has all its fields."""
    if child is None or "deletionTimestamp" in child["metadata"]:
        return False
    return covers(wanted, {"apiVersion": wanted["apiVersion"], "kind": wanted["kind"], **child})


def _next_status(
    model: InferenceModel,
    observed: Observed,
    wanted: list[Manifest],
    taken: list[Manifest],
    waiting_for: tuple[str, ...],
    now: datetime,
) -> InferenceModelStatus:
    wanted_deployment = wanted[-1]
    ours = None if _is_taken(observed.deployment, model) else observed.deployment
    pods = newest_pods(observed.pods, template_digest(wanted_deployment))
    blocked = _name_taken(taken) if taken else blocked_by(ours, pods)
    standing = Standing(model, wanted_deployment, ours, pods, waiting_for, blocked)
    quota_suffices = blocked is None or blocked.reason is not Reason.QUOTA_EXCEEDED
    status = model.status
    if standing.all_scheduled and at(observed.resource, "status", "phase") is not None:
        # a life begins with Pending, so the very first status never says more
        status = advance(status, ResourceAllocated(quota_suffices, not waiting_for), now)
    status = msgspec.structs.replace(
        status,
        observed_generation=model.generation,
        traffic=_traffic(
            model, observed, wanted_deployment, applied=not taken and (standing.started or not waiting_for)
        ),
        replicas=standing.count("replicas"),
        ready_replicas=standing.count("readyReplicas"),
        selector=f"{MODEL_LABEL}={model.name}",
        versions=model.spec.versions_column,
    )
    return with_conditions(status, conditions(standing), now)


def _name_taken(taken: list[Manifest]) -> Blocked:
    names = ", ".join(f"{child['kind']} {child['metadata']['name']}" for child in taken)
    return Blocked(
        Reason.NAME_TAKEN, f"{names} exists and is not this model's; delete it or rename the model"
    )


def _traffic(model: InferenceModel, observed: Observed, wanted: Manifest, *, applied: bool) -> Traffic:
    if not applied:
        return msgspec.structs.replace(model.status.traffic, of=model.spec.replicas)
    serving = wanted["spec"]["template"]["metadata"]["annotations"][SERVING_REVISION_ANNOTATION]
    live = sum(
        is_ready(pod) and at(pod, "metadata", "annotations", SERVING_REVISION_ANNOTATION) == serving
        for pod in observed.pods
        if "deletionTimestamp" not in pod["metadata"]
    )
    revision = serving_revision(model, observed)
    return Traffic(revision=revision, live_on=live, of=model.spec.replicas)


def _status_actions(resource: Manifest, old: InferenceModelStatus, new: InferenceModelStatus) -> list[Action]:
    if resource.get("status") == status_document(new):
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
