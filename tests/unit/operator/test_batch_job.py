"""The Job of a batch model: what runs in it, what it may read and write, and what it repeats."""

from typing import Any

import msgspec
import pytest

from mcp2026.api.inference_model import parse_inference_model
from mcp2026.operator.batch.ending import LastWord
from mcp2026.operator.children import job, role
from mcp2026.operator.children.job import NOT_REPEATED
from mcp2026.operator.manifests import Manifest
from mcp2026.runtime.dataset.errors import EXIT_INPUT, EXIT_SETTINGS, EXIT_TIMEOUT
from mcp2026.runtime.dataset.errors import Reason as RunReason
from mcp2026.runtime.dataset.settings import read_settings
from mcp2026.runtime.dataset.termination import Termination
from tests.fakes.played_cluster import SETTINGS
from tests.fakes.played_job import BATCH, batch_model


def made(batch: dict[str, Any] | None = None, **spec: Any) -> Manifest:
    return job(parse_inference_model(batch_model(batch=batch, **spec)), SETTINGS)


def pod_of(manifest: Manifest) -> dict[str, Any]:
    found: dict[str, Any] = manifest["spec"]["template"]["spec"]
    return found


def container_of(manifest: Manifest) -> dict[str, Any]:
    found: dict[str, Any] = pod_of(manifest)["containers"][0]
    return found


def test_the_command_takes_its_arguments(tmp_path: Any) -> None:
    digest = "ab" * 32
    container = container_of(made({"inputSha256": digest, "rowsPerPart": 64, "archive": "s3://logs/run.gz"}))
    assert container["command"] == ["mcp2026-batch"]
    config = tmp_path / "serving.json"
    config.write_text(
        '{"model": "nightly", "versions": [{"versionId": "v1", "path": "/mnt/models/models/a.onnx"}]}'
    )
    arguments = [str(config) if text.endswith("serving.json") else text for text in container["args"]]
    settings = read_settings(arguments, {})
    assert settings.input.shown == BATCH["input"]
    assert settings.output.shown == BATCH["output"]
    assert (settings.input_sha256, settings.rows_per_part) == (digest, 64)
    assert settings.archive is not None
    assert settings.archive.shown == "s3://logs/run.gz"
    assert str(settings.termination_message) == container["terminationMessagePath"]


def test_without_an_archive_the_log_goes_beside_the_output() -> None:
    arguments = container_of(made())["args"]
    assert arguments[arguments.index("--archive") + 1] == "pvc://data/results.npy.log.gz"


CLAIMS: list[tuple[str, dict[str, Any], dict[str, bool]]] = [
    ("results beside the data set", {}, {"data": False, "models": True}),
    (
        "results elsewhere",
        {"output": "pvc://results/a.npy"},
        {"data": True, "models": True, "results": False},
    ),
    (
        "only the log on a claim",
        {"input": "https://data.example/a.npy", "output": "s3://bucket/a.npy", "archive": "pvc://logs/a.gz"},
        {"logs": False, "models": True},
    ),
    (
        "nothing on a claim but the model",
        {"input": "s3://bucket/in.npy", "output": "s3://bucket/out.npy"},
        {"models": True},
    ),
    ("results beside the model", {"output": "pvc://models/a.npy"}, {"data": True, "models": False}),
]


@pytest.mark.parametrize(("batch", "claims"), [row[1:] for row in CLAIMS], ids=[row[0] for row in CLAIMS])
def test_a_claim_is_writable_only_if_something_is_written_to_it(
    batch: dict[str, Any], claims: dict[str, bool]
) -> None:
    manifest = made(batch)
    volumes = {
        volume["persistentVolumeClaim"]["claimName"]: volume["persistentVolumeClaim"].get("readOnly", False)
        for volume in pod_of(manifest)["volumes"]
        if "persistentVolumeClaim" in volume
    }
    mounts = {
        mount["mountPath"].removeprefix("/mnt/models/"): mount.get("readOnly", False)
        for mount in container_of(manifest)["volumeMounts"]
        if mount["mountPath"].startswith("/mnt/models/")
    }
    assert volumes == mounts == claims
    assert ("fsGroup" in pod_of(manifest)["securityContext"]) == (False in claims.values())


def test_exit_codes_that_would_come_again_end_the_job() -> None:
    assert set(NOT_REPEATED) == {EXIT_SETTINGS, EXIT_INPUT, EXIT_TIMEOUT}
    spec = made({"maxFailures": 7})["spec"]
    assert (spec["backoffLimit"], spec["completions"]) == (7, 1)
    first, second = spec["podFailurePolicy"]["rules"]
    assert (first["action"], first["onExitCodes"]["values"]) == ("FailJob", [2, 3, 124])
    assert (second["action"], second["onPodConditions"][0]["type"]) == ("Ignore", "DisruptionTarget")
    assert pod_of(made())["restartPolicy"] == "Never"


def test_the_pod_is_placed_as_one_that_serves() -> None:
    manifest = made(gpu={"count": 2}, priorityClassName="mcp-gpu-high", resources={"limits": {"cpu": "1"}})
    pod = pod_of(manifest)
    assert pod["schedulerName"] == "mcp2026-scheduler"
    assert pod["priorityClassName"] == "mcp-gpu-high"
    assert container_of(manifest)["resources"] == {"limits": {"cpu": "1", "mcp2026.io/gpu": "2"}}
    annotations = manifest["spec"]["template"]["metadata"]["annotations"]
    assert annotations["resource.kubernetes.io/device-type"] == "nvidia.com/gpu"


def test_of_a_secret_only_keys_of_aws_become_environment() -> None:
    environment = container_of(made({"credentialsSecret": "bucket"}))["env"]
    secrets = {
        entry["name"]: entry["valueFrom"]["secretKeyRef"]
        for entry in environment
        if "secretKeyRef" in entry.get("valueFrom", {})
    }
    assert all(name.startswith("AWS_") and secrets[name]["key"] == name for name in secrets)
    assert {reference["name"] for reference in secrets.values()} == {"bucket"}
    needed = {name for name, reference in secrets.items() if not reference["optional"]}
    assert needed == {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}


def test_the_account_may_report_and_nothing_else() -> None:
    (rule,) = role(parse_inference_model(batch_model()))["rules"]
    assert (rule["resources"], rule["verbs"]) == (["leases"], ["create", "patch"])


def test_the_last_word_is_read_as_it_is_written() -> None:
    written = {field.name: field.type for field in msgspec.structs.fields(Termination)}
    for field in msgspec.structs.fields(LastWord):
        assert field.name in written
    said = Termination(0, RunReason.COMPLETED, "done", 5, 5, 0, "ab" * 32, 128, "cd" * 32)
    read = msgspec.json.decode(msgspec.json.encode(said), type=LastWord)
    assert (read.exit_code, read.reason, read.rows, read.sha256) == (0, "Completed", 5, "ab" * 32)


def test_every_reason_of_a_run_is_a_reason_of_a_condition() -> None:
    from mcp2026.api.conditions import Reason

    assert {str(reason) for reason in RunReason} <= {str(reason) for reason in Reason}
