"""The Deployment of a model that is stopped, and when its servers may be told.

Its pods hold the evidence. So its template and its replicas stay as they are, and it is paused: its
controller would take the pods of an older template away as soon as they are not ready. It replaces lost pods
all the same. A new one is not paused until its controller has seen it: a paused one makes no pods.
"""

from typing import Any

from mcp2026.api.conditions import ConditionType
from mcp2026.api.inference_model import InferenceModel, InferenceModelStatus
from mcp2026.api.lifecycle import Phase
from mcp2026.operator.children import deployment
from mcp2026.operator.children.serving_config import written_config
from mcp2026.operator.manifests import Manifest, with_digest
from mcp2026.operator.observed import Observed, at, belongs_to
from mcp2026.operator.settings import PodSettings
from mcp2026.operator.stopping.reports import Ending


def is_over(model: InferenceModel) -> bool:
    """Say whether all is reported and written, so that no pod is needed any more."""
    phase = model.status.phase
    if phase is Phase.RUNNING or not has_ended(model.status):
        return False
    return phase is not Phase.SUCCEEDED or Ending(model.status.ended_servers).digest is None


def has_ended(status: InferenceModelStatus) -> bool:
    """Say whether the status says that all servers have ended: that stays so."""
    ended = (entry.status for entry in status.conditions if entry.type == ConditionType.RUN_ENDED)
    return next(ended, "") == "True"


def tells_servers(model: InferenceModel, observed: Observed) -> bool:
    """Say whether the pods may be told to stop: the Deployment's controller will not end them meanwhile."""
    written = written_config(observed)
    if written is not None and written.stopped is True:
        return True
    running = _ours(model, observed)
    return (
        running is None
        or not replicas(running)
        or (bool(at(running, "spec", "paused")) and _is_seen(running))
    )


def stopped_deployment(model: InferenceModel, observed: Observed, settings: PodSettings) -> Manifest:
    """Return the Deployment, as it is now but for what stops it."""
    running = _ours(model, observed)
    wanted = deployment(model, settings, running)
    spec: dict[str, Any] = dict(wanted["spec"])
    if running is not None:
        spec |= {"template": running["spec"]["template"], "replicas": replicas(running)}
        if at(running, "spec", "paused") or _is_seen(running):
            spec["paused"] = True
    if is_over(model):
        spec["replicas"] = 0
    return with_digest({**wanted, "spec": spec})


def replicas(running: Manifest | None) -> int:
    """Return how many pods a Deployment has to have; one without a number has one."""
    count = at(running, "spec", "replicas")
    return 1 if count is None else int(count)


def _ours(model: InferenceModel, observed: Observed) -> Manifest | None:
    running = observed.child("Deployment")
    if running is None or "deletionTimestamp" in running["metadata"] or not belongs_to(running, model.uid):
        return None
    return running


def _is_seen(running: Manifest) -> bool:
    return int(at(running, "status", "observedGeneration") or 0) >= int(
        at(running, "metadata", "generation") or 0
    )
