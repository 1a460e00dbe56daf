"""A real kube-scheduler with the README's configuration, the real extender, and nodes that are only objects.

The extender runs with the rights that its README states and no more. Nodes need no kubelet: whether and
where a pod is bound is all that is looked at, and pods tolerate that their node does not report.
"""

import json
import re
import socket
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcp2026.api.gpu_assignment import parse_gpu_assignment
from mcp2026.api.names import EXTENDER_PORT, GPU_ASSIGNMENT_ANNOTATION, GPU_RESOURCE, SCHEDULER_NAME
from tests.fakes.clusters import topology
from tools.cluster import Cluster, up
from tools.cluster.control_plane import ControlPlaneOptions, scheduler_configuration
from tools.cluster.go_programs import build
from tools.cluster.ports import claim
from tools.cluster.processes import end, start
from tools.cluster.record import StartedProgram

pytestmark = pytest.mark.control_plane

ROOT = Path(__file__).parents[2]
PAIRS = "4xa100-pcie-nvlink-pairs"
"""NVLink bridges join 0 with 1 and 2 with 3."""

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

    def start(self) -> None:
        program = [sys.executable, "-m", "mcp2026.scheduler_extender", "--log-format", "json"]
        flags = ["--port", str(self.port), "--kubeconfig", str(self.kubeconfig)]
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


def _install_gpu_topologies(cluster: Cluster) -> None:
    cluster.apply((ROOT / "crds" / "gputopologies.yaml").read_text())
    cluster.wait("crd/gputopologies.mcp2026.io", "condition=Established")


@pytest.fixture(scope="module")
def extender(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extender]:
    """The extender, not started, with a kube-scheduler that will ask it."""
    folder = tmp_path_factory.mktemp("scheduling")
    _install_gpu_topologies(control_plane)
    extender = Extender(control_plane, folder)
    (block,) = re.findall(
        r"```yaml\n(.*?)```", (ROOT / "scheduler_extender/README.md").read_text(), re.DOTALL
    )
    here = block.replace(f"127.0.0.1:{EXTENDER_PORT}/", f"127.0.0.1:{extender.port}/")
    assert here != block
    config = folder / "scheduler.yaml"
    config.write_text(scheduler_configuration(here, control_plane.kubeconfig))
    flags = [f"--config={config}", "--secure-port=0", "--pod-max-in-unschedulable-pods-duration=15s"]
    scheduler = start(control_plane.record, SCHEDULER_NAME, [build("kube-scheduler", lambda _: None), *flags])
    yield extender
    extender.stop()
    end([scheduler.identity])


@pytest.fixture
def ready(extender: Extender) -> Iterator[Extender]:
    extender.start_ready()
    yield extender
    extender.stop()


@pytest.fixture(autouse=True)
def clean(control_plane: Cluster) -> Iterator[None]:
    yield
    control_plane.kubectl("delete", "pods", "--selector", LABEL, "--grace-period=0", "--force")
    control_plane.kubectl("delete", "nodes,gputopologies", "--selector", LABEL)


def add_node(cluster: Cluster, name: str, held: dict[int, str], cpus: int = 8, gpus: int = 4) -> None:
    """A ready node that says it has `gpus` GPUs, and the topology that its device plugin would write."""
    amounts = {"cpu": str(cpus), "memory": "64Gi", "pods": "110", GPU_RESOURCE: str(gpus)}
    condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "made by a test"}
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": LABELS}})
    patch_status(
        cluster, f"node/{name}", {"capacity": amounts, "allocatable": amounts, "conditions": [condition]}
    )
    document = topology(name, PAIRS, held)
    status = document.pop("status")
    document["metadata"]["labels"] = LABELS
    cluster.apply(document)
    patch_status(cluster, f"gputopology/{name}", status)


def patch_status(cluster: Cluster, resource: str, status: dict[str, Any]) -> None:
    patch = json.dumps({"status": status})
    cluster.kubectl("patch", resource, "--subresource=status", "--type=merge", "-p", patch)


def add_pod(cluster: Cluster, name: str, gpus: int, priority_class: str = "") -> None:
    amounts = {"cpu": "1", **({GPU_RESOURCE: str(gpus)} if gpus else {})}
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": LABELS},
            "spec": {
                "schedulerName": SCHEDULER_NAME,
                **({"priorityClassName": priority_class} if priority_class else {}),
                "tolerations": [{"operator": "Exists"}],
                "containers": [
                    {"name": "main", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
                ],
            },
        }
    )


def node_of(cluster: Cluster, pod: str) -> str:
    return str(cluster.get("pod", pod)["spec"].get("nodeName", ""))


def bound(cluster: Cluster, pod: str, timeout_s: float = 30) -> str:
    return cluster.wait_for(f"{pod} to be bound", lambda: node_of(cluster, pod), timeout_s)


def why_waiting(cluster: Cluster, pod: str, words: str) -> str:
    """The message of the pod's condition PodScheduled=False, once it has `words`."""

    def message() -> str:
        for condition in cluster.get("pod", pod)["status"].get("conditions", ()):
            if (condition["type"], condition["status"]) == ("PodScheduled", "False"):
                return str(condition["message"]) if words in condition["message"] else ""
        return ""

    return cluster.wait_for(f"{pod} to wait because of {words!r}", message)


def test_two_gpus_go_where_a_linked_pair_is_free(control_plane: Cluster, ready: Extender) -> None:
    add_node(control_plane, "linked", {0: "other/a", 1: "other/b"})
    # Far more processors: by its own terms alone, kube-scheduler would take the emptier node.
    add_node(control_plane, "split", {1: "other/a", 3: "other/b"}, cpus=96)
    ready.wait_until_fitting(2, ["linked", "split"], of=["linked", "split"])
    add_pod(control_plane, "no-gpu", 0)
    assert bound(control_plane, "no-gpu") == "split"
    add_pod(control_plane, "pair", 2)
    assert bound(control_plane, "pair") == "linked"


def reserved(cluster: Cluster, pod: str) -> list[int]:
    """The indices of the GPUs that were reserved for the pod when it was bound."""
    value = cluster.get("pod", pod)["metadata"]["annotations"][GPU_ASSIGNMENT_ANNOTATION]
    index_of = {gpu["uuid"]: gpu["index"] for gpu in topology("n", PAIRS)["status"]["gpus"]}
    return sorted(index_of[uuid] for uuid in parse_gpu_assignment(value)["main"][GPU_RESOURCE])


def test_exact_gpus_are_reserved_in_the_act_of_binding(control_plane: Cluster, ready: Extender) -> None:
    add_node(control_plane, "node", {1: "other/a"})
    ready.wait_until_fitting(3, ["node"], of=["node"])
    for name, gpus, expected in (("pair", 2, [2, 3]), ("single", 1, [0])):
        add_pod(control_plane, name, gpus)
        assert bound(control_plane, name) == "node"
        assert reserved(control_plane, name) == expected


def test_an_important_pod_evicts_the_two_that_hold_a_linked_pair(
    control_plane: Cluster, ready: Extender
) -> None:
    add_node(control_plane, "node", {})
    ready.wait_until_fitting(4, ["node"], of=["node"])
    names = ("a", "b", "c", "d")
    holders = {}
    for name in names:
        add_pod(control_plane, name, 1)
        bound(control_plane, name)
        (holders[name],) = reserved(control_plane, name)
    assert sorted(holders.values()) == [0, 1, 2, 3]
    # One of the first pair is protected, so the second pair goes, whoever was bound first.
    protecting = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "labels": LABELS},
    }
    kept = next(name for name, gpu in holders.items() if gpu == 0)
    control_plane.kubectl("label", "pod", kept, "keep=yes")
    control_plane.apply(
        protecting | {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"keep": "yes"}}}}
    )
    control_plane.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high", "labels": LABELS},
            "value": 1000,
        }
    )
    add_pod(control_plane, "important", 2, priority_class="high")

    def leaving() -> set[str]:
        pods = {name: control_plane.get("pod", name) for name in names}
        return {name for name, pod in pods.items() if pod["metadata"].get("deletionTimestamp")}

    victims = control_plane.wait_for("victims", leaving)
    assert {holders[name] for name in victims} == {2, 3}
    for name in victims:  # there is no kubelet that would end them
        control_plane.kubectl("delete", "pod", name, "--grace-period=0", "--force")
    assert bound(control_plane, "important", timeout_s=60) == "node"
    assert reserved(control_plane, "important") == [2, 3]
    control_plane.kubectl("delete", "pdb,priorityclass", "--selector", LABEL)


def test_pods_fill_a_node_up_and_the_next_one_goes_elsewhere(control_plane: Cluster, ready: Extender) -> None:
    add_node(control_plane, "first", {})
    add_node(control_plane, "second", {0: "other/a", 2: "other/a"})
    ready.wait_until_fitting(2, ["first", "second"], of=["first", "second"])
    for name in ("a", "b"):
        add_pod(control_plane, name, 2)
        assert bound(control_plane, name) == "first", "each gets a linked pair"
    add_pod(control_plane, "c", 2)
    assert bound(control_plane, "c") == "second"
    ready.wait_until_fitting(1, [], of=["first", "second"])
    add_pod(control_plane, "d", 1)
    reason = "needs 1 GPU, 0 of 4 free (0,1,2,3 held)"
    assert reason in why_waiting(control_plane, "d", "0,1,2,3 held")


def test_a_pod_that_fits_nowhere_waits_with_our_reasons_and_goes_on_when_gpus_get_free(
    control_plane: Cluster, ready: Extender
) -> None:
    add_node(control_plane, "busy", {0: "other/a", 1: "other/a"})
    ready.wait_until_fitting(2, ["busy"], of=["busy"])
    add_pod(control_plane, "three", 3)
    reason = "needs 3 GPUs, 2 of 4 free (0,1 held)"
    assert reason in why_waiting(control_plane, "three", "needs 3 GPUs")

    def told() -> bool:
        events = control_plane.get("events", "--field-selector=involvedObject.name=three")["items"]
        return any(event["reason"] == "FailedScheduling" and reason in event["message"] for event in events)

    control_plane.wait_for("the event", told)
    # No node or pod changes with it: kube-scheduler looks again by its timer.
    patch_status(control_plane, "gputopology/busy", topology("busy", PAIRS)["status"])
    assert bound(control_plane, "three", timeout_s=90) == "busy"


def test_gpus_of_a_deleted_pod_are_given_away_before_the_topology_tells(
    control_plane: Cluster, ready: Extender
) -> None:
    add_node(control_plane, "full", {})
    ready.wait_until_fitting(4, ["full"], of=["full"])
    add_pod(control_plane, "first", 4)
    assert bound(control_plane, "first") == "full"
    holds_all = dict.fromkeys(range(4), "default/first")
    patch_status(control_plane, "gputopology/full", topology("full", PAIRS, holds_all)["status"])
    add_pod(control_plane, "second", 4)
    why_waiting(control_plane, "second", "mcp2026.io/gpu")
    control_plane.kubectl("delete", "pod", "first", "--grace-period=0", "--force")
    assert bound(control_plane, "second", timeout_s=14) == "full"  # before kube-scheduler's timer of 15 s


def test_nodes_that_can_never_fit_say_so(control_plane: Cluster, ready: Extender) -> None:
    add_node(control_plane, "small", {}, gpus=8)
    ready.wait_until_fitting(4, ["small"], of=["small"])
    add_pod(control_plane, "eight", 8)
    assert "has 4 GPUs, 8 asked" in why_waiting(control_plane, "eight", "8 asked")
    control_plane.kubectl("delete", "gputopology", "small")
    ready.wait_until_fitting(1, [], of=["small"])
    add_pod(control_plane, "one", 1)
    assert "is the device plugin running?" in why_waiting(control_plane, "one", "no GPUTopology")


def test_while_the_extender_is_away_gpu_pods_wait_and_others_do_not(
    control_plane: Cluster, extender: Extender
) -> None:
    add_node(control_plane, "idle", {})
    add_pod(control_plane, "waits", 1)
    why_waiting(control_plane, "waits", "connection refused")
    add_pod(control_plane, "needs-none", 0)
    assert bound(control_plane, "needs-none") == "idle"
    assert node_of(control_plane, "waits") == ""
    extender.start_ready()
    try:
        assert bound(control_plane, "waits", timeout_s=60) == "idle"
    finally:
        extender.stop()


def test_the_api_server_may_restart(tmp_path: Path) -> None:
    options = ControlPlaneOptions(scheduler=False)
    with up("test-extender-restart", options=options, owned=True, report=lambda _: None) as cluster:
        _install_gpu_topologies(cluster)
        add_node(cluster, "before", {})
        extender = Extender(cluster, tmp_path)
        extender.start_ready()
        (server,) = [program for program in cluster.record.programs if program.program == "kube-apiserver"]
        command = Path(f"/proc/{server.identity.pid}/cmdline").read_text().rstrip("\0").split("\0")
        end([server.identity])
        cluster.wait_for(
            "the extender to notice", lambda: 'watch_breaks_total{kind="nodes"}' in extender.get("/metrics")
        )
        assert extender.get("/readyz").startswith("200"), "it still answers from what it knew"
        start(cluster.record, "kube-apiserver", command)
        cluster.wait_for("the API server", lambda: cluster.kubectl("get", "--raw", "/readyz") == "ok")
        add_node(cluster, "after", {})
        extender.wait_until_fitting(4, ["before", "after"], of=["before", "after"])
