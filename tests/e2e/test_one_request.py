"""One request through everything: chart, operator, scheduler, device plugin, runtime, on a real node."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.e2e.state import gpus_by_uuid, state_of
from tools.cluster import Cluster
from tools.demo.inference import TOLERANCE, infer, is_ready, random_images, run_directly
from tools.demo.installation import NAMESPACE, ROOT, Installation, provide_models, sample_model

pytestmark = pytest.mark.node

EXAMPLE = ROOT / "examples" / "resnet50.yaml"
PAIRS = [{0, 1}, {2, 3}]


@pytest.fixture(scope="module")
def model() -> Path:
    return sample_model("resnet50")


@pytest.fixture(scope="module")
def resnet50(installation: Installation, model: Path) -> Cluster:
    cluster = installation.cluster
    provide_models(cluster, model.parent)
    cluster.kubectl("apply", "-f", str(EXAMPLE))
    try:
        cluster.wait("inferencemodel/resnet50", "condition=Ready", timeout_s=240)
    except Exception as error:
        pytest.fail(f"{error}\n{state_of(cluster)}")
    return cluster


def pod_of(cluster: Cluster, model: str) -> dict[str, Any]:
    (pod,) = cluster.get("pods", "-l", f"mcp2026.io/inference-model={model}")["items"]
    return pod


def test_the_pod_was_placed_by_our_scheduler_through_the_extender(resnet50: Cluster) -> None:
    pod = pod_of(resnet50, "resnet50")
    assert pod["spec"]["schedulerName"] == "mcp2026-scheduler"
    assert pod["spec"]["priority"] == 1_000_000
    assert pod["metadata"]["annotations"]["resource.kubernetes.io/device-type"] == "nvidia.com/gpu"
    metrics = resnet50.kubectl(
        "exec", "--namespace", NAMESPACE, "deploy/mcp2026-scheduler", "-c", "extender", "--",
        "python3", "-c",
        "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8888/metrics').read().decode())",
    )  # fmt: skip
    handled = [line for line in metrics.splitlines() if 'verb="filter"' in line and "_count" in line]
    assert handled
    assert float(handled[0].rsplit(" ", 1)[1]) >= 1


def test_the_container_holds_a_bridged_pair(resnet50: Cluster) -> None:
    uuids = resnet50.kubectl("exec", "deploy/resnet50", "--", "printenv", "MCP2026_GPU_UUIDS").strip()
    visible = resnet50.kubectl("exec", "deploy/resnet50", "--", "printenv", "NVIDIA_VISIBLE_DEVICES").strip()
    gpus = gpus_by_uuid(resnet50)
    assert uuids == visible
    assert {gpus[uuid]["index"] for uuid in uuids.split(",")} in PAIRS


def test_the_topology_says_who_holds_which_gpu(resnet50: Cluster) -> None:
    pod = pod_of(resnet50, "resnet50")["metadata"]["name"]

    def holders() -> set[int]:
        gpus = gpus_by_uuid(resnet50).values()
        return {gpu["index"] for gpu in gpus if gpu.get("heldBy", {}).get("pod") == pod}

    assert resnet50.wait_for("GPUTopology to name the pod", holders) in PAIRS
    (topology,) = resnet50.get("gputopologies")["items"]
    peers = topology["status"]["gpus"][0]["peers"]
    assert [(peer["index"], peer["bandwidthGbPerS"]) for peer in peers] == [(1, 300)]


def test_an_inference_through_the_service_is_what_onnxruntime_answers(resnet50: Cluster, model: Path) -> None:
    address = resnet50.get("service", "resnet50")["spec"]["clusterIP"] + ":8080"
    resnet50.wait_for(f"the Service to answer at {address}", lambda: is_ready(address))
    for rows in (random_images(1), random_images(3, seed=7)):
        expected = run_directly(model, rows)
        np.testing.assert_allclose(infer(address, rows), expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_kubectl_get_inferencemodels_shows_running(resnet50: Cluster) -> None:
    header, row = resnet50.kubectl("get", "inferencemodels").splitlines()
    shown = dict(zip(header.split(), row.split(), strict=True))
    assert shown["NAME"] == "resnet50"
    assert (shown["PHASE"], shown["READY"], shown["VERSIONS"], shown["GPUS"]) == (
        "Running",
        "True",
        "v1=100",
        "2",
    )
    status = resnet50.get("inferencemodel", "resnet50")["status"]
    assert [step["event"] for step in status["transitions"]] == ["ResourceAllocated"]
    assert status["observedGeneration"] == 1


def test_a_pod_that_asks_for_more_gpus_than_are_free_waits_with_a_reason(resnet50: Cluster) -> None:
    manifest = resnet50.get("inferencemodel", "resnet50")
    spec = {**manifest["spec"], "gpu": {"count": 3}}
    greedy = {
        **manifest,
        "metadata": {"name": "greedy", "namespace": "default"},
        "spec": spec,
        "status": None,
    }
    resnet50.apply(json.loads(json.dumps({k: v for k, v in greedy.items() if v is not None})))

    def unschedulable() -> str:
        for condition in resnet50.get("inferencemodel", "greedy").get("status", {}).get("conditions", []):
            if condition["type"] == "RolloutBlocked" and condition["status"] == "True":
                return str(condition["message"])
        return ""

    message = resnet50.wait_for("the model to say that it is blocked", unschedulable)
    assert "3 GPUs" in message or "mcp2026.io/gpu" in message
    assert resnet50.get("inferencemodel", "greedy")["status"]["phase"] == "Pending"
    resnet50.kubectl("delete", "inferencemodel", "greedy")


def test_a_second_model_gets_the_other_pair(resnet50: Cluster) -> None:
    manifest = resnet50.get("inferencemodel", "resnet50")
    second = {
        "apiVersion": manifest["apiVersion"],
        "kind": manifest["kind"],
        "metadata": {"name": "second"},
        "spec": {**manifest["spec"], "resources": {}},
    }
    resnet50.apply(second)
    resnet50.wait("inferencemodel/second", "condition=Ready", timeout_s=240)
    gpus = gpus_by_uuid(resnet50)
    held = [
        {gpus[uuid]["index"] for uuid in resnet50.kubectl(
            "exec", f"deploy/{name}", "--", "printenv", "MCP2026_GPU_UUIDS").strip().split(",")}
        for name in ("resnet50", "second")
    ]  # fmt: skip
    assert sorted(held, key=min) == PAIRS
    resnet50.kubectl("delete", "inferencemodel", "second")


def test_new_weights_are_served_by_the_pod_that_is_there(resnet50: Cluster, model: Path) -> None:
    before = pod_of(resnet50, "resnet50")
    versions = [
        {"versionId": version, "weight": weight, "uri": f"pvc://models/{model.name}"}
        for version, weight in (("v1", 0), ("v2", 100))
    ]
    change = json.dumps({"spec": {"versions": versions}})
    resnet50.kubectl("patch", "inferencemodel", "resnet50", "--type=merge", "-p", change)

    def settled() -> str:
        status = resnet50.get("inferencemodel", "resnet50")["status"]
        (condition,) = (one for one in status["conditions"] if one["type"] == "TrafficSettled")
        newest = status["versions"] == "v1=0,v2=100" and status["traffic"]["revision"] == 2
        return str(condition["message"]) if newest and condition["status"] == "True" else ""

    told = resnet50.wait_for("the traffic to settle", settled)
    assert told == "revision 2 is live on 1 of 1 pods"
    address = resnet50.get("service", "resnet50")["spec"]["clusterIP"] + ":8080"
    rows = random_images(1)
    np.testing.assert_allclose(
        infer(address, rows), run_directly(model, rows), rtol=TOLERANCE, atol=TOLERANCE
    )
    after = pod_of(resnet50, "resnet50")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert [one["restartCount"] for one in after["status"]["containerStatuses"]] == [0]


def test_deletion_leaves_nothing_behind(resnet50: Cluster) -> None:
    resnet50.kubectl("delete", "inferencemodel", "resnet50", "--wait=true")
    kinds = "deployments,replicasets,pods,services,configmaps,endpointslices,"
    kinds += "serviceaccounts,roles,rolebindings"
    label = "app.kubernetes.io/managed-by=mcp2026-operator"

    def remaining() -> list[str]:
        return [item["metadata"]["name"] for item in resnet50.get(kinds, "-l", label)["items"]] + [
            item["metadata"]["name"]
            for item in resnet50.get("pods,leases", "-l", "mcp2026.io/inference-model")["items"]
        ]

    resnet50.wait_for("the children to be gone", lambda: not remaining(), timeout_s=90)

    def nobody_holds() -> bool:
        return not any(gpu.get("heldBy") for gpu in gpus_by_uuid(resnet50).values())

    resnet50.wait_for("the GPUs to be free", nobody_holds)


def test_a_gpu_that_is_lost_is_no_longer_offered_and_comes_back(installation: Installation) -> None:
    cluster, nvml = installation.cluster, installation.nvml

    def allocatable() -> int:
        (node,) = cluster.get("nodes")["items"]
        return int(node["status"]["allocatable"]["mcp2026.io/gpu"])

    assert allocatable() == 4
    nvml.fail("*", 3, "NVML_ERROR_GPU_IS_LOST")
    try:
        cluster.wait_for("the lost GPU to be withdrawn", lambda: allocatable() == 3, timeout_s=90)
    finally:
        nvml.heal()
    cluster.wait_for("the GPU to come back", lambda: allocatable() == 4, timeout_s=90)
