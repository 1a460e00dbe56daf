"""Where a model stands: its conditions, derived from what was observed of its pods and Deployment.

Each function answers one condition's question; none of them looks at the previous status.
"""

from dataclasses import dataclass

from mcp2026.api.conditions import Condition, ConditionType, Reason
from mcp2026.api.inference_model import InferenceModel
from mcp2026.operator.manifests import Manifest, covers
from mcp2026.operator.observed import at, is_scheduled
from mcp2026.operator.rollout import Blocked


@dataclass(frozen=True, slots=True)
class Standing:
    """What the conditions are made from. `pods` are the newest ones; `wanted` is the desired Deployment."""

    model: InferenceModel
    wanted: Manifest
    deployment: Manifest | None
    pods: tuple[Manifest, ...]
    waiting_for: tuple[str, ...] = ()
    """Dependencies that are not met."""
    blocked: Blocked | None = None

    @property
    def started(self) -> bool:
        """Whether there is a Deployment: once there is, a dependency that fails later takes nothing away."""
        return self.deployment is not None

    @property
    def all_scheduled(self) -> bool:
        """Whether every desired pod of the newest template is bound to a node."""
        wanted = self.model.spec.replicas
        return 0 < wanted <= len(self.pods) and all(is_scheduled(pod) for pod in self.pods)

    def count(self, field: str) -> int:
        """Return a count in the Deployment's status; absent there means 0."""
        return int(at(self.deployment, "status", field) or 0)


def conditions(standing: Standing) -> tuple[Condition, ...]:
    """Return all conditions, without times."""
    return (_ready(standing), _resources_allocated(standing), _rollout_blocked(standing))


def _ready(standing: Standing) -> Condition:
    wanted = standing.model.spec.replicas
    if early := _before_pods(standing):
        return _condition(standing, ConditionType.READY, False, *early)
    if standing.blocked is not None:
        return _condition(
            standing, ConditionType.READY, False, standing.blocked.reason, standing.blocked.message
        )
    updated, total = standing.count("updatedReplicas"), standing.count("replicas")
    available = standing.count("availableReplicas")
    if _is_current(standing) and updated == available == total == wanted:
        return _condition(
            standing,
            ConditionType.READY,
            True,
            Reason.ALL_REPLICAS_READY,
            f"{wanted} of {wanted} replicas serve",
        )
    old = max(total - updated, 0)
    message = f"{min(updated, available)} of {wanted} replicas serve the newest generation"
    return _condition(
        standing,
        ConditionType.READY,
        False,
        Reason.WAITING_FOR_REPLICAS,
        f"{message}; {old} of an older one run" if old else message,
    )


def _is_current(standing: Standing) -> bool:
    """Say whether the Deployment is as wanted and its controller has seen it so."""
    deployment = standing.deployment
    return covers(standing.wanted["spec"], at(deployment, "spec")) and (
        at(deployment, "status", "observedGeneration") or 0
    ) >= (at(deployment, "metadata", "generation") or 0)


def _resources_allocated(standing: Standing) -> Condition:
    kind = ConditionType.RESOURCES_ALLOCATED
    if early := _before_pods(standing):
        return _condition(standing, kind, False, *early)
    wanted = standing.model.spec.replicas
    if standing.all_scheduled:
        return _condition(
            standing, kind, True, Reason.ALL_PODS_SCHEDULED, f"{wanted} of {wanted} pods are bound to nodes"
        )
    blocked = standing.blocked
    if blocked is not None and blocked.reason in (
        Reason.UNSCHEDULABLE,
        Reason.QUOTA_EXCEEDED,
        Reason.POD_CREATION_REFUSED,
        Reason.NAME_TAKEN,
    ):
        return _condition(standing, kind, False, blocked.reason, blocked.message)
    bound = sum(is_scheduled(pod) for pod in standing.pods)
    return _condition(
        standing, kind, False, Reason.WAITING_FOR_SCHEDULING, f"{bound} of {wanted} pods are bound to nodes"
    )


def _rollout_blocked(standing: Standing) -> Condition:
    kind = ConditionType.ROLLOUT_BLOCKED
    if standing.blocked is not None:
        return _condition(standing, kind, True, standing.blocked.reason, standing.blocked.message)
    return _condition(standing, kind, False, Reason.PROGRESSING, "")


def _before_pods(standing: Standing) -> tuple[Reason, str] | None:
    """Return why no pods are to be expected, if so."""
    if standing.waiting_for and not standing.started:
        return Reason.WAITING_FOR_DEPENDENCIES, f"waiting for {', '.join(standing.waiting_for)}"
    if standing.model.spec.replicas == 0:
        return Reason.SCALED_TO_ZERO, "spec.replicas is 0"
    return None


def _condition(
    standing: Standing, kind: ConditionType, holds: bool, reason: Reason, message: str
) -> Condition:
    return Condition(
        type=kind,
        status="True" if holds else "False",
        reason=reason,
        message=message,
        observed_generation=standing.model.generation,
    )
