"""Mode Serve: the pods of a Deployment, which follow the revisions in their ConfigMap."""

from datetime import datetime

import msgspec

from mcp2026.api.canary import seconds_until_given_up
from mcp2026.api.conditions import Reason
from mcp2026.api.inference_model import InferenceModel, InferenceModelStatus, Traffic
from mcp2026.api.lifecycle import ResourceAllocated
from mcp2026.api.names import MODEL_LABEL
from mcp2026.operator.canary.deciding import is_measured, next_canary
from mcp2026.operator.children import (
    deployment,
    role,
    role_binding,
    service,
    service_account,
    serving_config,
    serving_config_map,
    serving_revision,
)
from mcp2026.operator.children.deployment import template_digest
from mcp2026.operator.manifests import Manifest
from mcp2026.operator.observed import Observed, at, of_template, staying
from mcp2026.operator.progress import advance, with_conditions
from mcp2026.operator.rollout import blocked_by
from mcp2026.operator.settings import PodSettings
from mcp2026.operator.situation import Situation
from mcp2026.operator.standing import Standing, conditions, hindrance
from mcp2026.operator.stopping import stopped
from mcp2026.operator.traffic import spread

CHILD_KINDS = ("ServiceAccount", "Role", "RoleBinding", "ConfigMap", "Service", "Deployment")


def children(model: InferenceModel, observed: Observed, settings: PodSettings) -> tuple[Manifest, ...]:
    """Return the children in the order of their creation: pods must find their account and ConfigMap."""
    if model.spec.stopped:
        return stopped.children(model, observed, settings)
    config = serving_config(model, serving_revision(model, observed))
    return (
        service_account(model),
        role(model),
        role_binding(model),
        serving_config_map(model, config),
        service(model),
        deployment(model, settings, observed.child("Deployment")),
    )


def next_status(situation: Situation, now: datetime) -> InferenceModelStatus:
    """Return the status of a model that serves."""
    model, observed = situation.model, situation.observed
    if model.spec.stopped:
        return stopped.next_status(situation, now)
    standing = _standing(situation)
    status = model.status
    if standing.all_scheduled and at(observed.resource, "status", "phase") is not None:
        # a life begins with Pending, so the very first status never says more
        blocked = standing.no_pods()
        quota_suffices = blocked is None or blocked.reason is not Reason.QUOTA_EXCEEDED
        dependencies_completed = not situation.waiting_for and not observed.cycle
        status = advance(status, ResourceAllocated(quota_suffices, dependencies_completed), now)
    status = msgspec.structs.replace(
        status,
        observed_generation=model.generation,
        traffic=_traffic(standing),
        replicas=standing.count("replicas"),
        ready_replicas=standing.count("readyReplicas"),
        selector=f"{MODEL_LABEL}={model.name}",
    )
    found = conditions(standing)
    status = msgspec.structs.replace(
        status, canary=next_canary(model.canary, observed.comparison, now, hindrance(standing))
    )
    weights_hold = msgspec.structs.replace(model, status=status)
    status = msgspec.structs.replace(status, versions=weights_hold.versions_column)
    return with_conditions(status, found, now)


def look_again(situation: Situation, status: InferenceModelStatus, now: datetime) -> float | None:
    """Return after how many seconds a canary is to be measured again, or given up, if it is."""
    if situation.model.spec.stopped:
        return None
    due = [seconds_until_given_up(status.canary, hindrance(_standing(situation)), now)]
    if is_measured(status.canary):
        due.append(situation.observed.comparison.next_look_seconds)
    return min((seconds for seconds in due if seconds is not None), default=None)


def _standing(situation: Situation) -> Standing:
    model, observed = situation.model, situation.observed
    ours = situation.ours("Deployment")
    pods = staying(observed.pods)
    newest = of_template(pods, template_digest(situation.workload))
    older = tuple(pod for pod in pods if pod not in newest)
    revision = serving_revision(model, observed) if situation.may_apply else model.status.traffic.revision
    return Standing(
        situation,
        ours,
        newest,
        spread(revision, model.spec.replicas, newest, older, observed.leases),
        blocked_by(ours, newest),
    )


def _traffic(standing: Standing) -> Traffic:
    found = standing.spread
    return Traffic(revision=found.revision, live_on=min(len(found.live), found.wanted), of=found.wanted)
