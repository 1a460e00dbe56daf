"""A GPU of a real node fails: new pods wait and say why, or get the others, and go on when it is well."""

from collections.abc import Iterator
from typing import Any

import pytest

from mcp2026.api.gpu_assignment import parse_gpu_assignment
from mcp2026.api.names import GPU_ASSIGNMENT_ANNOTATION, GPU_RESOURCE, SCHEDULER_NAME
from tests.e2e.state import gpus_by_uuid, state_of
from tools.cluster import Cluster
from tools.cluster.errors import ClusterError
from tools.demo.installation import IMAGE, Installation

pytestmark = pytest.mark.node

NAMESPACE = "unhealthy"
TAINT = "node.kubernetes.io/device-unhealthy"
WAITING = "import signal; signal.sigwait({signal.SIGTERM})"


@pytest.fixture(scope="module")
def cluster(installation: Installation) -> Iterator[Cluster]:
    cluster = installation.cluster
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    cluster.wait("serviceaccount/default", "create", namespace=NAMESPACE)
    free = "all GPUs to be free"
    cluster.wait_for(free, lambda: not any("heldBy" in gpu for gpu in gpus_by_uuid(cluster).values()), 120)
    yield cluster
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=true")


def start_pod(cluster: Cluster, name: str, gpus: int, *tolerated: str) -> None:
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", WAITING],
        "resources": {"limits": {GPU_RESOURCE: str(gpus)}},
    }
    spec: dict[str, Any] = {
        "schedulerName": SCHEDULER_NAME,
        "terminationGracePeriodSeconds": 5,
        "restartPolicy": "Never",
        "containers": [container],
        "tolerations": [{"key": key, "operator": "Exists"} for key in tolerated],
    }
    metadata = {"name": name, "namespace": NAMESPACE}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def wait_until_ready(cluster: Cluster, pod: str) -> None:
    try:
        cluster.wait(f"pod/{pod}", "condition=Ready", namespace=NAMESPACE, timeout_s=120)
    except ClusterError as error:
        pytest.fail(f"{error}\n{state_of(cluster, NAMESPACE)}")


def reserved(cluster: Cluster, pod: str) -> set[int]:
    """The GPUs that were reserved when the pod was bound, by index."""
    annotations = cluster.get("--namespace", NAMESPACE, "pod", pod)["metadata"]["annotations"]
    assignment = parse_gpu_assignment(annotations[GPU_ASSIGNMENT_ANNOTATION])
    known = gpus_by_uuid(cluster)
    return {known[uuid]["index"] for uuid in assignment["main"][GPU_RESOURCE]}


def inside(cluster: Cluster, pod: str) -> set[int]:
    """The GPUs that the container was given, by index."""
    told = cluster.kubectl("exec", "--namespace", NAMESPACE, pod, "--", "printenv", "MCP2026_GPU_UUIDS")
    known = gpus_by_uuid(cluster)
    return {known[uuid]["index"] for uuid in told.strip().split(",")}


def taints(cluster: Cluster) -> list[str]:
    (node,) = cluster.get("nodes")["items"]
    return [f"{taint['key']}={taint.get('value', '')}" for taint in node["spec"].get("taints", ())]


def test_pods_wait_or_get_the_others_while_a_gpu_is_unhealthy_and_go_on_when_it_is_well(
    cluster: Cluster, installation: Installation
) -> None:
    nvml = installation.nvml
    nvml.set_fact(0, "remapping_pending", 1)  # or it would be well again before all was looked at
    nvml.emit_xid(0, 94)
    cluster.wait_for("the taint", lambda: f"{TAINT}=Xid94" in taints(cluster))

    start_pod(cluster, "stays-away", 1)
    cluster.wait("pod/stays-away", "condition=PodScheduled=False", namespace=NAMESPACE)
    (condition,) = cluster.get("--namespace", NAMESPACE, "pod", "stays-away")["status"]["conditions"]
    assert "1 node(s) had untolerated taint(s)" in condition["message"]  # kube-scheduler's own words
    assert condition["reason"] == "Unschedulable"

    start_pod(cluster, "tolerates", 2, TAINT)
    wait_until_ready(cluster, "tolerates")
    assert inside(cluster, "tolerates") == reserved(cluster, "tolerates") == {2, 3}
    start_pod(cluster, "last", 1, TAINT)
    wait_until_ready(cluster, "last")
    assert inside(cluster, "last") == reserved(cluster, "last") == {1}

    nvml.set_fact(0, "remapping_pending", 0)
    wait_until_ready(cluster, "stays-away")
    assert inside(cluster, "stays-away") == reserved(cluster, "stays-away") == {0}
    assert taints(cluster) == []
