"""Pods get a cache, and credentials, for versions that they fetch; others are as they were."""

from typing import Any

from mcp2026.api.inference_model import InferenceModel, parse_inference_model
from mcp2026.api.names import MODEL_CACHE_DIRECTORY
from mcp2026.operator.children import deployment, serving_config
from mcp2026.operator.settings import PodSettings

SETTINGS = PodSettings(runtime_image="registry.example.com/mcp2026-runtime:1")
CLAIM = "pvc://models/a.onnx"
REMOTE = "s3://models/a.onnx"


def model(*uris: str, **spec: Any) -> InferenceModel:
    versions = [
        {"versionId": f"v{number}", "uri": uri, "weight": 0 if number else 100, "sha256": "0" * 64}
        for number, uri in enumerate(uris)
    ]
    metadata = {"name": "m", "namespace": "default", "uid": "u", "generation": 1}
    return parse_inference_model({"metadata": metadata, "spec": {"versions": versions, **spec}})


def pod(manifest: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = manifest["spec"]["template"]["spec"]
    return spec


def volumes(manifest: dict[str, Any]) -> list[str]:
    return [volume["name"] for volume in pod(manifest)["volumes"]]


def test_a_pod_that_fetches_has_a_bounded_cache_of_its_own() -> None:
    made = pod(deployment(model(CLAIM, REMOTE), SETTINGS))
    cache = next(volume for volume in made["volumes"] if volume["name"] == "model-cache")
    container = made["containers"][0]
    assert cache == {"name": "model-cache", "emptyDir": {"sizeLimit": "17408Mi"}}
    assert {"name": "model-cache", "mountPath": MODEL_CACHE_DIRECTORY} in container["volumeMounts"]
    at = container["args"].index("--model-cache")
    assert container["args"][at : at + 4] == [
        "--model-cache",
        MODEL_CACHE_DIRECTORY,
        "--model-cache-mib",
        "16384",
    ]


def test_the_runtime_is_told_the_source_and_its_digest() -> None:
    first, second = serving_config(model(CLAIM, REMOTE), revision=1).versions
    assert (first.path, second.path, second.sha256) == ("/mnt/models/models/a.onnx", REMOTE, "0" * 64)


def test_a_pod_that_fetches_nothing_has_no_cache() -> None:
    assert volumes(deployment(model(CLAIM), SETTINGS)) == ["serving-config", "tmp", "models-0"]


def test_the_cache_stays_until_pods_are_replaced_for_another_reason() -> None:
    running = deployment(model(CLAIM, REMOTE), SETTINGS)
    later = deployment(model(CLAIM), SETTINGS, running)
    assert later["spec"]["template"] == running["spec"]["template"]
    replaced = deployment(model(CLAIM, workers=2), SETTINGS, running)
    assert "model-cache" not in volumes(replaced)
    first = deployment(model(CLAIM), SETTINGS)
    assert "model-cache" in volumes(deployment(model(CLAIM, REMOTE), SETTINGS, first))


def variables(model: InferenceModel) -> dict[str, tuple[str, bool]]:
    """Return the Secret of each variable that comes from one, and whether it may be missing."""
    found = [one for one in pod(deployment(model, SETTINGS))["containers"][0]["env"] if "valueFrom" in one]
    keys = {one["name"]: one["valueFrom"].get("secretKeyRef") for one in found}
    assert len(keys) == len(found)
    return {name: (key["name"], key["optional"]) for name, key in keys.items() if key}


def test_what_a_secret_has_of_credentials_becomes_environment() -> None:
    found = variables(model(REMOTE, credentialsSecret="own"))
    assert found["AWS_ACCESS_KEY_ID"] == found["MCP2026_SOURCE_AUTHORIZATION"] == ("own", True)
    assert "MCP2026_SOURCE_HOST" in found
    assert variables(model(REMOTE)) == {}


def test_a_secret_that_an_archive_needs_too_is_named_once() -> None:
    archive = {"folder": "s3://logs/m", "credentialsSecret": "own"}
    found = variables(model(REMOTE, credentialsSecret="own", logArchive=archive))
    assert found["AWS_ACCESS_KEY_ID"] == ("own", False)
    assert found["MCP2026_SOURCE_HOST"] == ("own", True)
