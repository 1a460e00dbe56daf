"""The manifests, whole: what a model becomes in a cluster."""

import json
from typing import Any

import pytest

from mcp2026.api.inference_model import InferenceModel, parse_inference_model
from mcp2026.api.serving import decode_serving_config
from mcp2026.operator.children import (
    deployment,
    role,
    role_binding,
    service,
    service_account,
    serving_config,
    serving_config_map,
    serving_digest,
)
from mcp2026.operator.settings import PodSettings
from tests.fakes.played_cluster import model

SETTINGS = PodSettings(runtime_image="registry.example/mcp2026:1", image_pull_policy="Never")

GPU_MODEL = parse_inference_model(
    model(
        versions=[
            {"versionId": "v1", "weight": 90, "uri": "pvc://models/resnet50/1.onnx"},
            {"versionId": "v2", "weight": 10, "uri": "pvc://candidates/resnet50/2.onnx", "sha256": "ab" * 32},
        ],
        replicas=3,
        workers=4,
        gpu={"count": 2},
        resources={"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "4Gi"}},
        qos={
            "tenants": [{"tenantId": "acme", "weight": 3}, {"tenantId": "beta"}],
            "priorities": {"levels": 3, "default": 2, "queues": {"1": {"maxTimeoutMs": 50}}},
            "queue": {"maxRows": 256, "defaultTimeoutMs": 200, "timeoutAction": "Delay"},
        },
        priorityClassName="mcp-gpu-high",
        slo={"latencyP95Ms": 25},
    )
)

OWNER = {
    "apiVersion": "mcp2026.io/v1alpha1",
    "kind": "InferenceModel",
    "name": "resnet50",
    "uid": "uid-resnet50",
    "controller": True,
    "blockOwnerDeletion": True,
}
LABELS = {"mcp2026.io/inference-model": "resnet50", "app.kubernetes.io/managed-by": "mcp2026-operator"}


def without_digests(manifest: dict[str, Any]) -> dict[str, Any]:
    """Take the digests out, after making sure that they are there: their values say nothing to a reader."""
    assert len(manifest["metadata"]["annotations"].pop("mcp2026.io/manifest-digest")) == 16
    if manifest["kind"] == "Deployment":
        annotations = manifest["spec"]["template"]["metadata"]["annotations"]
        assert len(annotations.pop("mcp2026.io/manifest-digest")) == 16
    return manifest


def metadata(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": "team-a",
        "labels": LABELS,
        "annotations": {},
        "ownerReferences": [OWNER],
    }


def of_the_pod(variable: str, path: str) -> dict[str, Any]:
    return {"name": variable, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def test_the_config_map_tells_each_runtime_what_to_serve() -> None:
    manifest = without_digests(serving_config_map(GPU_MODEL, serving_config(GPU_MODEL, revision=7)))
    document = json.loads(manifest["data"].pop("serving.json"))
    assert manifest == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata("resnet50-serving"),
        "data": {},
    }
    assert document == {
        "model": "resnet50",
        "revision": 7,
        "batching": {
            "maxBatchSize": 32,
            "maxDelayMs": 0,
            "minBatchSize": 1,
            "prefetchQueueDepth": 8,
            "tensorCache": True,
        },
        "queue": {
            "maxRows": 256,
            "defaultTimeoutMs": 200.0,
            "maxTimeoutMs": 0.0,
            "timeoutAction": "Delay",
        },
        "priorities": {
            "levels": 3,
            "default": 2,
            "queues": {
                "1": {
                    "maxRows": 0,
                    "defaultTimeoutMs": 0.0,
                    "maxTimeoutMs": 50.0,
                    "timeoutAction": "Reject",
                }
            },
        },
        "tenants": [{"tenantId": "acme", "weight": 3}, {"tenantId": "beta", "weight": 1}],
        "execution": {"instances": 1, "maxRows": None, "paddedBatchSizes": []},
        "versions": [
            {
                "versionId": "v1",
                "weight": 90,
                "path": "/mnt/models/models/resnet50/1.onnx",
                "sha256": None,
                "labels": [],
            },
            {
                "versionId": "v2",
                "weight": 10,
                "path": "/mnt/models/candidates/resnet50/2.onnx",
                "sha256": "ab" * 32,
                "labels": [],
            },
        ],
        "allowIncompatible": False,
    }


def test_the_service_leads_to_the_pods() -> None:
    assert without_digests(service(GPU_MODEL)) == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata("resnet50"),
        "spec": {
            "selector": {"mcp2026.io/inference-model": "resnet50"},
            "ports": [
                {"name": "http", "port": 8080, "targetPort": "http", "protocol": "TCP"},
                {
                    "name": "grpc",
                    "port": 8081,
                    "targetPort": "grpc",
                    "protocol": "TCP",
                    "appProtocol": "kubernetes.io/h2c",
                },
            ],
        },
    }


def test_the_deployment_of_a_model_with_gpus() -> None:
    assert without_digests(deployment(GPU_MODEL, SETTINGS)) == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata("resnet50"),
        "spec": {
            "replicas": 3,
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": 660,
            "selector": {"matchLabels": {"mcp2026.io/inference-model": "resnet50"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "template": {
                "metadata": {
                    "labels": LABELS,
                    "annotations": {
                        "resource.kubernetes.io/device-type": "nvidia.com/gpu",
                        "mcp2026.io/slo-latency-p95-ms": "25",
                    },
                },
                "spec": {
                    "serviceAccountName": "resnet50-mcp2026-runtime",
                    "automountServiceAccountToken": True,
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": 60,
                    "schedulerName": "mcp2026-scheduler",
                    "priorityClassName": "mcp-gpu-high",
                    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
                    "containers": [
                        {
                            "name": "runtime",
                            "image": "registry.example/mcp2026:1",
                            "imagePullPolicy": "Never",
                            "command": ["mcp2026-server"],
                            "args": [
                                *("--serving-config", "/etc/mcp2026/serving.json"),
                                *("--serving-config-map", "resnet50-serving"),
                                *("--host", "0.0.0.0"),
                                *("--port", "8080"),
                                *("--grpc-port", "8081"),
                                *("--workers", "4"),
                                *("--lame-duck-seconds", "5"),
                                *("--log-format", "text"),
                                *("--ending-directory", "/tmp/ending"),
                                *("--termination-message", "/dev/termination-log"),
                            ],
                            "env": [
                                of_the_pod("MCP2026_POD_NAME", "metadata.name"),
                                of_the_pod("MCP2026_POD_NAMESPACE", "metadata.namespace"),
                                of_the_pod("MCP2026_POD_UID", "metadata.uid"),
                                {"name": "MCP2026_QOS_CLASS", "value": "Burstable"},
                            ],
                            "ports": [
                                {"name": "http", "containerPort": 8080, "protocol": "TCP"},
                                {"name": "grpc", "containerPort": 8081, "protocol": "TCP"},
                            ],
                            "startupProbe": {
                                "httpGet": {"path": "/healthz", "port": "http"},
                                "periodSeconds": 1,
                                "timeoutSeconds": 2,
                                "failureThreshold": 600,
                            },
                            "readinessProbe": {
                                "httpGet": {"path": "/readyz", "port": "http"},
                                "periodSeconds": 2,
                                "timeoutSeconds": 2,
                                "failureThreshold": 1,
                            },
                            "livenessProbe": {
                                "httpGet": {"path": "/healthz", "port": "http"},
                                "periodSeconds": 10,
                                "timeoutSeconds": 2,
                                "failureThreshold": 3,
                            },
                            "resources": {
                                "requests": {"cpu": "1", "memory": "1Gi"},
                                "limits": {"memory": "4Gi", "mcp2026.io/gpu": "2"},
                            },
                            "terminationMessagePath": "/dev/termination-log",
                            "terminationMessagePolicy": "FallbackToLogsOnError",
                            "securityContext": {
                                "allowPrivilegeEscalation": False,
                                "readOnlyRootFilesystem": True,
                                "capabilities": {"drop": ["ALL"]},
                            },
                            "volumeMounts": [
                                {"name": "serving-config", "mountPath": "/etc/mcp2026", "readOnly": True},
                                {"name": "tmp", "mountPath": "/tmp"},
                                {"name": "models-0", "mountPath": "/mnt/models/candidates", "readOnly": True},
                                {"name": "models-1", "mountPath": "/mnt/models/models", "readOnly": True},
                            ],
                        }
                    ],
                    "volumes": [
                        {"name": "serving-config", "configMap": {"name": "resnet50-serving"}},
                        {"name": "tmp", "emptyDir": {}},
                        {
                            "name": "models-0",
                            "persistentVolumeClaim": {"claimName": "candidates", "readOnly": True},
                        },
                        {
                            "name": "models-1",
                            "persistentVolumeClaim": {"claimName": "models", "readOnly": True},
                        },
                    ],
                },
            },
        },
    }


def test_a_model_on_the_cpu_surges_and_uses_the_clusters_own_scheduler() -> None:
    manifest = deployment(parse_inference_model(model()), SETTINGS)
    pod = manifest["spec"]["template"]
    assert manifest["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert "schedulerName" not in pod["spec"]
    assert "priorityClassName" not in pod["spec"]
    assert "resource.kubernetes.io/device-type" not in pod["metadata"]["annotations"]
    assert pod["spec"]["containers"][0]["resources"] == {}


@pytest.mark.parametrize(
    ("resources", "qos_class"),
    [
        pytest.param({}, "BestEffort", id="nothing is asked for"),
        pytest.param({"requests": {"cpu": "1"}}, "Burstable", id="a request"),
        pytest.param({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed", id="limits of both"),
    ],
)
def test_a_pod_is_told_its_qos_class(resources: dict[str, Any], qos_class: str) -> None:
    manifest = deployment(parse_inference_model(model(resources=resources)), SETTINGS)
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    assert {"name": "MCP2026_QOS_CLASS", "value": qos_class} in container["env"]


def test_scaling_does_not_change_the_pod_template() -> None:
    one, five = (
        deployment(parse_inference_model(model(replicas=count)), SETTINGS)["spec"]["template"]
        for count in (1, 5)
    )
    assert one == five


LEARNT = [
    pytest.param({"qos": {"tenants": [{"tenantId": "acme"}]}}, id="a tenant"),
    pytest.param({"qos": {"priorities": {"levels": 9}}}, id="levels"),
    pytest.param({"qos": {"priorities": {"queues": {"1": {"maxRows": 1}}}}}, id="the queue of a level"),
    pytest.param({"qos": {"queue": {"maxRows": 1}}}, id="the queue"),
    pytest.param({"batching": {"maxBatchSize": 16}}, id="batching"),
    pytest.param(
        {
            "versions": [
                {"versionId": "v1", "weight": 50, "uri": "pvc://models/1.onnx"},
                {"versionId": "v2", "weight": 50, "uri": "pvc://models/2.onnx"},
            ]
        },
        id="versions and weights",
    ),
]


@pytest.mark.parametrize("change", LEARNT)
def test_what_pods_learn_while_they_run_changes_the_digest_and_not_the_template(
    change: dict[str, Any],
) -> None:
    plain, changed = (parse_inference_model(model(**spec)) for spec in ({}, change))
    assert serving_digest(serving_config(plain, 1)) != serving_digest(serving_config(changed, 1))
    assert deployment(plain, SETTINGS) == deployment(changed, SETTINGS)


ROLLING = [
    pytest.param({"workers": 2}, id="workers"),
    pytest.param({"gpu": {"count": 1}}, id="GPUs"),
    pytest.param({"resources": {"limits": {"cpu": "1"}}}, id="resources"),
    pytest.param({"priorityClassName": "mcp-gpu-high"}, id="the priority class"),
    pytest.param({"versions": [{"versionId": "v1", "uri": "pvc://other/1.onnx"}]}, id="a claim"),
]


@pytest.mark.parametrize("change", ROLLING)
def test_what_a_running_pod_cannot_learn_changes_the_template(change: dict[str, Any]) -> None:
    plain, changed = (
        deployment(parse_inference_model(model(**spec)), SETTINGS)["spec"]["template"]
        for spec in ({}, change)
    )
    assert plain != changed


def on_claims(*claims: str, **spec: Any) -> InferenceModel:
    weights = [100, *[0] * (len(claims) - 1)]
    versions = [
        {"versionId": f"v{position}", "weight": weight, "uri": f"pvc://{claim}/1.onnx"}
        for position, (claim, weight) in enumerate(zip(claims, weights, strict=True))
    ]
    return parse_inference_model(model(versions=versions, **spec))


def claims_of(manifest: dict[str, Any]) -> list[str]:
    volumes = manifest["spec"]["template"]["spec"]["volumes"]
    return [volume["persistentVolumeClaim"]["claimName"] for volume in volumes[2:]]


CLAIMS = [
    pytest.param(on_claims("a", "b"), on_claims("a"), ["a", "b"], id="one is no longer used: it stays"),
    pytest.param(on_claims("a", "b"), on_claims("b"), ["a", "b"], id="the other one is no longer used"),
    pytest.param(on_claims("a"), on_claims("a", "c"), ["a", "c"], id="a new one: the pods are replaced"),
    pytest.param(on_claims("a", "b"), on_claims("a", "c"), ["a", "c"], id="a new one, and one goes with it"),
    pytest.param(on_claims("a", "b"), on_claims("a", workers=2), ["a"], id="pods are replaced anyway"),
]


@pytest.mark.parametrize(("before", "after", "mounted"), CLAIMS)
def test_claims_stay_mounted_as_long_as_the_pods_need_not_be_replaced(
    before: InferenceModel, after: InferenceModel, mounted: list[str]
) -> None:
    running = deployment(before, SETTINGS)
    edited = deployment(after, SETTINGS, running)
    assert claims_of(edited) == mounted
    assert (edited["spec"]["template"] == running["spec"]["template"]) == (mounted == ["a", "b"])
    assert deployment(after, SETTINGS, edited) == edited


def test_a_volume_that_somebody_added_is_not_kept() -> None:
    running = deployment(on_claims("a"), SETTINGS)
    running["spec"]["template"]["spec"]["volumes"].append(
        {"name": "models-9", "persistentVolumeClaim": {"claimName": "secrets"}}
    )
    assert claims_of(deployment(on_claims("a"), SETTINGS, running)) == ["a"]


def test_the_pods_may_watch_their_own_config_map_and_write_leases() -> None:
    manifests = [without_digests(made(GPU_MODEL)) for made in (service_account, role, role_binding)]
    assert manifests == [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": metadata("resnet50-mcp2026-runtime"),
            "automountServiceAccountToken": False,
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": metadata("resnet50-mcp2026-runtime"),
            "rules": [
                {
                    "apiGroups": [""],
                    "resources": ["configmaps"],
                    "resourceNames": ["resnet50-serving"],
                    "verbs": ["get", "watch"],
                },
                {
                    "apiGroups": ["coordination.k8s.io"],
                    "resources": ["leases"],
                    "verbs": ["create", "patch"],
                },
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": metadata("resnet50-mcp2026-runtime"),
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Role",
                "name": "resnet50-mcp2026-runtime",
            },
            "subjects": [
                {"kind": "ServiceAccount", "name": "resnet50-mcp2026-runtime", "namespace": "team-a"}
            ],
        },
    ]


def test_what_is_written_for_the_pods_is_what_they_read() -> None:
    config = serving_config(GPU_MODEL, revision=7)
    document = serving_config_map(GPU_MODEL, config)["data"]["serving.json"]
    assert decode_serving_config(document.encode()) == config


def test_the_digest_of_a_configuration_leaves_its_revision_out_and_nothing_else() -> None:
    config = serving_config(GPU_MODEL, revision=1)
    assert serving_digest(config) == serving_digest(serving_config(GPU_MODEL, revision=2))
    other = parse_inference_model(model(batching={"maxBatchSize": 16}))
    assert serving_digest(serving_config(other, 1)) != serving_digest(
        serving_config(parse_inference_model(model()), 1)
    )


@pytest.mark.parametrize(
    ("gpu", "limit"),
    [
        ({"count": 2}, {"mcp2026.io/gpu": "2"}),
        ({"count": 2, "sharing": "Shared"}, {"mcp2026.io/gpu-shared": "2"}),
        ({"count": 1, "sharing": "Shared", "memoryGiB": 10}, {"mcp2026.io/gpu-memory": "10"}),
        ({"count": 3, "sharing": "MIG", "migProfile": "1g.10gb+me"}, {"mcp2026.io/mig-1g.10gb.me": "3"}),
        ({"count": 0, "sharing": "Shared"}, {}),
    ],
)
def test_each_way_of_sharing_asks_for_its_own_resource(gpu: dict[str, Any], limit: dict[str, str]) -> None:
    asked = parse_inference_model(
        {
            "metadata": {"name": "m", "uid": "u"},
            "spec": {
                "versions": [{"versionId": "v1", "weight": 100, "uri": "pvc://models/a.onnx"}],
                "gpu": gpu,
            },
        }
    )
    pod = deployment(asked, SETTINGS)["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"].get("limits", {}) == limit
    assert ("schedulerName" in pod) == bool(limit)
