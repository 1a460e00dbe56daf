"""What the cluster holds of one model: the input of `reconcile`, as plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mcp2026.api.names import MANAGED_BY, MANAGED_BY_LABEL, MANIFEST_DIGEST_ANNOTATION
from mcp2026.operator.canary.comparison import Comparison
from mcp2026.operator.manifests import Manifest


@dataclass(frozen=True, slots=True)
class Observed:
    """One InferenceModel, its children and its dependencies, as last seen."""

    resource: Manifest
    children: Mapping[str, Manifest] = field(default_factory=dict)
    """By kind; what bears a child's name, whoever made it."""
    pods: tuple[Manifest, ...] = ()
    leases: Mapping[str, Manifest] = field(default_factory=dict)
    """On which pods report, by the pod's name."""
    dependencies: Mapping[str, Manifest | None] = field(default_factory=dict)
    """The InferenceModels of the namespace that the model names in dependsOn."""
    cycle: tuple[str, ...] = ()
    """The way from the model along dependsOn back to itself; empty if there is none."""
    comparison: Comparison = field(default_factory=Comparison)
    """What its pods counted since the present step of its canary began."""

    def child(self, kind: str) -> Manifest | None:
        """Return the child of `kind`, or None if there is none."""
        return self.children.get(kind)

    def with_child(self, kind: str, child: Manifest) -> "Observed":
        """Return the same with `child` as its child of `kind`."""
        return replace(self, children={**self.children, kind: child})


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


def has_run(pod: Manifest) -> bool:
    """Say whether a container of a pod runs, or ever ran."""
    ways = (("state", "running"), ("state", "terminated"), ("lastState", "terminated"))
    containers = at(pod, "status", "containerStatuses") or []
    return any(at(container, *way) is not None for container in containers for way in ways)


def staying(pods: tuple[Manifest, ...]) -> tuple[Manifest, ...]:
    """Return the pods that are not on their way out."""
    return tuple(pod for pod in pods if "deletionTimestamp" not in pod["metadata"])


def of_template(pods: tuple[Manifest, ...], template_digest: str) -> tuple[Manifest, ...]:
    """Return the pods that were made from this template."""
    return tuple(
        pod
        for pod in pods
        if at(pod, "metadata", "annotations", MANIFEST_DIGEST_ANNOTATION) == template_digest
    )


def belongs_to(child: Manifest, owner_uid: str) -> bool:
    """Say whether a child is the owner's, or was left without an owner by an operator and may be adopted."""
    controller = next(
        (owner for owner in at(child, "metadata", "ownerReferences") or [] if owner.get("controller")), None
    )
    if controller is not None:
        return bool(controller.get("uid") == owner_uid)
    return bool(at(child, "metadata", "labels", MANAGED_BY_LABEL) == MANAGED_BY)
