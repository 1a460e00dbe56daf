"""The metadata that all children share: name, labels, and the owner whose deletion takes them along."""

from typing import Any

from mcp2026.api.inference_model import InferenceModel
from mcp2026.api.names import (
    API_VERSION,
    INFERENCE_MODEL_KIND,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    MODEL_LABEL,
    RUNTIME_ACCOUNT_SUFFIX,
)


def labels(model: InferenceModel) -> dict[str, str]:
    """Return the labels of every child and pod of `model`."""
    return {MODEL_LABEL: model.name, MANAGED_BY_LABEL: MANAGED_BY}


def child_name(kind: str, model: str) -> str:
    """Return the name of a model's child of `kind`."""
    if kind in ("ServiceAccount", "Role", "RoleBinding"):
        return f"{model}{RUNTIME_ACCOUNT_SUFFIX}"
    return f"{model}-serving" if kind == "ConfigMap" else model


def child_metadata(model: InferenceModel, kind: str) -> dict[str, Any]:
    """Return the metadata of a child of `kind`; the garbage collector deletes it with the model."""
    return {
        "name": child_name(kind, model.name),
        "namespace": model.namespace,
        "labels": labels(model),
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": INFERENCE_MODEL_KIND,
                "name": model.name,
                "uid": model.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
