"""The Job that runs a model's data set, attempt after attempt, until it is done or has failed for good."""

from typing import Any, Final

from mcp2026.api.batch_run import Batch
from mcp2026.api.inference_model import InferenceModel, claim_and_path
from mcp2026.api.names import (
    MANIFEST_DIGEST_ANNOTATION,
    MODELS_DIRECTORY,
    SERVING_CONFIG_DIRECTORY,
    SERVING_CONFIG_KEY,
)
from mcp2026.operator.children.ownership import child_metadata, child_name
from mcp2026.operator.children.pod import (
    CONTAINER_SECURITY,
    TERMINATION_MESSAGE,
    credentials,
    environment,
    pod_security,
    pod_template,
    read_only,
    resources,
)
from mcp2026.operator.manifests import Manifest, with_digest
from mcp2026.operator.observed import at
from mcp2026.operator.settings import PodSettings

CONTAINER: Final = "runtime"
LOG_FILE: Final = "/tmp/mcp2026-batch.log"
NOT_REPEATED: Final = (2, 3, 124)
"""Exit codes of `mcp2026-batch` that another attempt would have too: settings, data set, timeout."""


def job(
    model: InferenceModel,
    settings: PodSettings,
    running: Manifest | None = None,
    *,
    deadline_seconds: int | None = None,
    retention_seconds: int | None = None,
) -> Manifest:
    """Return the Job ``<model>``.

    Args:
        model: one of mode Batch.
        settings: what all pods have in common.
        running: the Job that is there. What cannot be changed in it stays as it is.
        deadline_seconds: from the Job's start until it is ended, or None.
        retention_seconds: from the Job's end until Kubernetes deletes it, or None.

    """
    batch = _batch_of(model)
    fixed: dict[str, Any] = {
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "FailJob",
                    "onExitCodes": {
                        "containerName": CONTAINER,
                        "operator": "In",
                        "values": list(NOT_REPEATED),
                    },
                },
                {
                    "action": "Ignore",
                    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                },
            ]
        },
        "template": _template(model, batch, settings),
    }
    if running is not None:
        there = running["spec"]
        same = _digest_of(there["template"]) == _digest_of(fixed["template"])
        fixed = {
            "podFailurePolicy": there.get("podFailurePolicy", fixed["podFailurePolicy"]),
            "template": fixed["template"] if same else there["template"],
        }
    spec: dict[str, Any] = {
        "completions": 1,
        "parallelism": 1,
        "backoffLimit": batch.max_failures,
        "podReplacementPolicy": "Failed",
        **fixed,
    }
    if deadline_seconds is not None:
        spec["activeDeadlineSeconds"] = deadline_seconds
    if retention_seconds is not None:
        spec["ttlSecondsAfterFinished"] = retention_seconds
    return with_digest(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": child_metadata(model, "Job"),
            "spec": spec,
        }
    )


def _digest_of(template: Any) -> Any:
    return at(template, "metadata", "annotations", MANIFEST_DIGEST_ANNOTATION)


def _batch_of(model: InferenceModel) -> Batch:
    assert model.spec.batch is not None, "a model of mode Batch has one"
    return model.spec.batch


def _template(model: InferenceModel, batch: Batch, settings: PodSettings) -> dict[str, Any]:
    written = _claims(batch.output, batch.archive_place)
    read = _claims(batch.input, *(version.uri for version in model.spec.versions))
    claims = [
        (f"claim-{position}", claim, claim not in written)
        for position, claim in enumerate(sorted(written | read))
    ]
    spec: dict[str, Any] = {
        "serviceAccountName": child_name("ServiceAccount", model.name),
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": settings.termination_grace_seconds,
        "securityContext": pod_security(writes=bool(written)),
        "containers": [_container(model, batch, claims, settings)],
        "volumes": [
            {"name": "serving-config", "configMap": {"name": child_name("ConfigMap", model.name)}},
            {"name": "tmp", "emptyDir": {}},
            *(
                {
                    "name": volume,
                    "persistentVolumeClaim": {"claimName": claim, **read_only(is_read_only)},
                }
                for volume, claim, is_read_only in claims
            ),
        ],
    }
    return pod_template(model, spec, settings)


def _container(
    model: InferenceModel, batch: Batch, claims: list[tuple[str, str, bool]], settings: PodSettings
) -> dict[str, Any]:
    return {
        "name": CONTAINER,
        "image": settings.runtime_image,
        "imagePullPolicy": settings.image_pull_policy,
        "command": ["mcp2026-batch"],
        "args": _arguments(batch, settings),
        "env": [*environment(model), *credentials(batch.credentials_secret)],
        "resources": resources(model),
        "terminationMessagePath": TERMINATION_MESSAGE,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [
            {"name": "serving-config", "mountPath": SERVING_CONFIG_DIRECTORY, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
            *(
                {
                    "name": volume,
                    "mountPath": f"{MODELS_DIRECTORY}/{claim}",
                    **read_only(is_read_only),
                }
                for volume, claim, is_read_only in claims
            ),
        ],
    }


def _arguments(batch: Batch, settings: PodSettings) -> list[str]:
    arguments = [
        *("--serving-config", f"{SERVING_CONFIG_DIRECTORY}/{SERVING_CONFIG_KEY}"),
        *("--input", batch.input),
        *("--output", batch.output),
        *("--archive", batch.archive_place),
        *("--log-file", LOG_FILE),
        *("--termination-message", TERMINATION_MESSAGE),
        *("--progress", "log"),
        *("--log-format", settings.log_format),
    ]
    if batch.input_sha256 is not None:
        arguments += ["--input-sha256", batch.input_sha256]
    if batch.rows_per_part is not None:
        arguments += ["--rows-per-part", str(batch.rows_per_part)]
    return arguments


def _claims(*places: str) -> set[str]:
    return {claim_and_path(place)[0] for place in places if place.startswith("pvc://")}
