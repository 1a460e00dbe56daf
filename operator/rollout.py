"""Why a rollout does not come up, told in one sentence from what pods and Deployment report."""

from typing import Any

from mcp2026.api.conditions import Reason
from mcp2026.operator.manifests import Manifest
from mcp2026.operator.observed import at, condition_of
from mcp2026.operator.situation import Blocked

_PULL_FAILURES = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"}
)
_CONTAINER_FAILURES = frozenset(
    {"CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)


def blocked_by(deployment: Manifest | None, pods: tuple[Manifest, ...]) -> Blocked | None:
    """Return what blocks the rollout, the nearest to its cause first. `pods`: the newest ones."""
    refused = condition_of(deployment, "ReplicaFailure")
    if refused.get("status") == "True":
        message = refused.get("message", "")
        over_quota = "exceeded quota" in message
        return Blocked(Reason.QUOTA_EXCEEDED if over_quota else Reason.POD_CREATION_REFUSED, message)
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["name"])):
        if blocked := pod_blocked(pod):
            return blocked
    progressing = condition_of(deployment, "Progressing")
    if progressing.get("reason") == "ProgressDeadlineExceeded":
        return Blocked(Reason.PROGRESS_DEADLINE_EXCEEDED, progressing.get("message", ""))
    return None


def pod_blocked(pod: Manifest) -> Blocked | None:
    """Return what keeps the container of a pod from running, if it says so."""
    name = pod["metadata"]["name"]
    scheduled = condition_of(pod, "PodScheduled")
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        return Blocked(Reason.UNSCHEDULABLE, f"pod {name}: {scheduled.get('message', '')}")
    for container in at(pod, "status", "containerStatuses") or []:
        waiting = at(container, "state", "waiting") or {}
        if waiting.get("reason") in _PULL_FAILURES:
            said = f"{waiting['reason']} {waiting.get('message', '')}".strip()
            return Blocked(Reason.IMAGE_PULL_FAILED, f"pod {name}: image {container.get('image')}: {said}")
        if waiting.get("reason") in _CONTAINER_FAILURES:
            return Blocked(Reason.CONTAINER_FAILING, f"pod {name}: {_failure(container, waiting)}")
    return None


def _failure(container: dict[str, Any], waiting: dict[str, Any]) -> str:
    """Return how the container ended last; before its first end, why it could not start."""
    ended = at(container, "lastState", "terminated")
    if not ended:
        return f"{waiting['reason']}: {waiting.get('message', '')}"
    said = (ended.get("message") or "").strip()
    count = container.get("restartCount", 0)
    times = "once, with" if count == 1 else f"{count} times, last with"
    text = f"ended {times} exit code {ended.get('exitCode')}"
    return (
        f"{text} ({ended.get('reason', 'Error')}): {said}"
        if said
        else f"{text} ({ended.get('reason', 'Error')})"
    )
