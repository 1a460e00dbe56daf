"""What the pods of a model have in common, whatever its mode: placement, resources, environment, security."""

from typing import Any, Final

from mcp2026.api.inference_model import InferenceModel
from mcp2026.api.names import (
    DEVICE_TYPE_ANNOTATION,
    DEVICE_TYPE_NVIDIA,
    MANIFEST_DIGEST_ANNOTATION,
    POD_NAME_VARIABLE,
    POD_NAMESPACE_VARIABLE,
    POD_UID_VARIABLE,
    QOS_CLASS_VARIABLE,
    SLO_LATENCY_ANNOTATION,
)
from mcp2026.api.scheduling_context import pod_qos_class
from mcp2026.operator.children.ownership import labels
from mcp2026.operator.manifests import digest
from mcp2026.operator.settings import PodSettings

TERMINATION_MESSAGE: Final = "/dev/termination-log"
_RUNTIME_GROUP: Final = 65532
"""Of the runtime image: volumes that take results or logs must let it write."""
_NEEDED_CREDENTIALS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_FURTHER_CREDENTIALS: Final = (
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
)
CONTAINER_SECURITY: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def promised_latency(model: InferenceModel) -> str | None:
    """Return the p95 in ms as the scheduler reads it from a pod; None without a promise, or without GPUs."""
    if model.spec.slo is None or not model.spec.gpu.count:
        return None
    return f"{model.spec.slo.latency_p95_ms:.3f}".rstrip("0").rstrip(".")


def pod_template(
    model: InferenceModel, spec: dict[str, Any], settings: PodSettings, promised: str | None = None
) -> dict[str, Any]:
    """Return the template of pods with `spec`, placed as the model asks, with its digest."""
    annotations = {}
    if model.spec.gpu.count > 0:
        annotations[DEVICE_TYPE_ANNOTATION] = DEVICE_TYPE_NVIDIA
        if promised is not None:
            annotations[SLO_LATENCY_ANNOTATION] = promised
        spec = {**spec, "schedulerName": settings.scheduler_name}
    if model.spec.priority_class_name is not None:
        spec = {**spec, "priorityClassName": model.spec.priority_class_name}
    template = {"metadata": {"labels": labels(model), "annotations": annotations}, "spec": spec}
    annotations[MANIFEST_DIGEST_ANNOTATION] = digest(template)
    return template


def pod_security(*, writes: bool) -> dict[str, Any]:
    """Return the security of a pod; `writes`: it has a claim that is mounted writable."""
    security: dict[str, Any] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    if writes:
        security |= {"fsGroup": _RUNTIME_GROUP, "fsGroupChangePolicy": "OnRootMismatch"}
    return security


def read_only(is_read_only: bool) -> dict[str, bool]:
    """Return the field that says so; the API server drops one that is false."""
    return {"readOnly": True} if is_read_only else {}


def credentials(secret: str | None) -> list[dict[str, Any]]:
    """Return the variables of S3's client, from a Secret."""
    if secret is None:
        return []
    names = [(name, False) for name in _NEEDED_CREDENTIALS]
    names += [(name, True) for name in _FURTHER_CREDENTIALS]
    return [
        {
            "name": name,
            "valueFrom": {"secretKeyRef": {"name": secret, "key": name, "optional": optional}},
        }
        for name, optional in names
    ]


def environment(model: InferenceModel) -> list[dict[str, Any]]:
    """Return what tells a container which pod it is in."""
    asked = model.spec.resources
    qos_class = pod_qos_class([(asked.requests, asked.limits)])
    return [
        _of_the_pod(POD_NAME_VARIABLE, "name"),
        _of_the_pod(POD_NAMESPACE_VARIABLE, "namespace"),
        _of_the_pod(POD_UID_VARIABLE, "uid"),
        {"name": QOS_CLASS_VARIABLE, "value": qos_class.value},
    ]


def _of_the_pod(variable: str, field: str) -> dict[str, Any]:
    reference = {"apiVersion": "v1", "fieldPath": f"metadata.{field}"}
    return {"name": variable, "valueFrom": {"fieldRef": reference}}


def resources(model: InferenceModel) -> dict[str, dict[str, str | int]]:
    """Return requests and limits; an extended resource is asked for by its limit alone."""
    limits: dict[str, str | int] = dict(model.spec.resources.limits)
    if (request := model.spec.gpu.request) is not None:
        resource, amount = request
        limits[resource] = str(amount)
    asked = {"requests": dict(model.spec.resources.requests), "limits": limits}
    return {kind: quantities for kind, quantities in asked.items() if quantities}
