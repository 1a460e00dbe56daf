"""What users read when a rollout does not come up."""

from typing import Any

import pytest

from mcp2026.api.conditions import Reason
from mcp2026.operator.rollout import blocked_by


def pod(name: str = "m-1", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": status}


def waiting(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    container = {"image": "r/x:1", "state": {"waiting": {"reason": reason, "message": message}}}
    return pod(containerStatuses=[container | more])


def deployment(kind: str, status: str, reason: str, message: str) -> dict[str, Any]:
    return {
        "status": {"conditions": [{"type": kind, "status": status, "reason": reason, "message": message}]}
    }


def ended(code: int, reason: str, message: str | None = None, times: int = 3) -> dict[str, Any]:
    return {
        "lastState": {"terminated": {"exitCode": code, "reason": reason, "message": message}},
        "restartCount": times,
    }


UNSCHEDULABLE = pod(
    conditions=[
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient mcp2026.io/gpu.",
        }
    ]
)

BLOCKED: list[tuple[str, dict[str, Any] | None, list[dict[str, Any]], Reason, str]] = [
    (
        "no node has room",
        None,
        [UNSCHEDULABLE],
        Reason.UNSCHEDULABLE,
        "pod m-1: 0/3 nodes are available: 3 Insufficient mcp2026.io/gpu.",
    ),
    (
        "the image cannot be pulled",
        None,
        [waiting("ImagePullBackOff", "not found")],
        Reason.IMAGE_PULL_FAILED,
        "pod m-1: image r/x:1: ImagePullBackOff not found",
    ),
    (
        "the container crashes and says why",
        None,
        [waiting("CrashLoopBackOff", "back-off", **ended(1, "Error", "no such file\n"))],
        Reason.CONTAINER_FAILING,
        "pod m-1: ended 3 times, last with exit code 1 (Error): no such file",
    ),
    (
        "the container crashed once",
        None,
        [waiting("CrashLoopBackOff", "back-off", **ended(1, "Error", times=1))],
        Reason.CONTAINER_FAILING,
        "pod m-1: ended once, with exit code 1 (Error)",
    ),
    (
        "the container runs out of memory",
        None,
        [waiting("CrashLoopBackOff", "back-off", **ended(137, "OOMKilled"))],
        Reason.CONTAINER_FAILING,
        "pod m-1: ended 3 times, last with exit code 137 (OOMKilled)",
    ),
    (
        "the container cannot be created",
        None,
        [waiting("CreateContainerConfigError", 'configmap "m-serving" not found')],
        Reason.CONTAINER_FAILING,
        'pod m-1: CreateContainerConfigError: configmap "m-serving" not found',
    ),
    (
        "the quota is used up",
        deployment("ReplicaFailure", "True", "FailedCreate", "forbidden: exceeded quota: gpus"),
        [],
        Reason.QUOTA_EXCEEDED,
        "forbidden: exceeded quota: gpus",
    ),
    (
        "the pod is refused for another reason",
        deployment("ReplicaFailure", "True", "FailedCreate", "no PriorityClass with name x"),
        [],
        Reason.POD_CREATION_REFUSED,
        "no PriorityClass with name x",
    ),
    (
        "nothing moves",
        deployment("Progressing", "False", "ProgressDeadlineExceeded", "has timed out"),
        [pod()],
        Reason.PROGRESS_DEADLINE_EXCEEDED,
        "has timed out",
    ),
    (
        "the cause in a pod counts before the deadline",
        deployment("Progressing", "False", "ProgressDeadlineExceeded", "has timed out"),
        [UNSCHEDULABLE],
        Reason.UNSCHEDULABLE,
        "pod m-1: 0/3 nodes are available: 3 Insufficient mcp2026.io/gpu.",
    ),
]


@pytest.mark.parametrize(
    ("of_deployment", "pods", "reason", "message"),
    [row[1:] for row in BLOCKED],
    ids=[row[0] for row in BLOCKED],
)
def test_blocked(
    of_deployment: dict[str, Any] | None, pods: list[dict[str, Any]], reason: Reason, message: str
) -> None:
    blocked = blocked_by(of_deployment, tuple(pods))
    assert blocked is not None
    assert (blocked.reason, blocked.message) == (reason, message)


FINE: list[tuple[str, dict[str, Any] | None, list[dict[str, Any]]]] = [
    ("nothing is there yet", None, []),
    ("the image is being pulled", None, [waiting("ContainerCreating")]),
    (
        "the scheduler has not looked yet",
        None,
        [pod(conditions=[{"type": "PodScheduled", "status": "False"}])],
    ),
    ("the Deployment goes on", deployment("Progressing", "True", "ReplicaSetUpdated", ""), [pod()]),
    ("the quota suffices again", deployment("ReplicaFailure", "False", "", "exceeded quota"), []),
]


@pytest.mark.parametrize(("of_deployment", "pods"), [row[1:] for row in FINE], ids=[row[0] for row in FINE])
def test_not_blocked(of_deployment: dict[str, Any] | None, pods: list[dict[str, Any]]) -> None:
    assert blocked_by(of_deployment, tuple(pods)) is None


def test_the_same_pod_is_named_whatever_the_order() -> None:
    pods = [waiting("CrashLoopBackOff"), waiting("ImagePullBackOff")]
    pods[0]["metadata"]["name"], pods[1]["metadata"]["name"] = "b", "a"
    assert blocked_by(None, tuple(pods)) == blocked_by(None, tuple(reversed(pods)))
