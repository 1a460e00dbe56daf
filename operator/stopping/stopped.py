"""The children of a model that is stopped, and how its status follows from how its servers ended.

One step of the life cycle is made at a time, and what a step is decided by is written with it, or before it:
`status.endedServers`. So an operator that dies between any two writes goes on from what is there.
"""

from datetime import datetime

import msgspec

from mcp2026.api.conditions import Reason
from mcp2026.api.inference_model import InferenceModel, InferenceModelStatus, Traffic
from mcp2026.api.lifecycle import DataSynced, Event, Phase, ResourceAllocated
from mcp2026.api.names import MODEL_LABEL
from mcp2026.operator.children import (
    role,
    role_binding,
    service,
    service_account,
    serving_config,
    serving_config_map,
    serving_revision,
)
from mcp2026.operator.manifests import Manifest
from mcp2026.operator.observed import Observed, at, is_scheduled, staying
from mcp2026.operator.progress import advance, with_conditions
from mcp2026.operator.rollout import blocked_by
from mcp2026.operator.settings import PodSettings
from mcp2026.operator.situation import Blocked, Situation
from mcp2026.operator.stopping.conditions import StopStanding, conditions
from mcp2026.operator.stopping.reports import Ending, awaited, gathered, missing
from mcp2026.operator.stopping.workload import has_ended, replicas, stopped_deployment, tells_servers
from mcp2026.operator.traffic import spread


def children(model: InferenceModel, observed: Observed, settings: PodSettings) -> tuple[Manifest, ...]:
    """Return the children in the order of their creation, as those of a model that serves."""
    stopped = tells_servers(model, observed)
    revision = serving_revision(model, observed, stopped=stopped)
    return (
        service_account(model),
        role(model),
        role_binding(model),
        serving_config_map(model, serving_config(model, revision, stopped=stopped)),
        service(model),
        stopped_deployment(model, observed, settings),
    )


def next_status(situation: Situation, now: datetime) -> InferenceModelStatus:
    """Return the status of a model that is stopped."""
    model, observed = situation.model, situation.observed
    ours = situation.ours("Deployment")
    status, pods = model.status, observed.pods
    over = has_ended(status)
    servers = status.ended_servers if over or not situation.started else gathered(status.ended_servers, pods)
    told = tells_servers(model, observed)
    still = awaited(servers, pods)
    lost = missing(servers, pods, replicas(ours) if ours is not None else 0)
    ended = over or (ours is not None and told and not still and not lost)
    if at(observed.resource, "status", "phase") is not None:
        # a life begins with Pending, so the very first status never says more
        event = _evidence(situation, Ending(servers) if ended else None)
        status = advance(status, event, now) if event else status
    status = msgspec.structs.replace(
        status,
        observed_generation=model.generation,
        traffic=Traffic(_revision(situation), 0, 0),
        replicas=int(at(ours, "status", "replicas") or 0),
        ready_replicas=int(at(ours, "status", "readyReplicas") or 0),
        selector=f"{MODEL_LABEL}={model.name}",
        versions=model.versions_column,
        ended_servers=servers,
    )
    left = tuple(pod for pod in staying(pods) if pod["metadata"]["name"] in still)
    found = spread(status.traffic.revision, 0, left, (), observed.leases)
    blocked = blocked_by(ours, left)
    if blocked is None and found.refused:
        blocked = Blocked(Reason.REVISION_REFUSED, found.refusal)
    standing = StopStanding(situation, status, ended, still, lost, told, _all_scheduled(situation), blocked)
    return with_conditions(status, conditions(standing), now)


def _evidence(situation: Situation, ending: Ending | None) -> Event | None:
    """Return the event that may move the present phase."""
    phase = situation.model.status.phase
    if phase is Phase.PENDING and _all_scheduled(situation):
        unmet = situation.waiting_for or situation.observed.cycle
        return ResourceAllocated(quota_suffices=True, dependencies_completed=not unmet)
    if phase is Phase.RUNNING and ending is not None:
        return ending.event
    if phase is Phase.SUCCEEDED and ending is not None and ending.digest is not None:
        return DataSynced(ending.digest)
    return None


def _all_scheduled(situation: Situation) -> bool:
    wanted = replicas(situation.ours("Deployment")) if situation.ours("Deployment") is not None else 0
    pods = staying(situation.observed.pods)
    return 0 < wanted <= len(pods) and all(is_scheduled(pod) for pod in pods)


def _revision(situation: Situation) -> int:
    """Return the newest revision: of a ConfigMap that may not be made, the one that is known."""
    model, observed = situation.model, situation.observed
    if not situation.may_apply:
        return model.status.traffic.revision
    return serving_revision(model, observed, stopped=tells_servers(model, observed))
