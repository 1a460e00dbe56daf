"""What a model's pods may do at the API server: follow their ConfigMap, and report on a Lease.

RBAC cannot name an object that is still to be created, and the names of pods are not known beforehand, so the
right to create and patch holds for all Leases of the namespace. The chart's admission policy narrows it to
the Lease of the pod's own name (docs/decisions/0090). No pod can read a Lease, or any other ConfigMap.
"""

from mcp2026.api.inference_model import InferenceModel
from mcp2026.operator.children.ownership import child_metadata, child_name
from mcp2026.operator.manifests import Manifest, with_digest


def service_account(model: InferenceModel) -> Manifest:
    """Return the account of the model's pods; only they have its token mounted."""
    return with_digest(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": child_metadata(model, "ServiceAccount"),
            "automountServiceAccountToken": False,
        }
    )


def role(model: InferenceModel) -> Manifest:
    """Return what the account may do. A watch of one object, by its name, needs no right to list.

    A run over a data set follows nothing: it only reports.
    """
    follow = {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [child_name("ConfigMap", model.name)],
        "verbs": ["get", "watch"],
    }
    report = {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["create", "patch"],
    }
    return with_digest(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": child_metadata(model, "Role"),
            "rules": [report] if model.spec.mode == "Batch" else [follow, report],
        }
    )


def role_binding(model: InferenceModel) -> Manifest:
    """Return what gives the account its role."""
    return with_digest(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": child_metadata(model, "RoleBinding"),
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Role",
                "name": child_name("Role", model.name),
            },
            "subjects": [
                {
                    "kind": "ServiceAccount",
                    "name": child_name("ServiceAccount", model.name),
                    "namespace": model.namespace,
                }
            ],
        }
    )
