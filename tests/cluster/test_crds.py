"""The CRDs on a real API server: what it refuses, what it fills in, what kubectl prints."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.cluster.cluster import Cluster
from tools.cluster.errors import ClusterError

pytestmark = pytest.mark.control_plane

ROOT = Path(__file__).parents[2]
NAMESPACE = "crd-tests"

REFUSALS = {
    "batch-archive-of-unknown-place": "allowed: pvc://<claim>/<path> or s3://<bucket>/<key>",
    "batch-input-of-unknown-suffix": "s3://<bucket>/<key> or https://, ending in .npy, .npz, .jsonl",
    "batch-input-without-tls": "s3://<bucket>/<key> or https://, ending in .npy, .npz, .jsonl",
    "batch-max-failures-above-range": "should be less than or equal to 100",
    "batch-of-two-versions": "with mode Batch: one version, 1 replica, 1 worker; of batching maxBatchSize",
    "batch-output-climbs-out": "allowed: a path without . or .. as a segment",
    "batch-output-is-input": "spec.batch: allowed: three different places for input, output and archive",
    "batch-output-to-the-web": "allowed: pvc://<claim>/<path> or s3://<bucket>/<key>, ending in",
    "batch-rows-per-part-below-range": "should be greater than or equal to 1",
    "batch-secret-upper-case": "spec.batch.credentialsSecret in body should match",
    "batch-timeout-below-range": "should be greater than or equal to 1",
    "batch-with-max-delay": "with mode Batch: one version, 1 replica, 1 worker; of batching maxBatchSize",
    "batch-with-mode-serve": "spec.batch: allowed: with mode Batch, and with it alone",
    "batch-with-qos": "with mode Batch: one version, 1 replica, 1 worker; of batching maxBatchSize",
    "batch-with-replicas": "with mode Batch: one version, 1 replica, 1 worker; of batching maxBatchSize",
    "batch-with-slo": "with mode Batch: one version, 1 replica, 1 worker; of batching maxBatchSize",
    "batch-without-data-set": "spec.batch: allowed: with mode Batch, and with it alone",
    "batch-size-above-range": "allowed: 4 to 128, default 32",
    "batch-size-below-range": "allowed: 4 to 128, default 32",
    "canary-error-rate-above-range": "errorRatePercent in body should be less than or equal to 100",
    "canary-latency-ratio-below-range": "latencyRatio in body should be greater than or equal to 1",
    "canary-minimum-requests-below-range": "minimumRequests in body should be greater than or equal to 1",
    "canary-of-no-version": "there is no such version; allowed: the versionId of one of spec.versions",
    "canary-of-only-version": "spec.canary: the model has no other version; allowed: two versions or more",
    "canary-step-above-range": "should be less than or equal to 100",
    "canary-step-seconds-above-range": "should be less than or equal to 604800",
    "canary-steps-shrink": "spec.canary.steps: do not grow; allowed: growing percentages, 1 to 100",
    "canary-without-steps": "spec.canary.steps in body should have at least 1 items",
    "delay-above-range": "should be less than or equal to 65535",
    "depends-on-itself": "a model cannot depend on itself; allowed: names of other models",
    "depends-on-repeated": "a name is repeated; allowed: each name once",
    "format-unknown": 'supported values: "ONNX", "IR"',
    "gpu-count-above-range": "should be less than or equal to 16",
    "gpu-in-limits": "allowed: GPUs by spec.gpu alone",
    "gpu-memory-of-two": 'memoryGiB: Invalid value: "object": allowed: with sharing Shared',
    "gpu-memory-of-whole-gpus": 'memoryGiB: Invalid value: "object": allowed: with sharing Shared',
    "gpu-mig-without-profile": 'migProfile: Invalid value: "object": allowed: with sharing MIG, and with it',
    "gpu-profile-misspelled": "spec.gpu.migProfile in body should match",
    "gpu-profile-without-mig": 'migProfile: Invalid value: "object": allowed: with sharing MIG, and with it',
    "label-of-other-version": "a label is repeated, or a versionId; allowed: labels that are neither",
    "label-repeated": "a label is repeated, or a versionId; allowed: labels that are neither",
    "label-upper-case": "allowed: at most 63 lower-case letters, digits and dashes",
    "min-batch-above-max-batch": "allowed: 1 to maxBatchSize",
    "mode-unknown": 'supported values: "Serve", "Batch"',
    "name-starts-with-digit": "allowed: at most 50 lower-case letters, digits and dashes, a letter first",
    "name-too-long": "may not be more than 50 bytes",
    "no-versions": "should have at least 1 items",
    "prefetch-depth-above-range": "allowed: 2 to 32, default 8",
    "prefetch-depth-below-range": "allowed: 2 to 32, default 8",
    "priority-default-above-levels": "spec.qos.priorities.default: allowed: 1 to levels; it is 5 where",
    "priority-levels-above-range": "should be less than or equal to 100",
    "priority-queue-above-levels": 'spec.qos.priorities.queues: allowed: levels as keys, "1" to levels',
    "priority-queue-misspelled": 'spec.qos.priorities.queues: allowed: levels as keys, "1" to levels',
    "quantity-negative": "spec.resources.limits.cpu in body should match",
    "queue-timeout-above-range": "should be less than or equal to 3600000",
    "queue-timeout-action-unknown": 'supported values: "Reject", "Delay"',
    "sha256-upper-case": "allowed: the digest as 64 lower-case hex digits",
    "slo-latency-below-range": "allowed: a number from 0.001 to 600000",
    "slo-latency-with-unit": "spec.slo.latencyP95Ms in body must be of type number",
    "slo-without-latency": "spec.slo.latencyP95Ms: Required value",
    "tenant-id-with-space": "allowed: 1 to 63 visible ASCII characters without spaces",
    "tenant-repeated": "a tenantId is repeated; allowed: each tenantId once",
    "tenant-weight-above-range": "should be less than or equal to 1000",
    "tenants-above-limit": "must have at most 64 items",
    "uri-climbs-out": "without . or .. as a segment",
    "uri-other-scheme": "allowed: pvc://<claim>/<path>",
    "uri-without-path": "allowed: pvc://<claim>/<path>",
    "uri-without-sha256": "sha256: is not given, and the uri is fetched",
    "uri-without-tls": "s3://<bucket>/<key> or https://, with sha256",
    "version-id-upper-case": "allowed: at most 63 lower-case letters, digits and dashes",
    "version-repeated": "a versionId is repeated; allowed: each versionId once",
    "weights-sum-to-110": "allowed: weights that sum to 100",
}


def install_crds(cluster: Cluster) -> None:
    """Apply the CRDs and wait until the API server serves both kinds."""
    cluster.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
    for name in ("inferencemodels", "gputopologies"):
        cluster.wait_for(f"{name} to be served", lambda name=name: cluster.get(name))


@pytest.fixture(scope="module")
def cluster(control_plane: Cluster) -> Iterator[Cluster]:
    install_crds(control_plane)
    control_plane.kubectl("create", "namespace", NAMESPACE)
    yield control_plane
    control_plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def refused(cluster: Cluster, *arguments: str, text: str | None = None) -> str:
    """Run kubectl, which must fail, and return what it says."""
    with pytest.raises(ClusterError) as failure:
        cluster.kubectl("-n", NAMESPACE, *arguments, input=text)
    return str(failure.value)


def apply(cluster: Cluster, name: str, **spec: Any) -> dict[str, Any]:
    version = {"versionId": "v1", "uri": "pvc://models/a.onnx"}
    resource = {
        "apiVersion": "mcp2026.io/v1alpha1",
        "kind": "InferenceModel",
        "metadata": {"name": name},
        "spec": {"versions": [version], **spec},
    }
    text = cluster.kubectl("-n", NAMESPACE, "apply", "-f", "-", "-o", "json", input=yaml.safe_dump(resource))
    stored: dict[str, Any] = json.loads(text)
    return stored


def set_status(name: str, **status: Any) -> list[str]:
    patch = json.dumps({"status": status})
    return ["patch", "inferencemodel", name, "--subresource=status", "--type=merge", "-p", patch]


def recorded(start: str, end: str, event: str | None = None) -> dict[str, Any]:
    """A status that moves from `start` to `end` and says by which event."""
    event = event or EVENT_OF.get((start, end), "ResourceAllocated")
    step = {"event": event, "from": start, "to": end, "time": "2026-01-01T00:00:00Z"}
    return {"phase": end, "transitions": [step]}


def test_each_bad_example_has_its_message_here() -> None:
    assert sorted(REFUSALS) == sorted(path.stem for path in (ROOT / "examples" / "bad").glob("*.yaml"))


@pytest.mark.parametrize("example", sorted(REFUSALS))
def test_a_bad_example_is_refused_with_its_message(cluster: Cluster, example: str) -> None:
    said = refused(cluster, "create", "-f", str(ROOT / "examples" / "bad" / f"{example}.yaml"))
    assert REFUSALS[example] in said


@pytest.mark.parametrize("example", ["batch", "resnet50", "magika", "shared", "canary"])
def test_a_good_example_is_accepted(cluster: Cluster, example: str) -> None:
    path = str(ROOT / "examples" / f"{example}.yaml")
    assert "created" in cluster.kubectl("-n", NAMESPACE, "create", "--dry-run=server", "-f", path)


def test_defaults_are_filled_in(cluster: Cluster) -> None:
    spec = apply(cluster, "defaults")["spec"]
    assert spec["batching"] == {
        "maxBatchSize": 32,
        "maxDelayMs": 0,
        "minBatchSize": 1,
        "prefetchQueueDepth": 8,
        "tensorCache": True,
    }
    assert spec["versions"] == [
        {"versionId": "v1", "uri": "pvc://models/a.onnx", "weight": 100, "format": "ONNX", "labels": []}
    ]
    assert spec["qos"] == {
        "tenants": [],
        "priorities": {"levels": 10, "default": 5, "queues": {}},
        "queue": {"maxRows": 0, "defaultTimeoutMs": 0, "maxTimeoutMs": 0, "timeoutAction": "Reject"},
    }
    assert (spec["mode"], spec["replicas"], spec["workers"]) == ("Serve", 1, 1)
    assert ("canary" in spec, spec["allowIncompatible"]) == (False, False)
    assert spec["gpu"] == {"count": 0, "sharing": "Exclusive"}
    assert (spec["dependsOn"], spec["resources"]) == ([], {"limits": {}, "requests": {}})


def test_a_version_keeps_its_digest_while_it_has_its_name(cluster: Cluster) -> None:
    def versions(**digests: str) -> dict[str, Any]:
        weights = [100 // len(digests)] * len(digests)
        listed = [
            {"versionId": name, "uri": f"s3://models/{name}.onnx", "sha256": digest, "weight": weight}
            for (name, digest), weight in zip(digests.items(), weights, strict=True)
        ]
        return {
            "apiVersion": "mcp2026.io/v1alpha1",
            "kind": "InferenceModel",
            "metadata": {"name": "keeps-digests", "namespace": NAMESPACE},
            "spec": {"versions": listed},
        }

    one, other = "1" * 64, "2" * 64
    cluster.apply(versions(a=one))
    with pytest.raises(ClusterError, match="a versionId gets another sha256; allowed: a new versionId"):
        cluster.apply(versions(a=other))
    with pytest.raises(ClusterError, match="a versionId gets another sha256"):
        cluster.apply(versions(b=one, a=other))
    cluster.apply(versions(b=other, a=one))
    cluster.apply(versions(b=other))
    cluster.apply(versions(a=other))


def test_a_queue_of_a_level_gets_its_defaults_and_the_level_is_kept(cluster: Cluster) -> None:
    qos = {"tenants": [{"tenantId": "a@b/c"}], "priorities": {"queues": {"1": {"maxTimeoutMs": 50}}}}
    stored = apply(cluster, "levels", qos=qos)["spec"]["qos"]
    limits = {"maxRows": 0, "defaultTimeoutMs": 0, "maxTimeoutMs": 50, "timeoutAction": "Reject"}
    assert stored["priorities"]["queues"] == {"1": limits}
    assert stored["tenants"] == [{"tenantId": "a@b/c", "weight": 1}]


def test_an_unknown_field_is_refused_by_kubectl(cluster: Cluster) -> None:
    document = yaml.safe_load((ROOT / "examples" / "magika.yaml").read_text())
    document["spec"]["surprise"] = 1
    said = refused(cluster, "create", "-f", "-", text=yaml.safe_dump(document))
    assert 'unknown field "spec.surprise"' in said


def test_kubectl_scale_changes_replicas(cluster: Cluster) -> None:
    apply(cluster, "scaled")
    cluster.kubectl("-n", NAMESPACE, "scale", "inferencemodel/scaled", "--replicas=5")
    stored = cluster.get("-n", NAMESPACE, "im", "scaled")
    assert stored["spec"]["replicas"] == 5


def test_the_scale_subresource_tells_selector_and_replicas(cluster: Cluster) -> None:
    apply(cluster, "selected")
    status = {"phase": "Pending", "replicas": 3, "selector": "mcp2026.io/inference-model=selected"}
    patch = json.dumps({"status": status})
    cluster.kubectl(
        "-n", NAMESPACE, "patch", "im", "selected", "--subresource=status", "--type=merge", "-p", patch
    )
    scale = json.loads(
        cluster.kubectl(
            "get", "--raw", f"/apis/mcp2026.io/v1alpha1/namespaces/{NAMESPACE}/inferencemodels/selected/scale"
        )
    )
    assert scale["status"] == {"replicas": 3, "selector": "mcp2026.io/inference-model=selected"}


def test_kubectl_get_prints_the_columns(cluster: Cluster) -> None:
    apply(cluster, "printed", gpu={"count": 2}, replicas=4)
    status = {
        "phase": "Pending",
        "versions": "v1=100",
        "readyReplicas": 3,
        "traffic": {"revision": 7, "liveOn": 2, "of": 4},
        "conditions": [
            {"type": "Ready", "status": "False", "reason": "WaitingForReplicas", "message": "3 of 4"}
        ],
    }
    patch = json.dumps({"status": status})
    cluster.kubectl(
        "-n", NAMESPACE, "patch", "im", "printed", "--subresource=status", "--type=merge", "-p", patch
    )
    headings, row = cluster.kubectl("-n", NAMESPACE, "get", "im", "printed").splitlines()
    assert headings.split() == ["NAME", "PHASE", "READY", "VERSIONS", "GPUS", "DESIRED", "SERVING", "AGE"]
    assert re.fullmatch(r"printed +Pending +False +v1=100 +2 +4 +3 +\d+s", row.strip())
    wide = cluster.kubectl("-n", NAMESPACE, "get", "im", "printed", "-o", "wide").splitlines()
    assert wide[0].split()[-6:] == ["REVISION", "LIVE-ON", "CANARY", "ROWS", "REASON", "MESSAGE"]
    assert re.search(r" 7 +2 +WaitingForReplicas +3 of 4$", wide[1].rstrip())


def test_models_are_listed_by_get_all(cluster: Cluster) -> None:
    apply(cluster, "listed")
    assert "inferencemodel.mcp2026.io/listed" in cluster.kubectl("-n", NAMESPACE, "get", "all", "-o", "name")


EVENT_OF = {
    ("Pending", "Running"): "ResourceAllocated",
    ("Running", "Succeeded"): "ExitCodeReported",
    ("Running", "Failed"): "ExitCodeReported",
    ("Succeeded", "Completed"): "DataSynced",
}
WAY = {
    "Pending": ["Pending"],
    "Running": ["Pending", "Running"],
    "Succeeded": ["Pending", "Running", "Succeeded"],
    "Failed": ["Pending", "Running", "Failed"],
    "Completed": ["Pending", "Running", "Succeeded", "Completed"],
}


def bring_to(cluster: Cluster, name: str, phase: str) -> None:
    apply(cluster, name)
    cluster.kubectl("-n", NAMESPACE, *set_status(name, phase="Pending"))
    for start, end in pairwise(WAY[phase]):
        cluster.kubectl("-n", NAMESPACE, *set_status(name, **recorded(start, end)))


@pytest.mark.parametrize("start", WAY)
def test_the_api_server_refuses_every_jump_of_the_phase(cluster: Cluster, start: str) -> None:
    name = f"phase-{start.lower()}"
    bring_to(cluster, name, start)
    for end in WAY:
        if end != start and (start, end) not in EVENT_OF:
            assert "status.phase" in refused(cluster, *set_status(name, **recorded(start, end))), end
    assert "cannot be removed" in refused(cluster, *set_status(name, phase=None))
    cluster.kubectl("-n", NAMESPACE, *set_status(name, phase=start))


@pytest.mark.parametrize(("start", "end"), EVENT_OF)
def test_the_api_server_refuses_a_phase_that_moves_without_its_event(
    cluster: Cluster, start: str, end: str
) -> None:
    name = f"event-{end.lower()}"
    bring_to(cluster, name, start)
    words = "a phase moves by an event alone"
    assert words in refused(cluster, *set_status(name, phase=end))
    assert words in refused(cluster, *set_status(name, **recorded(start, end, "Reconciled")))
    swapped = {**recorded(end, start), "phase": end}
    assert words in refused(cluster, *set_status(name, **swapped))


def test_a_life_begins_with_pending(cluster: Cluster) -> None:
    apply(cluster, "newborn")
    assert "allowed: first Pending" in refused(cluster, *set_status("newborn", phase="Running"))


def test_a_topology_is_stored_as_the_device_plugin_writes_it(cluster: Cluster) -> None:
    cluster.kubectl(
        "create",
        "-f",
        "-",
        input="{apiVersion: mcp2026.io/v1alpha1, kind: GPUTopology, metadata: {name: crd-test-node}}",
    )
    gpu = {"index": 0, "uuid": "GPU-1", "product": "A100", "memoryMiB": 81920, "pciBusId": "0000:17:00.0"}
    status = json.dumps(
        {"status": {"driver": "535.1", "cuda": "12.4", "gpus": [gpu], "pcieAncestors": [["self"]]}}
    )
    patch = ["patch", "gputopo", "crd-test-node", "--subresource=status", "--type=merge", "-p"]
    try:
        cluster.kubectl(*patch, status)
        stored = cluster.get("gputopo", "crd-test-node")["status"]
        (kept,) = stored["gpus"]
        assert kept == {**kept, **gpu, "health": "Healthy"}
        assert (kept["sharing"]["mode"], kept["sharing"]["state"]) == ("Exclusive", "Active")
        assert "A100" in cluster.kubectl("get", "gputopo", "crd-test-node")
        with pytest.raises(ClusterError, match=r"status.gpus\[0\].uuid: Required value"):
            cluster.kubectl(*patch, json.dumps({"status": {"gpus": [{"index": 0}]}}))
    finally:
        cluster.kubectl("delete", "gputopo", "crd-test-node")
