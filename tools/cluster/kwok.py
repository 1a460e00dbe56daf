"""Nodes that kwok plays: they are Ready, take pods and report them Running, and run nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.cluster.cluster import Cluster
from tools.cluster.go_programs import build
from tools.cluster.ports import claim
from tools.cluster.processes import start
from tools.cluster.progress import Report
from tools.cluster.readiness import READY_TIMEOUT_S, HttpProbe, wait_ready

#: kwok plays the nodes that carry this annotation, and leaves others alone.
PLAYED = {"kwok.x-k8s.io/node": "fake"}

#: How nodes and pods go from one state to the next.
STAGES = Path(__file__).with_name("kwok_stages.yaml")

#: What a played node offers, unless told otherwise.
CAPACITY = {"cpu": "64", "memory": "512Gi", "pods": "256", "ephemeral-storage": "1Ti"}

#: Nodes created by one request of kubectl.
NODES_PER_APPLY = 250


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


def start_kwok(cluster: Cluster, nodes: int, resources: Mapping[str, str], report: Report) -> None:
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
    ]
    program = start(cluster.record, "kwok", [build("kwok", report), *arguments])
    wait_ready(program, HttpProbe(f"http://127.0.0.1:{port}/healthz"), READY_TIMEOUT_S)
    add_nodes(cluster, [played_node(f"kwok-{index}", resources) for index in range(nodes)])


def add_nodes(cluster: Cluster, nodes: list[dict[str, Any]], timeout_s: float = 120.0) -> None:
    """Create played nodes and wait until all are Ready."""
    for begin in range(0, len(nodes), NODES_PER_APPLY):
        items = nodes[begin : begin + NODES_PER_APPLY]
        cluster.apply({"apiVersion": "v1", "kind": "List", "items": items})
    names = [f"node/{node['metadata']['name']}" for node in nodes]
    for begin in range(0, len(names), NODES_PER_APPLY):
        some = names[begin : begin + NODES_PER_APPLY]
        cluster.kubectl(
            "wait", *some, "--for=condition=Ready", f"--timeout={timeout_s:.0f}s", timeout_s=timeout_s + 30
        )
