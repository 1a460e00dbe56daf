"""What the cluster holds of one model: the input of `reconcile`, as plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mcp2026.api.conditions import ConditionType
from mcp2026.api.lifecycle import Phase
from mcp2026.api.names import MANAGED_BY, MANAGED_BY_LABEL, MANIFEST_DIGEST_ANNOTATION
from mcp2026.operator.manifests import Manifest

_CHILD_FIELDS = {"ConfigMap": "config_map", "Service": "service", "Deployment": "deployment"}


@dataclass(frozen=True, slots=True)
class Observed:
    """One InferenceModel, its children and its dependencies, as last seen. Absent is None."""

    resource: Manifest
    config_map: Manifest | None = None
    service: Manifest | None = None
    deployment: Manifest | None = None
    pods: tuple[Manifest, ...] = ()
    dependencies: Mapping[str, Manifest | None] = field(default_factory=dict)
    """The InferenceModels of the namespace that the model names in dependsOn."""

    def child(self, kind: str) -> Manifest | None:
        """Return the child of `kind`."""
        found: Manifest | None = getattr(self, _CHILD_FIELDS[kind])
        return found

    def with_child(self, kind: str, child: Manifest) -> "Observed":
        """Return the same with `child` as its child of `kind`."""
        fields: dict[str, Any] = {_CHILD_FIELDS[kind]: child}
        return replace(self, **fields)


def at(value: Any, *path: str) -> Any:
    """Return what lies at `path` in nested dicts, or None where a step is missing."""
    for step in path:
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


def condition_of(resource: Manifest | None, kind: str) -> dict[str, Any]:
    """Return the condition `kind` in the resource's status, empty when it has none."""
    conditions = at(resource, "status", "conditions") or []
    return next((entry for entry in conditions if entry.get("type") == kind), {})


def is_ready(pod: Manifest) -> bool:
    """Say whether a pod passes its readiness probe."""
    return bool(condition_of(pod, "Ready").get("status") == "True")


def is_scheduled(pod: Manifest) -> bool:
    """Say whether a pod is bound to a node."""
    return bool(condition_of(pod, "PodScheduled").get("status") == "True")


def newest_pods(pods: tuple[Manifest, ...], template_digest: str) -> tuple[Manifest, ...]:
    """Return the pods that were made from the newest template and are not on their way out."""
    return tuple(
        pod
        for pod in pods
        if at(pod, "metadata", "annotations", MANIFEST_DIGEST_ANNOTATION) == template_digest
        and "deletionTimestamp" not in pod["metadata"]
    )


def belongs_to(child: Manifest, owner_uid: str) -> bool:
    """Say whether a child is the owner's, or was left without an owner by an operator and may be adopted."""
    controller = next(
        (owner for owner in at(child, "metadata", "ownerReferences") or [] if owner.get("controller")), None
    )
    if controller is not None:
        return bool(controller.get("uid") == owner_uid)
    return bool(at(child, "metadata", "labels", MANAGED_BY_LABEL) == MANAGED_BY)


def dependency_is_met(dependency: Manifest | None) -> bool:
    """Say whether a model that others wait for serves, or has completed its work."""
    if dependency is None or "deletionTimestamp" in dependency["metadata"]:
        return False
    if at(dependency, "status", "phase") in (Phase.SUCCEEDED, Phase.COMPLETED):
        return True
    return bool(condition_of(dependency, ConditionType.READY).get("status") == "True")
