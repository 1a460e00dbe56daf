"""Mode Batch: the children while a run waits, goes on and has ended, and how the status follows from them.

One step of the life cycle is made at a time, each from what is there now. Where the evidence for the next
step was lost with its pod, the Job is ended by its time to live and made anew: the run finds its work done,
and says so again (docs/decisions/0094).
"""

from datetime import datetime
from typing import Final

import msgspec

from mcp2026.api.batch_run import BatchStatus
from mcp2026.api.inference_model import InferenceModel, InferenceModelStatus
from mcp2026.api.lifecycle import DataSynced, Event, Phase, ResourceAllocated
from mcp2026.api.names import MODEL_LABEL
from mcp2026.operator.batch.attempt import at_time, observed_counts, seconds_until_due
from mcp2026.operator.batch.conditions import RunStanding, conditions
from mcp2026.operator.batch.ending import Ending, ending_of, has_ended, has_succeeded, of_job
from mcp2026.operator.children import (
    job,
    role,
    role_binding,
    service_account,
    serving_config,
    serving_config_map,
)
from mcp2026.operator.manifests import Manifest
from mcp2026.operator.observed import Observed, at, belongs_to, is_scheduled
from mcp2026.operator.progress import advance, with_conditions
from mcp2026.operator.rollout import blocked_by
from mcp2026.operator.settings import PodSettings
from mcp2026.operator.situation import Situation

CHILD_KINDS: Final = ("ServiceAccount", "Role", "RoleBinding", "ConfigMap", "Job")
RETENTION_SECONDS: Final = 3600
"""How long the Job of a completed model stays; with it goes its pod, but nothing that it wrote."""
_FINAL: Final = (Phase.FAILED, Phase.COMPLETED)


def children(model: InferenceModel, observed: Observed, settings: PodSettings) -> tuple[Manifest, ...]:
    """Return the children in the order of their creation; a Job that is gone after the end stays gone."""
    around = (
        service_account(model),
        role(model),
        role_binding(model),
        serving_config_map(model, serving_config(model, revision=1)),
    )
    there = observed.child("Job")
    if model.status.phase in _FINAL and (there is None or "deletionTimestamp" in there["metadata"]):
        return around
    running = there if there is not None and belongs_to(there, model.uid) else None
    wanted = job(
        model,
        settings,
        running,
        deadline_seconds=_deadline_seconds(model, running),
        retention_seconds=_retention_seconds(model, observed, running),
    )
    return (*around, wanted)


def next_status(situation: Situation, now: datetime) -> InferenceModelStatus:
    """Return the status of a model that runs a data set."""
    model, observed = situation.model, situation.observed
    ours = situation.ours("Job")
    pods = of_job(observed.pods, ours)
    ending = ending_of(ours, pods)
    status = model.status
    if at(observed.resource, "status", "phase") is not None:
        # a life begins with Pending, so the very first status never says more
        event = _evidence(situation, ours, pods, ending)
        status = advance(status, event, now) if event else status
    status = msgspec.structs.replace(
        status,
        observed_generation=model.generation,
        replicas=sum(at(pod, "status", "phase") not in ("Succeeded", "Failed") for pod in pods),
        selector=f"{MODEL_LABEL}={model.name}",
        versions=model.versions_column,
        batch=_counts(
            model, status.phase, observed_counts(_old(model), ours, pods, observed.leases, ending), now
        ),
    )
    unfinished = tuple(pod for pod in pods if at(pod, "status", "phase") not in ("Succeeded", "Failed"))
    standing = RunStanding(situation, status, unfinished, ending, blocked_by(None, unfinished))
    return with_conditions(status, conditions(standing), now)


def look_again(situation: Situation, status: InferenceModelStatus, now: datetime) -> float | None:
    """Return after how many seconds numbers that were held back may be written, or None if there are none."""
    observed, ours = situation.observed, situation.ours("Job")
    pods = of_job(observed.pods, ours)
    written = status.batch or BatchStatus()
    newest = observed_counts(written, ours, pods, observed.leases, ending_of(ours, pods))
    return seconds_until_due(written, now) if newest != written else None


def _evidence(
    situation: Situation, ours: Manifest | None, pods: tuple[Manifest, ...], ending: Ending | None
) -> Event | None:
    """Return the event that may move the present phase."""
    phase = situation.model.status.phase
    if phase is Phase.PENDING and _was_allocated(ours, pods):
        # A pod that is bound has passed the quota; one that the quota refuses does not come to be.
        unmet = situation.waiting_for or situation.observed.cycle
        return ResourceAllocated(quota_suffices=True, dependencies_completed=not unmet)
    if phase is Phase.RUNNING and ending is not None:
        return ending.event
    if phase is Phase.SUCCEEDED and ending is not None and ending.validated and ending.archive_sha256:
        return DataSynced(ending.archive_sha256)  # not of a repetition that failed: its log is of another run
    return None


def _was_allocated(ours: Manifest | None, pods: tuple[Manifest, ...]) -> bool:
    return any(is_scheduled(pod) for pod in pods) or has_succeeded(ours)


def _deadline_seconds(model: InferenceModel, running: Manifest | None) -> int | None:
    """Return the seconds from the Job's start to the time by which the model may no longer be Running.

    A Job that repeats a run for its archive alone has no deadline; what has ended keeps the one it had.
    """
    if has_ended(running):
        kept: int | None = at(running, "spec", "activeDeadlineSeconds")
        return kept
    if model.status.phase is not Phase.RUNNING:
        return None
    timeout = model.spec.batch.timeout_seconds if model.spec.batch else None
    began = next((step.time for step in model.status.transitions if step.to is Phase.RUNNING), None)
    started = at(running, "status", "startTime")
    if timeout is None or began is None or not isinstance(started, str):
        return None
    waited = datetime.fromisoformat(began) - datetime.fromisoformat(started)
    return max(1, timeout + int(waited.total_seconds()))


def _retention_seconds(model: InferenceModel, observed: Observed, running: Manifest | None) -> int | None:
    if not has_ended(running):
        return None
    pods = of_job(observed.pods, running)
    phase = model.status.phase
    lost = {
        Phase.PENDING: not _was_allocated(running, pods),
        Phase.RUNNING: ending_of(running, pods) is None,
        Phase.SUCCEEDED: has_succeeded(running) and ending_of(running, pods) is None,
    }
    if lost.get(phase, False):
        return 0
    return RETENTION_SECONDS if phase is Phase.COMPLETED else None


def _old(model: InferenceModel) -> BatchStatus:
    return model.status.batch or BatchStatus()


def _counts(model: InferenceModel, phase: Phase, newest: BatchStatus, now: datetime) -> BatchStatus:
    """Return the numbers for the status: the old ones if the newest have to wait."""
    old = _old(model)
    if newest == old and old.updated_time:
        return old
    moved = phase is not model.status.phase
    return at_time(newest, now) if moved or not seconds_until_due(old, now) else old
