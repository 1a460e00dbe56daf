"""A control plane with a kube-scheduler that asks a real extender, and nodes that are only objects.

The extender runs with the rights that its README states and no more. Nodes need no kubelet: whether and
where a pod is bound is all that is looked at, and pods tolerate that their node does not report.
"""

import json
import socket
import sys
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from kubernetes.client import CoreV1Api
from kubernetes.watch import Watch

from mcp2026.api.gpu_assignment import parse_gpu_assignment
from mcp2026.api.names import (
    GANG_ANNOTATION,
    GANG_SIZE_ANNOTATION,
    GPU_ASSIGNMENT_ANNOTATION,
    GPU_RESOURCE,
    SCHEDULER_NAME,
)
from tests.fakes.clusters import topology
from tools.cluster import Cluster
from tools.cluster.errors import ClusterError
from tools.cluster.ports import claim
from tools.cluster.processes import end, start
from tools.cluster.record import StartedProgram

ROOT = Path(__file__).parents[2]
PAIRS = "4xa100-pcie-nvlink-pairs"
"""NVLink bridges join 0 with 1 and 2 with 3."""

Pods = dict[str, dict[str, Any]]
"""By name, as the API server has them."""

LABEL = "mcp2026.io/made-by"
LABELS = {LABEL: "test-scheduling"}

RIGHTS = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "extender"},
    "rules": [
        {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]},
        {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["mcp2026.io"], "resources": ["gputopologies"], "verbs": ["get", "list", "watch"]},
    ],
}


class Extender:
    """The extender's process beside a cluster, with a service account of its own."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        (self.port,) = claim(cluster.record, 1)
        self.kubeconfig = _service_account(cluster, folder)
        self._started: StartedProgram | None = None
        self.configuration = folder / "extender.yaml"
        self.configuration.write_text("")

    def start(self) -> None:
        program = [sys.executable, "-m", "mcp2026.scheduler_extender", "--log-format", "json"]
        flags = ["--port", str(self.port), "--kubeconfig", str(self.kubeconfig)]
        flags += ["--config", str(self.configuration)]
        self._started = start(self.cluster.record, "extender", [*program, *flags])

    def start_ready(self) -> None:
        self.start()
        self.cluster.wait_for("the extender to be ready", lambda: self.get("/readyz").startswith("200"))

    def stop(self) -> None:
        if self._started is not None:
            end([self._started.identity])
            self._started = None

    def fitting(self, gpus: int, *nodes: str) -> list[str]:
        """The nodes that it says can take `gpus`; for tests to wait until it has seen what they made."""
        pod = {"spec": {"containers": [{"resources": {"limits": {GPU_RESOURCE: gpus}}}]}}
        body = json.dumps({"Pod": pod, "NodeNames": nodes}).encode()
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.port}/v1/filter", data=body, timeout=5
        ) as answer:
            result: dict[str, Any] = json.load(answer)
        return list(result["NodeNames"])

    def wait_until_fitting(self, gpus: int, nodes: list[str], *, of: list[str]) -> None:
        self.cluster.wait_for(
            f"the extender to see that of {of} just {nodes} have {gpus} GPUs free",
            lambda: self.fitting(gpus, *of) == nodes,
        )

    def get(self, path: str) -> str:
        """The status and the body of a GET, in one text; empty while nobody answers."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
            head, _, body = answer.partition("\r\n\r\n")
            return f"{head.split()[1]} {body}"
        return ""


def _service_account(cluster: Cluster, folder: Path) -> Path:
    account = {"kind": "ServiceAccount", "name": "extender", "namespace": "default"}
    cluster.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "extender"}},
        RIGHTS,
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "extender"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "extender"},
            "subjects": [account],
        },
    )
    content = yaml.safe_load(cluster.kubeconfig.read_text())
    token = cluster.kubectl("create", "token", "extender").strip()
    for user in content["users"]:
        user["user"] = {"token": token}
    path = folder / "extender.kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return path


def install_gpu_topologies(cluster: Cluster) -> None:
    cluster.apply((ROOT / "crds" / "gputopologies.yaml").read_text())
    # Not by `kubectl wait`, which fails on a definition that has no conditions yet.
    cluster.wait_for("the definition of GPUTopology", lambda: _is_established(cluster))


def _is_established(cluster: Cluster) -> bool:
    conditions = cluster.get("crd", "gputopologies.mcp2026.io").get("status", {}).get("conditions") or ()
    return any((one["type"], one["status"]) == ("Established", "True") for one in conditions)


def add_node(
    cluster: Cluster,
    name: str,
    held: dict[int, str],
    cpus: int = 8,
    gpus: int = 4,
    unhealthy: tuple[int, ...] = (),
) -> None:
    """A ready node that says it has `gpus` GPUs, and the topology that its device plugin would write."""
    amounts = {"cpu": str(cpus), "memory": "64Gi", "pods": "110", GPU_RESOURCE: str(gpus)}
    condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "made by a test"}
    document = topology(name, PAIRS, held, unhealthy)
    status = document.pop("status")
    document["metadata"]["labels"] = LABELS
    cluster.apply(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": LABELS}}, document
    )
    patch_status(cluster, f"gputopology/{name}", status)
    # Last, for kube-scheduler looks again at pods that wait when it sees this, and at no change of the other.
    patch_status(
        cluster, f"node/{name}", {"capacity": amounts, "allocatable": amounts, "conditions": [condition]}
    )


def patch_status(cluster: Cluster, resource: str, status: dict[str, Any]) -> None:
    patch = json.dumps({"status": status})
    cluster.kubectl("patch", resource, "--subresource=status", "--type=merge", "-p", patch)


def pod(name: str, gpus: int, priority_class: str = "", gang: str = "", size: int = 0) -> dict[str, Any]:
    """A pod for our scheduler that asks for `gpus`, perhaps as a member of a gang of `size`."""
    amounts = {"cpu": "1", **({GPU_RESOURCE: str(gpus)} if gpus else {})}
    annotations = {GANG_ANNOTATION: gang, GANG_SIZE_ANNOTATION: str(size)} if gang else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": LABELS, "annotations": annotations},
        "spec": {
            "schedulerName": SCHEDULER_NAME,
            **({"priorityClassName": priority_class} if priority_class else {}),
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {"name": "main", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
            ],
        },
    }


def add_pod(cluster: Cluster, name: str, gpus: int, priority_class: str = "") -> None:
    cluster.apply(pod(name, gpus, priority_class))


def watch_pods(
    cluster: Cluster, description: str, holds: Callable[[Pods], bool], timeout_s: float = 60
) -> Pods:
    """Watch the pods made here until `holds` says so of those known by then; return these, by name."""
    known: Pods = {}
    watch, api = Watch(), CoreV1Api(cluster.client())
    for event in watch.stream(
        api.list_namespaced_pod, "default", label_selector=LABEL, timeout_seconds=round(timeout_s)
    ):
        found = event["raw_object"]
        name = found["metadata"]["name"]
        if event["type"] == "DELETED":
            known.pop(name, None)
        else:
            known[name] = found
        if holds(known):
            watch.stop()
            return known
    words = {name: (is_bound(found), message_of(found)) for name, found in known.items()}
    raise ClusterError(f"watched {timeout_s:.0f} s in vain for {description}; there are {words}")


def wait_until_bound(cluster: Cluster, *names: str, timeout_s: float = 60) -> Pods:
    """Watch until all these are bound; return them, by name."""
    description = f"{', '.join(names)} to be bound"
    found = watch_pods(cluster, description, lambda pods: all(map(is_bound, map(pods.get, names))), timeout_s)
    return {name: found[name] for name in names}


def is_bound(pod: dict[str, Any] | None) -> bool:
    return pod is not None and bool(pod["spec"].get("nodeName"))


def message_of(pod: dict[str, Any] | None) -> str:
    """Why the pod waits, as kube-scheduler wrote it to its status; empty if it does not."""
    conditions = (pod or {}).get("status", {}).get("conditions", ())
    found = [one for one in conditions if (one["type"], one["status"]) == ("PodScheduled", "False")]
    return str(found[0].get("message", "")) if found else ""


def devices_of(pods: Pods) -> list[tuple[str, str]]:
    """The node and the device of each GPU that is reserved for `pods`: in a right world each once."""
    return [
        (found["spec"]["nodeName"], device)
        for found in pods.values()
        for devices in parse_gpu_assignment(
            found["metadata"]["annotations"][GPU_ASSIGNMENT_ANNOTATION]
        ).values()
        for device in devices[GPU_RESOURCE]
    ]


def node_of(cluster: Cluster, pod: str) -> str:
    return str(cluster.get("pod", pod)["spec"].get("nodeName", ""))


def bound(cluster: Cluster, pod: str, timeout_s: float = 30) -> str:
    return cluster.wait_for(f"{pod} to be bound", lambda: node_of(cluster, pod), timeout_s)


def why_waiting(cluster: Cluster, pod: str, words: str) -> str:
    """The message of the pod's condition PodScheduled=False, once it has `words`."""

    def message() -> str:
        said = message_of(cluster.get("pod", pod))
        return said if words in said else ""

    return cluster.wait_for(f"{pod} to wait because of {words!r}", message)


def reserved(cluster: Cluster, pod: str) -> list[int]:
    """The indices of the GPUs that were reserved for the pod when it was bound."""
    value = cluster.get("pod", pod)["metadata"]["annotations"][GPU_ASSIGNMENT_ANNOTATION]
    index_of = {gpu["uuid"]: gpu["index"] for gpu in topology("n", PAIRS)["status"]["gpus"]}
    return sorted(index_of[uuid] for uuid in parse_gpu_assignment(value)["main"][GPU_RESOURCE])
