"""Preemption on a real node: the right pods go, the important one gets their GPUs, and one can ask why."""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from mcp2026.api.gpu_assignment import parse_gpu_assignment
from mcp2026.api.names import (
    GPU_ASSIGNMENT_ANNOTATION,
    GPU_RESOURCE,
    PRIORITY_CLASS_HIGH,
    SCHEDULER_NAME,
)
from tests.e2e.state import gpus_by_uuid, state_of
from tools.cluster import Cluster
from tools.cluster.errors import ClusterError
from tools.demo.installation import IMAGE, Installation

pytestmark = pytest.mark.node

NAMESPACE = "preemption"
WAITING = "import signal; signal.sigwait({signal.SIGTERM})"


@pytest.fixture(scope="module")
def cluster(installation: Installation) -> Iterator[Cluster]:
    cluster = installation.cluster
    middle = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "middle"},
        "value": 100,
    }
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}, middle)
    cluster.wait("serviceaccount/default", "create", namespace=NAMESPACE)
    free = "all GPUs to be free"
    cluster.wait_for(free, lambda: not any("heldBy" in gpu for gpu in gpus_by_uuid(cluster).values()), 120)
    yield cluster
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=true")
    cluster.kubectl("delete", "priorityclass", "middle")


def start_pod(cluster: Cluster, name: str, gpus: int, priority_class: str = "") -> None:
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
    }
    if priority_class:
        spec["priorityClassName"] = priority_class
    metadata = {"name": name, "namespace": NAMESPACE}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def wait_until_ready(cluster: Cluster, pod: str) -> None:
    try:
        cluster.wait(f"pod/{pod}", "condition=Ready", namespace=NAMESPACE, timeout_s=120)
    except ClusterError as error:
        pytest.fail(f"{error}\n{state_of(cluster, NAMESPACE)}")


def indices(cluster: Cluster, uuids: str) -> set[int]:
    known = gpus_by_uuid(cluster)
    return {known[uuid]["index"] for uuid in uuids.split(",")}


def inside(cluster: Cluster, pod: str) -> set[int]:
    """The GPUs that the container was given, by index."""
    told = cluster.kubectl("exec", "--namespace", NAMESPACE, pod, "--", "printenv", "MCP2026_GPU_UUIDS")
    return indices(cluster, told.strip())


def reserved(cluster: Cluster, pod: str) -> set[int]:
    """The GPUs that were reserved when the pod was bound, by index."""
    annotations = cluster.get("--namespace", NAMESPACE, "pod", pod)["metadata"]["annotations"]
    assignment = parse_gpu_assignment(annotations[GPU_ASSIGNMENT_ANNOTATION])
    return indices(cluster, ",".join(assignment["main"][GPU_RESOURCE]))


def test_an_important_pod_takes_the_pair_of_the_two_least_important(cluster: Cluster) -> None:
    start_pod(cluster, "pair", 2, "middle")
    wait_until_ready(cluster, "pair")
    for name in ("one", "other"):
        start_pod(cluster, name, 1)
        wait_until_ready(cluster, name)
    held = {name: inside(cluster, name) for name in ("pair", "one", "other")}
    assert held["one"] | held["other"] in ({0, 1}, {2, 3})
    assert all(inside(cluster, name) == reserved(cluster, name) for name in held)

    start_pod(cluster, "important", 2, PRIORITY_CLASS_HIGH)
    wait_until_ready(cluster, "important")
    assert inside(cluster, "important") == reserved(cluster, "important") == held["one"] | held["other"]
    assert inside(cluster, "pair") == held["pair"], "the more important one was left alone"
    left = {pod["metadata"]["name"] for pod in cluster.get("--namespace", NAMESPACE, "pods")["items"]}
    assert left == {"pair", "important"}


def test_why_can_be_asked_through_the_api_server(cluster: Cluster) -> None:
    command = [sys.executable, "-m", "mcp2026.cli", "explain", "pod/important", "-n", NAMESPACE]
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert told.returncode == 0, told.stderr
    assert f"Pod {NAMESPACE}/important asks for 2 GPUs." in told.stdout
    assert "Bound to " in told.stdout


def test_what_if_reads_the_cluster_and_finds_no_room(cluster: Cluster, tmp_path: Any) -> None:
    pods = tmp_path / "pods.yaml"
    pods.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: next}\n"
        f"spec: {{containers: [{{name: main, resources: {{limits: {{{GPU_RESOURCE}: 1}}}}}}]}}\n"
    )
    command = [sys.executable, "-m", "mcp2026.cli", "what-if", "-f", str(pods)]
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert told.returncode == 0, told.stderr
    assert "0 of 1 pods find a place." in told.stdout
    assert "needs 1 GPU, 0 of 4 free" in told.stdout
