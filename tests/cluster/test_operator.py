"""The real operator process on a real control plane. Pods are moved by hand: there is no kubelet."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest
import yaml

from mcp2026.api.names import SLO_LATENCY_ANNOTATION
from mcp2026.api.serving import Priorities, QueuePolicy, ServingConfig, Tenant, decode_serving_config
from tests.cluster.test_crds import install_crds
from tests.loopback import free_port, http_get, kubeconfig_for
from tools.cluster.cluster import Cluster
from tools.cluster.errors import ClusterError

pytestmark = pytest.mark.control_plane

NAMESPACE = "operator-tests"
CHILDREN = ("deployment", "service", "configmap", "serviceaccount", "role", "rolebinding")
RESYNC_SECONDS = 1


@dataclass
class Operator:
    """The process and the cluster that it works on."""

    cluster: Cluster
    process: subprocess.Popen[bytes]
    liveness_port: int
    log: Path
    namespace: str = NAMESPACE

    def get(self, kind: str, name: str) -> dict[str, Any]:
        return self.cluster.get(kind, name, "-n", self.namespace)

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        return self.cluster.kubectl("-n", self.namespace, *arguments, input=text)

    def apply(self, name: str, **spec: Any) -> None:
        """Apply a model. With GPUs it names a scheduler that does not run here, so we bind its pods."""
        spec.setdefault("gpu", {"count": 1})
        version = {"versionId": "v1", "uri": "pvc://models/a.onnx"}
        resource = {
            "apiVersion": "mcp2026.io/v1alpha1",
            "kind": "InferenceModel",
            "metadata": {"name": name},
            "spec": {"versions": [version], **spec},
        }
        self.kubectl("apply", "-f", "-", text=yaml.safe_dump(resource))

    def patch_spec(self, name: str, **spec: Any) -> None:
        self.kubectl("patch", "im", name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        conditions = self.get("im", name).get("status", {}).get("conditions", [])
        return next((entry for entry in conditions if entry["type"] == kind), {})

    def wait_for_reason(self, name: str, kind: str, reason: str) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            condition = self.condition(name, kind)
            return condition if condition.get("reason") == reason else None

        return self.cluster.wait_for(f"{name}'s {kind} to have reason {reason}", found, 30)

    def wait_for_child(self, kind: str, name: str) -> dict[str, Any]:
        return self.cluster.wait_for(f"{kind} {name}", lambda: self.get(kind, name), 30)

    def pods(self, model: str) -> list[dict[str, Any]]:
        selector = f"mcp2026.io/inference-model={model}"
        items: list[dict[str, Any]] = self.cluster.get("pods", "-n", self.namespace, "-l", selector)["items"]
        return items

    def play_kubelet(self, model: str, count: int, **status: Any) -> None:
        """Give all pods of a model a status, once there are `count`."""
        pods = self.cluster.wait_for(
            f"{count} pods of {model}", lambda: found if len(found := self.pods(model)) == count else None, 30
        )
        for pod in pods:
            name = pod["metadata"]["name"]
            patch = json.dumps({"status": status})
            self.kubectl("patch", "pod", name, "--subresource=status", "--type=strategic", "-p", patch)


SERVING = {
    "phase": "Running",
    "conditions": [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Ready", "ContainersReady")],
}


def config(name: str) -> str:
    return f"{name}-serving"


def account(name: str) -> str:
    return f"{name}-mcp2026-runtime"


@pytest.fixture(scope="module")
def operator(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    install_crds(control_plane)
    control_plane.kubectl("create", "namespace", NAMESPACE)
    log = tmp_path_factory.mktemp("operator") / "log"
    port = free_port()
    running = Operator(control_plane, start(control_plane, log, port), port, log)
    try:
        yield running
    finally:
        running.process.terminate()
        assert running.process.wait(30) == 0, log.read_text()[-3000:]
        control_plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def start(
    cluster: Cluster, log: Path, port: int, *more: str, namespace: str = NAMESPACE
) -> subprocess.Popen[bytes]:
    arguments = [
        *("--runtime-image", "registry.example/mcp2026:1", "--namespace", namespace),
        *("--resync-seconds", str(RESYNC_SECONDS), "--liveness-port", str(port), *more),
    ]
    with log.open("ab") as sink:
        return subprocess.Popen(
            [sys.executable, "-m", "mcp2026.operator", *arguments],
            env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
            stdout=sink,
            stderr=sink,
        )


def test_a_model_becomes_its_children_and_its_status_says_so(operator: Operator) -> None:
    operator.apply("born")
    for kind in ("deployment", "service"):
        operator.wait_for_child(kind, "born")
    for kind in ("serviceaccount", "role", "rolebinding"):
        operator.wait_for_child(kind, account("born"))
    document = json.loads(operator.wait_for_child("configmap", config("born"))["data"]["serving.json"])
    assert document["versions"][0]["path"] == "/mnt/models/models/a.onnx"
    operator.wait_for_reason("born", "ResourcesAllocated", "WaitingForScheduling")
    model = operator.get("im", "born")
    assert model["status"]["phase"] == "Pending"
    assert model["status"]["observedGeneration"] == model["metadata"]["generation"] == 1
    assert operator.condition("born", "Ready")["observedGeneration"] == 1


def test_nothing_of_kopf_is_written_on_a_model(operator: Operator) -> None:
    operator.apply("untouched")
    operator.wait_for_child("deployment", "untouched")
    operator.wait_for_reason("untouched", "Ready", "WaitingForReplicas")
    metadata = operator.get("im", "untouched")["metadata"]
    assert "finalizers" not in metadata
    assert list(metadata["annotations"]) == ["kubectl.kubernetes.io/last-applied-configuration"]


def test_a_model_becomes_running_and_ready_when_its_pods_are(operator: Operator) -> None:
    operator.apply("served", replicas=2)
    operator.play_kubelet("served", 2, **SERVING)
    operator.wait_for_reason("served", "Ready", "AllReplicasReady")
    status = operator.get("im", "served")["status"]
    assert status["phase"] == "Running"
    assert [step["event"] for step in status["transitions"]] == ["ResourceAllocated"]
    assert (status["replicas"], status["readyReplicas"]) == (2, 2)
    assert status["traffic"] == {"revision": 1, "liveOn": 0, "of": 2}
    selector = status["selector"]
    assert selector == "mcp2026.io/inference-model=served"
    reasons = operator.kubectl(
        "get", "events", "--field-selector=involvedObject.kind=InferenceModel,involvedObject.name=served",
        "-o", "jsonpath={.items[*].reason}",
    )  # fmt: skip
    assert sorted(reasons.split()) == ["AllReplicasReady", "ResourceAllocated"]


@pytest.mark.parametrize("kind", CHILDREN)
def test_a_child_that_is_deleted_by_hand_comes_back(operator: Operator, kind: str) -> None:
    operator.apply("robbed")
    name = {"deployment": "robbed", "service": "robbed", "configmap": config("robbed")}.get(
        kind, account("robbed")
    )
    first = operator.wait_for_child(kind, name)["metadata"]["uid"]
    operator.kubectl("delete", kind, name, "--wait=true")
    operator.cluster.wait_for(
        f"a new {kind} {name}", lambda: operator.get(kind, name)["metadata"]["uid"] != first, 30
    )


DRIFT = [
    ("deployment", "drifted", {"spec": {"replicas": 7}}, lambda child: child["spec"]["replicas"] == 1),
    (
        "service",
        "drifted",
        {"spec": {"ports": [{"name": "http", "port": 8080, "targetPort": "wrong"}]}},
        lambda child: [port["targetPort"] for port in child["spec"]["ports"]] == ["http", "grpc"],
    ),
    (
        "role",
        "drifted-mcp2026-runtime",
        {"rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["watch"]}]},
        lambda child: child["rules"][0].get("resourceNames") == ["drifted-serving"],
    ),
    (
        "configmap",
        "drifted-serving",
        {"data": {"serving.json": "{}"}},
        lambda child: json.loads(child["data"]["serving.json"]).get("model") == "drifted",
    ),
]


@pytest.mark.parametrize(("kind", "name", "patch", "restored"), DRIFT, ids=[row[0] for row in DRIFT])
def test_a_child_that_is_edited_by_hand_is_restored(
    operator: Operator, kind: str, name: str, patch: dict[str, Any], restored: Any
) -> None:
    operator.apply("drifted")
    operator.wait_for_child(kind, name)
    operator.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps(patch))
    operator.cluster.wait_for(f"{kind} {name} as it was", lambda: restored(operator.get(kind, name)), 30)


def test_an_edit_reaches_the_configuration_and_no_pod_is_replaced(operator: Operator) -> None:
    operator.apply("edited")
    before = operator.wait_for_child("deployment", "edited")
    operator.patch_spec("edited", batching={"maxBatchSize": 16})
    operator.cluster.wait_for(
        "the new generation to be observed",
        lambda: operator.get("im", "edited")["status"]["observedGeneration"] == 2,
        30,
    )
    document = json.loads(operator.get("configmap", config("edited"))["data"]["serving.json"])
    assert (document["batching"]["maxBatchSize"], document["revision"]) == (16, 2)
    after = operator.get("deployment", "edited")
    assert after["metadata"]["generation"] == before["metadata"]["generation"]


def test_a_changed_promise_reaches_the_pods_that_wait_and_replaces_none(operator: Operator) -> None:
    def wait_for_promise(promise: str | None) -> set[str]:
        def found() -> list[dict[str, Any]] | None:
            pods = [pod["metadata"] for pod in operator.pods("promised")]
            told = [pod["annotations"].get(SLO_LATENCY_ANNOTATION) for pod in pods]
            return pods if told == [promise, promise] else None

        pods: list[dict[str, Any]] = operator.cluster.wait_for(f"two pods with {promise}", found, 30)
        return {pod["uid"] for pod in pods}

    operator.apply("promised", replicas=2, slo={"latencyP95Ms": 25})
    born = wait_for_promise("25")
    rolled_out = operator.get("deployment", "promised")["metadata"]["generation"]
    operator.patch_spec("promised", slo={"latencyP95Ms": 9.5})
    assert wait_for_promise("9.5") == born
    operator.patch_spec("promised", slo=None)
    assert wait_for_promise(None) == born
    assert operator.get("deployment", "promised")["metadata"]["generation"] == rolled_out


def test_quality_of_service_reaches_the_pods(operator: Operator) -> None:
    queue = {"maxRows": 256, "maxTimeoutMs": 1000}
    tenants = [{"tenantId": "acme", "weight": 3}, {"tenantId": "beta"}]
    operator.apply("fair", qos={"tenants": tenants, "priorities": {"queues": {"1": queue}}})
    operator.wait_for_child("deployment", "fair")
    document = operator.get("configmap", config("fair"))["data"]["serving.json"].encode()
    written = decode_serving_config(document)
    assert written.tenants == (Tenant("acme", 3), Tenant("beta", 1))
    assert written.priorities.queues == {1: QueuePolicy(max_rows=256, max_timeout_ms=1000.0)}
    operator.patch_spec("fair", qos={"priorities": {"queues": {"1": None}}})

    def second() -> ServingConfig | None:
        document = operator.get("configmap", config("fair"))["data"]["serving.json"].encode()
        found = decode_serving_config(document)
        return found if found.revision == 2 else None

    assert operator.cluster.wait_for("a new revision", second, 30) == msgspec.structs.replace(
        written, priorities=Priorities(), revision=2
    )


def test_the_service_says_that_grpc_is_http2_without_tls(operator: Operator) -> None:
    operator.apply("spoken")
    ports = operator.wait_for_child("service", "spoken")["spec"]["ports"]
    assert [(port["name"], port["port"], port.get("appProtocol")) for port in ports] == [
        ("http", 8080, None),
        ("grpc", 8081, "kubernetes.io/h2c"),
    ]
    container = operator.wait_for_child("deployment", "spoken")["spec"]["template"]["spec"]["containers"][0]
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == {
        "http": 8080,
        "grpc": 8081,
    }


def test_kubectl_scale_reaches_the_deployment_and_starts_no_rollout(operator: Operator) -> None:
    operator.apply("grown")
    operator.wait_for_child("deployment", "grown")
    operator.kubectl("scale", "im/grown", "--replicas=3")
    operator.cluster.wait_for(
        "three replicas", lambda: operator.get("deployment", "grown")["spec"]["replicas"] == 3, 30
    )
    operator.cluster.wait_for("three pods", lambda: len(operator.pods("grown")) == 3, 30)
    hashes = {pod["metadata"]["labels"]["pod-template-hash"] for pod in operator.pods("grown")}
    assert len(hashes) == 1


def test_a_deleted_model_leaves_nothing_behind(operator: Operator) -> None:
    operator.apply("mortal")
    operator.cluster.wait_for("a pod", lambda: operator.pods("mortal"), 30)
    operator.kubectl("delete", "im", "mortal", "--wait=true")

    def gone() -> bool:
        left = operator.kubectl(
            "get", "-o", "name",
            "deployments,replicasets,pods,services,configmaps,serviceaccounts,roles,rolebindings",
            "-l", "mcp2026.io/inference-model=mortal",
        )  # fmt: skip
        for pod in [line for line in left.split() if line.startswith("pod/")]:  # what a kubelet would do
            operator.kubectl("delete", pod, "--grace-period=0", "--force")
        return not left

    operator.cluster.wait_for("all children to be gone", gone, 30)
    time.sleep(2 * RESYNC_SECONDS)
    assert gone(), "a child came back after its model was deleted"


def test_a_model_waits_for_its_dependency_and_starts_when_it_is_ready(operator: Operator) -> None:
    operator.apply("front", dependsOn=["back"])
    condition = operator.wait_for_reason("front", "Ready", "WaitingForDependencies")
    assert condition["message"] == "waiting for back"
    with pytest.raises(ClusterError, match="NotFound"):
        operator.get("deployment", "front")
    operator.apply("back")
    operator.play_kubelet("back", 1, **SERVING)
    operator.wait_for_child("deployment", "front")


def test_models_that_wait_for_each_other_say_so_until_one_no_longer_does(operator: Operator) -> None:
    for name, dependency in (("ring-a", "ring-b"), ("ring-b", "ring-c"), ("ring-c", "ring-a")):
        operator.apply(name, dependsOn=[dependency])
    for name, way in (
        ("ring-a", "ring-a → ring-b → ring-c → ring-a"),
        ("ring-b", "ring-b → ring-c → ring-a → ring-b"),
        ("ring-c", "ring-c → ring-a → ring-b → ring-c"),
    ):
        condition = operator.wait_for_reason(name, "Ready", "DependencyCycle")
        assert way in condition["message"]
    with pytest.raises(ClusterError, match="NotFound"):
        operator.get("deployment", "ring-a")
    operator.patch_spec("ring-c", dependsOn=[])
    operator.wait_for_child("deployment", "ring-c")
    for name in ("ring-a", "ring-b"):
        operator.wait_for_reason(name, "Ready", "WaitingForDependencies")


def test_what_the_scheduler_says_of_a_pod_is_told_on_the_model(operator: Operator) -> None:
    operator.apply("stuck", gpu={"count": 0})
    condition = operator.wait_for_reason("stuck", "RolloutBlocked", "Unschedulable")
    assert condition["message"].endswith("no nodes available to schedule pods")
    assert operator.condition("stuck", "Ready")["reason"] == "Unschedulable"


def test_a_used_up_quota_is_told_on_the_model(operator: Operator) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus"},
        "spec": {"hard": {"requests.mcp2026.io/gpu": "0"}},
    }
    operator.kubectl("apply", "-f", "-", text=yaml.safe_dump(quota))
    try:
        operator.cluster.wait_for(
            "the quota to be counted", lambda: operator.get("resourcequota", "gpus")["status"].get("used"), 30
        )
        operator.apply("greedy", gpu={"count": 1})
        condition = operator.wait_for_reason("greedy", "RolloutBlocked", "QuotaExceeded")
        assert "exceeded quota: gpus" in condition["message"]
        assert operator.get("im", "greedy")["status"]["phase"] == "Pending"
    finally:
        operator.kubectl("delete", "resourcequota", "gpus")


def test_somebody_elses_deployment_of_the_same_name_is_left_alone(operator: Operator) -> None:
    operator.kubectl("create", "deployment", "taken", "--image=registry.example/other:1", "--replicas=0")
    before = operator.get("deployment", "taken")["spec"]
    operator.apply("taken")
    condition = operator.wait_for_reason("taken", "Ready", "NameTaken")
    assert "Deployment taken exists" in condition["message"]
    time.sleep(3 * RESYNC_SECONDS)  # a full list does not show it, and must not make it forgotten
    assert operator.get("deployment", "taken")["spec"] == before
    assert operator.condition("taken", "Ready")["reason"] == "NameTaken"


def versions(operator: Operator) -> dict[str, str]:
    kinds = "inferencemodels,deployments,services,configmaps,serviceaccounts,roles,rolebindings"
    items = operator.cluster.get(kinds, "-n", NAMESPACE)["items"]
    return {
        f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["resourceVersion"] for item in items
    }


def test_at_rest_nothing_is_written_over_several_full_lists(operator: Operator) -> None:
    operator.apply("calm", resources={"limits": {"cpu": "1000m", "memory": "1024Mi"}})
    operator.play_kubelet("calm", 1, **SERVING)
    operator.wait_for_reason("calm", "Ready", "AllReplicasReady")
    time.sleep(2)
    before = versions(operator)
    time.sleep(4 * RESYNC_SECONDS)
    assert versions(operator) == before
    assert "Deployment/calm" in before


def test_the_liveness_endpoint_tells_the_age_of_the_newest_full_list(operator: Operator) -> None:
    status, body = http_get(operator.liveness_port, "/healthz")
    assert status == 200
    assert 0 <= json.loads(body)["seconds_since_full_list"] < 60


def test_no_traceback_was_logged(operator: Operator) -> None:
    assert "Traceback" not in operator.log.read_text()


def test_an_operator_that_was_killed_leaves_the_rest_to_its_successor(
    operator: Operator, tmp_path: Path
) -> None:
    operator.process.send_signal(signal.SIGKILL)
    operator.process.wait()
    operator.apply("orphan")
    operator.kubectl("delete", "im", "born", "--ignore-not-found")
    operator.process = start(operator.cluster, operator.log, operator.liveness_port)
    operator.wait_for_child("deployment", "orphan")


def test_without_the_crd_the_operator_names_it_and_how_to_install_it(tmp_path: Path) -> None:
    class Bare(BaseHTTPRequestHandler):
        """Answers as an API server that lacks the group: the shared one must keep its CRDs."""

        def do_GET(self) -> None:
            self.send_response(404)
            self.end_headers()
            self.wfile.write(b'{"kind": "Status", "code": 404, "message": "not found"}')

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Bare)
    Thread(target=server.serve_forever, daemon=True).start()
    kubeconfig = kubeconfig_for(server.server_port, tmp_path)
    ended = subprocess.run(
        [sys.executable, "-m", "mcp2026.operator", "--runtime-image", "x"],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    server.shutdown()
    assert ended.returncode == 1
    assert "CustomResourceDefinition inferencemodels.mcp2026.io is not installed" in ended.stderr
    assert "kubectl apply --server-side -f crds/" in ended.stderr
