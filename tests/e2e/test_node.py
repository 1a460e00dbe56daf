"""A real node runs images of ours, answers exec and logs, and its Services' addresses work."""

import urllib.request
from pathlib import Path

import pytest

from tools.cluster import Cluster
from tools.cluster.images import build_image
from tools.cluster.node import load_image

pytestmark = pytest.mark.node

HELLO = Path(__file__).parent / "images" / "hello"
TAG = "localhost/hello:test"


def hello_pod(name: str) -> dict[str, object]:
    container = {
        "name": "hello",
        "image": TAG,
        "imagePullPolicy": "Never",
        "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
    }
    metadata = {"name": name, "labels": {"app": name}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.fixture(scope="module")
def hello(node_cluster: Cluster) -> Cluster:
    archive = build_image(HELLO / "Containerfile", HELLO, TAG, {"GREETING": "good day"})
    load_image(node_cluster, archive)
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "hello"},
        "spec": {"selector": {"app": "hello"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    node_cluster.apply(hello_pod("hello"), service)
    node_cluster.wait("pod/hello", "condition=Ready")
    return node_cluster


def test_the_node_is_ready_and_takes_pods(node_cluster: Cluster) -> None:
    (node,) = node_cluster.get("nodes")["items"]
    conditions = {one["type"]: one["status"] for one in node["status"]["conditions"]}
    assert conditions["Ready"] == "True"
    assert "taints" not in node["spec"]


def test_logs_of_a_pod_are_read_through_the_kubelet(hello: Cluster) -> None:
    assert "serving" in hello.kubectl("logs", "hello")


def test_a_command_runs_in_a_pod(hello: Cluster) -> None:
    assert hello.kubectl("exec", "hello", "--", "id", "-u").strip() == "65534"


def test_a_service_answers_on_its_address_from_this_machine(hello: Cluster) -> None:
    address = hello.get("service", "hello")["spec"]["clusterIP"]
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def greeting() -> str:
        with opener.open(f"http://{address}/", timeout=2) as answer:
            return str(answer.read().decode().strip())

    hello.wait_for("kube-proxy to learn the endpoint", lambda: _answers(greeting))
    assert greeting() == "good day"


def test_a_pod_reaches_the_api_server_at_its_service_address(hello: Cluster) -> None:
    script = (
        "import ssl, urllib.request; context = ssl.create_default_context("
        "cafile='/var/run/secrets/kubernetes.io/serviceaccount/ca.crt'); "
        "print(urllib.request.urlopen('https://10.96.0.1/version', context=context, timeout=5).status)"
    )
    assert hello.kubectl("exec", "hello", "--", "python3", "-c", script).strip() == "200"


def test_a_pod_reaches_itself_and_others_through_a_service(hello: Cluster) -> None:
    address = hello.get("service", "hello")["spec"]["clusterIP"]
    script = f"import urllib.request; print(urllib.request.urlopen('http://{address}/', timeout=5).status)"
    hello.apply(hello_pod("other"))
    hello.wait("pod/other", "condition=Ready")
    for pod in ("hello", "other"):
        assert hello.kubectl("exec", pod, "--", "python3", "-c", script).strip() == "200"


def _answers(call: object) -> bool:
    assert callable(call)
    try:
        call()
    except OSError:
        return False
    return True
