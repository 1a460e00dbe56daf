"""A canary that pods refuse, or crash with, is given up by itself, withdrawn, and not tried again."""

from typing import Any

import pytest

from mcp2026.operator.actions import RequeueAfter
from tests.fakes.played_cluster import model
from tests.unit.operator.test_canary_steps import PLAN, VERSIONS, CanaryCluster


@pytest.fixture
def cluster() -> CanaryCluster:
    cluster = CanaryCluster(model(versions=VERSIONS, canary=PLAN, replicas=2))
    cluster.serve()
    run(cluster)
    for pod in cluster.pods.values():
        pod["status"]["podIP"] = "10.0.0.1"
    return cluster


def run(cluster: CanaryCluster, **container: Any) -> None:
    """Give the container of each pod a state: running, if nothing else is said."""
    for pod in cluster.pods.values():
        status = {"name": "runtime", "state": {"running": {}}, **container}
        pod["status"]["containerStatuses"] = [status]


def refuse(cluster: CanaryCluster) -> None:
    """Let one pod take the newest revision, and the other say that it cannot."""
    first, second = cluster.pods
    cluster.report(first)
    cluster.report(second, live=1, failed=cluster.revision, problem="v2: no such file")


def second_step(cluster: CanaryCluster) -> None:
    """Go to the second step: revision 2, with 50 percent, is written and not live yet."""
    for _ in range(40):
        if cluster.canary["step"] == 1 and cluster.weights == {"v1": 50, "v2": 50}:
            return
        cluster.serve_requests(100)
        cluster.reconcile()
        if cluster.canary["step"] == 0:
            cluster.follow()
    raise AssertionError(cluster.canary)


def test_a_refused_one_is_rolled_back_after_30_s_and_leaves_the_document(cluster: CanaryCluster) -> None:
    second_step(cluster)
    refuse(cluster)
    for _ in range(60):
        actions = cluster.reconcile()
        if cluster.canary["outcome"] == "RolledBack":
            break
        (due,) = [one.seconds for one in actions if isinstance(one, RequeueAfter)] or [30.0]
        assert 0 <= due <= 30
    assert cluster.canary["withdrawn"] is True
    assert cluster.canary["message"].startswith("50 percent were not live on every pod within 30 s: revision")
    assert "v2: no such file" in cluster.canary["message"]
    (told,) = cluster.told_of("CanaryRolledBack")
    assert "no such file" in told
    assert cluster.resource["status"]["versions"] == "v1=100,v2=0"
    cluster.reconcile()
    assert cluster.weights == {"v1": 100}
    cluster.follow()
    cluster.reconcile()
    assert cluster.condition("TrafficSettled")["status"] == "True"
    assert cluster.condition("RolloutBlocked")["status"] == "False"


def test_it_is_not_tried_again_until_another_plan_names_it(cluster: CanaryCluster) -> None:
    second_step(cluster)
    refuse(cluster)
    for _ in range(60):
        cluster.reconcile()
    known = cluster.revision
    for _ in range(300):
        cluster.follow()
    assert (cluster.weights, cluster.revision) == ({"v1": 100}, known)
    cluster.edit(canary={**PLAN, "stepSeconds": 11})
    cluster.reconcile()
    cluster.reconcile()
    assert cluster.weights == {"v1": 90, "v2": 10}


def test_one_that_is_served_before_the_time_is_over_goes_on(cluster: CanaryCluster) -> None:
    second_step(cluster)
    refuse(cluster)
    for _ in range(20):
        cluster.reconcile()
    for _ in range(3):
        cluster.follow()
    assert cluster.canary["outcome"] == "Progressing"
    assert cluster.canary["unsettledSince"] == ""
    assert cluster.canary["since"]


def test_one_with_which_containers_end_again_and_again_is_withdrawn(cluster: CanaryCluster) -> None:
    cluster.edit(canary={**PLAN, "settleSeconds": 60})
    cluster.follow()
    second_step(cluster)
    run(
        cluster,
        state={"waiting": {"reason": "CrashLoopBackOff"}},
        lastState={"terminated": {"exitCode": 1, "message": "v2: no such file"}},
        restartCount=3,
    )
    for pod in cluster.pods.values():
        pod["status"]["conditions"][1]["status"] = "False"
    for _ in range(70):
        cluster.reconcile()
    assert cluster.canary["outcome"] == "RolledBack"
    assert "within 60 s" in cluster.canary["message"]
    assert "v2: no such file" in cluster.canary["message"]
    assert cluster.weights == {"v1": 100}


@pytest.mark.parametrize(
    "status",
    [
        {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
        {"conditions": [{"type": "PodScheduled", "status": "True"}]},
        {
            "conditions": [{"type": "PodScheduled", "status": "True"}],
            "containerStatuses": [{"name": "runtime", "state": {"waiting": {"reason": "ErrImagePull"}}}],
        },
    ],
    ids=["no node", "no container yet", "no image"],
)
def test_what_the_cluster_lacks_is_no_reason(cluster: CanaryCluster, status: dict[str, Any]) -> None:
    cluster.edit(canary={**PLAN, "settleSeconds": 30})
    cluster.follow()
    second_step(cluster)
    first = next(iter(cluster.pods))
    cluster.pods[first]["status"] = status
    for _ in range(100):
        cluster.reconcile()
    assert cluster.canary["outcome"] == "Progressing"


def test_a_claim_that_it_alone_uses_leaves_the_pods_with_it() -> None:
    versions = [VERSIONS[0], {**VERSIONS[1], "uri": "pvc://candidates/2.onnx"}]
    cluster = CanaryCluster(model(versions=versions, canary=PLAN, replicas=2))
    cluster.serve()
    run(cluster)
    first, second = cluster.pods
    cluster.report(second, live=1)

    def claims() -> list[str]:
        volumes = cluster.deployment["spec"]["template"]["spec"]["volumes"]
        return [
            one["persistentVolumeClaim"]["claimName"] for one in volumes if "persistentVolumeClaim" in one
        ]

    assert claims() == ["candidates", "models"]
    cluster.report(first, live=0, failed=cluster.revision, problem="v2: no such file")
    cluster.leases[first]["metadata"]["annotations"]["mcp2026.io/live-revision"] = "0"
    for _ in range(40):
        cluster.reconcile()
    assert cluster.canary["withdrawn"] is True
    assert claims() == ["models"]
