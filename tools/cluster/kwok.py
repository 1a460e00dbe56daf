"""Nodes that kwok plays: they are Ready, take pods and report them Running, and run nothing."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tools.cluster.cluster import Cluster
from tools.cluster.go_programs import build
from tools.cluster.ports import claim
from tools.cluster.processes import start
from tools.cluster.progress import Report
from tools.cluster.readiness import READY_TIMEOUT_S, HttpProbe, wait_ready

PLAYED = {"kwok.x-k8s.io/node": "fake"}
"""kwok plays the nodes that carry this annotation, and leaves others alone."""

STAGES = Path(__file__).with_name("kwok_stages.yaml")
"""How nodes and pods go from one state to the next."""

CAPACITY = {"cpu": "64", "memory": "512Gi", "pods": "256", "ephemeral-storage": "1Ti"}
"""What a played node offers, unless told otherwise."""

CREATING_THREADS = 8
"""Requests under way at the same time: kubectl sends one after the other, and slowly on purpose."""


def played_node(
    name: str, resources: Mapping[str, str] | None = None, labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return a Node for kwok to play, with more resources than the usual ones if given."""
    capacity = {**CAPACITY, **(resources or {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": dict(PLAYED),
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "type": "kwok",
                **(labels or {}),
            },
        },
        "status": {"capacity": capacity, "allocatable": capacity, "phase": "Running"},
    }


def start_kwok(
    cluster: Cluster,
    nodes: int,
    resources: Mapping[str, str],
    report: Report,
    extra_arguments: Sequence[str] = (),
) -> None:
    """Start kwok beside a control plane and return when its first nodes are Ready."""
    (port,) = claim(cluster.record, 1)
    arguments = [
        f"--kubeconfig={cluster.kubeconfig}",
        "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        f"--server-address=127.0.0.1:{port}",
        "--node-lease-duration-seconds=40",
        f"--config={STAGES}",
        "-v=-4",  # warnings and errors: a line for each pod costs time with thousands of them
        *extra_arguments,
    ]
    program = start(cluster.record, "kwok", [build("kwok", report), *arguments])
    wait_ready(program, HttpProbe(f"http://127.0.0.1:{port}/healthz"), READY_TIMEOUT_S)
    add_nodes(cluster, [played_node(f"kwok-{index}", resources) for index in range(nodes)])


def add_nodes(cluster: Cluster, nodes: Sequence[Mapping[str, Any]], timeout_s: float = 300.0) -> None:
    """Create played nodes, many at a time, and return when all are Ready."""
    from kubernetes.client import CoreV1Api

    api = CoreV1Api(cluster.client())
    with ThreadPoolExecutor(CREATING_THREADS) as pool:
        list(pool.map(api.create_node, nodes))
    names = {node["metadata"]["name"] for node in nodes}

    def all_ready() -> bool:
        return names <= ready_nodes(api.list_node(resource_version="0").to_dict()["items"])

    cluster.wait_for(f"{len(names)} played nodes to be Ready", all_ready, timeout_s, poll_every_s=0.5)


def ready_nodes(nodes: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the names of those nodes that are Ready."""
    return {
        node["metadata"]["name"]
        for node in nodes
        for condition in node["status"]["conditions"] or ()
        if condition["type"] == "Ready" and condition["status"] == "True"
    }
