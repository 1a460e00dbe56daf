"""The manifests, whole: what a model becomes in a cluster."""

import json
from typing import Any

import pytest

from mcp2026.api.inference_model import parse_inference_model
from mcp2026.api.serving import decode_serving_config
from mcp2026.operator.children import (
    deployment,
    service,
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
            {"versionId": "v1", "weight": 90, "path": "/mnt/models/models/resnet50/1.onnx", "sha256": None},
            {
                "versionId": "v2",
                "weight": 10,
                "path": "/mnt/models/candidates/resnet50/2.onnx",
                "sha256": "ab" * 32,
            },
        ],
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
    assert without_digests(deployment(GPU_MODEL, "0123456789abcdef", SETTINGS)) == {
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
                        "mcp2026.io/serving-revision": "0123456789abcdef",
                        "resource.kubernetes.io/device-type": "nvidia.com/gpu",
                    },
                },
                "spec": {
                    "automountServiceAccountToken": False,
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
                                *("--host", "0.0.0.0"),
                                *("--port", "8080"),
                                *("--grpc-port", "8081"),
                                *("--workers", "4"),
                                *("--lame-duck-seconds", "5"),
                                *("--log-format", "text"),
                            ],
                            "env": [
                                {
                                    "name": "MCP2026_POD_UID",
                                    "valueFrom": {
                                        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.uid"}
                                    },
                                },
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
    manifest = deployment(parse_inference_model(model()), "0123456789abcdef", SETTINGS)
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
    manifest = deployment(parse_inference_model(model(resources=resources)), "d", SETTINGS)
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    assert {"name": "MCP2026_QOS_CLASS", "value": qos_class} in container["env"]


def test_scaling_does_not_change_the_pod_template() -> None:
    one, five = (
        deployment(parse_inference_model(model(replicas=count)), "d", SETTINGS)["spec"]["template"]
        for count in (1, 5)
    )
    assert one == five


QOS = [
    pytest.param({"tenants": [{"tenantId": "acme"}]}, id="a tenant"),
    pytest.param({"priorities": {"levels": 9}}, id="levels"),
    pytest.param({"priorities": {"queues": {"1": {"maxRows": 1}}}}, id="the queue of a level"),
    pytest.param({"queue": {"maxRows": 1}}, id="the queue"),
]


@pytest.mark.parametrize("qos", QOS)
def test_a_change_of_qos_changes_the_digest_and_so_rolls_the_pods(qos: dict[str, Any]) -> None:
    plain, changed = (parse_inference_model(model(qos=part)) for part in ({}, qos))
    assert serving_digest(serving_config(plain, 1)) != serving_digest(serving_config(changed, 1))


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
