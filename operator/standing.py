"""Where a model that serves stands: its conditions, derived from what its pods and Deployment show.

Each function answers one condition's question; none of them looks at the previous status.
"""

from dataclasses import dataclass

from mcp2026.api.canary import Hindrance
from mcp2026.api.conditions import Condition, ConditionType, Reason
from mcp2026.operator.manifests import Manifest, covers
from mcp2026.operator.observed import at, has_run, is_scheduled
from mcp2026.operator.situation import Blocked, Situation
from mcp2026.operator.traffic import Spread


@dataclass(frozen=True, slots=True)
class Standing:
    """What the conditions are made from."""

    situation: Situation
    deployment: Manifest | None
    """The model's own, as it is."""
    pods: tuple[Manifest, ...]
    """The newest ones."""
    spread: Spread
    rollout: Blocked | None = None
    """What keeps the newest pods from coming up."""

    @property
    def replicas(self) -> int:
        """How many pods are asked for."""
        return self.situation.model.spec.replicas

    @property
    def all_scheduled(self) -> bool:
        """Whether every desired pod of the newest template is bound to a node."""
        return 0 < self.replicas <= len(self.pods) and all(is_scheduled(pod) for pod in self.pods)

    def count(self, field: str) -> int:
        """Return a count in the Deployment's status; absent there means 0."""
        return int(at(self.deployment, "status", field) or 0)

    def before_pods(self) -> Blocked | None:
        """Return why no pods are to be expected, if so."""
        if waiting := self.situation.not_started_because():
            return waiting
        if self.replicas == 0:
            return Blocked(Reason.SCALED_TO_ZERO, "spec.replicas is 0")
        return None

    def no_pods(self) -> Blocked | None:
        """Return why the newest pods are not there or do not come up."""
        refused = self.situation.refused()
        if refused is not None and refused.reason is Reason.NAME_TAKEN:
            return refused
        return self.rollout

    def revision_refused(self) -> Blocked | None:
        """Return why pods that serve cannot serve the newest revision."""
        return Blocked(Reason.REVISION_REFUSED, self.spread.refusal) if self.spread.refused else None


def conditions(standing: Standing) -> tuple[Condition, ...]:
    """Return all conditions, without times."""
    return (
        _ready(standing),
        _resources_allocated(standing),
        _rollout_blocked(standing),
        _traffic_settled(standing),
    )


_NOT_OF_THE_MODEL = frozenset(
    {
        Reason.UNSCHEDULABLE,
        Reason.QUOTA_EXCEEDED,
        Reason.POD_CREATION_REFUSED,
        Reason.IMAGE_PULL_FAILED,
        Reason.NAME_TAKEN,
    }
)
"""What keeps pods from coming up whatever they would serve."""


def hindrance(standing: Standing) -> Hindrance | None:
    """Return why the newest revision is not what all pods answer with; None if it is."""
    if early := standing.before_pods():
        return Hindrance(early.message, counts=False)
    if refused := standing.revision_refused():
        return Hindrance(refused.message, refused=True)
    if standing.spread.settled:
        return None
    blocked = standing.no_pods()
    if blocked is None:
        # a pod that is not there yet, or waits for its image or a volume, says nothing about a version
        began = len(standing.pods) >= standing.replicas and all(has_run(pod) for pod in standing.pods)
        return Hindrance(standing.spread.text, counts=began)
    return Hindrance(blocked.message, counts=blocked.reason not in _NOT_OF_THE_MODEL)


def _ready(standing: Standing) -> Condition:
    """Whether all replicas serve; which revision, the condition TrafficSettled says."""
    kind = ConditionType.READY
    if hindrance := standing.before_pods() or standing.no_pods():
        return _hindered(standing, kind, hindrance)
    wanted = standing.replicas
    updated, total = standing.count("updatedReplicas"), standing.count("replicas")
    available = standing.count("availableReplicas")
    if _is_current(standing) and updated == available == total == wanted:
        return _condition(
            standing, kind, True, Reason.ALL_REPLICAS_READY, f"{wanted} of {wanted} replicas serve"
        )
    old = max(total - updated, 0)
    message = f"{min(updated, available)} of {wanted} replicas serve the newest generation"
    return _condition(
        standing,
        kind,
        False,
        Reason.WAITING_FOR_REPLICAS,
        f"{message}; {old} of an older one run" if old else message,
    )


def _is_current(standing: Standing) -> bool:
    """Say whether the Deployment is as wanted and its controller has seen it so."""
    deployment = standing.deployment
    return covers(standing.situation.workload["spec"], at(deployment, "spec")) and (
        at(deployment, "status", "observedGeneration") or 0
    ) >= (at(deployment, "metadata", "generation") or 0)


def _resources_allocated(standing: Standing) -> Condition:
    kind = ConditionType.RESOURCES_ALLOCATED
    if early := standing.before_pods():
        return _hindered(standing, kind, early)
    wanted = standing.replicas
    if standing.all_scheduled:
        return _condition(
            standing, kind, True, Reason.ALL_PODS_SCHEDULED, f"{wanted} of {wanted} pods are bound to nodes"
        )
    blocked = standing.no_pods()
    if blocked is not None and blocked.reason in (
        Reason.UNSCHEDULABLE,
        Reason.QUOTA_EXCEEDED,
        Reason.POD_CREATION_REFUSED,
        Reason.NAME_TAKEN,
    ):
        return _hindered(standing, kind, blocked)
    bound = sum(is_scheduled(pod) for pod in standing.pods)
    return _condition(
        standing, kind, False, Reason.WAITING_FOR_SCHEDULING, f"{bound} of {wanted} pods are bound to nodes"
    )


def _rollout_blocked(standing: Standing) -> Condition:
    kind = ConditionType.ROLLOUT_BLOCKED
    blocked = standing.no_pods() or standing.situation.refused() or standing.revision_refused()
    if blocked is not None:
        return _condition(standing, kind, True, blocked.reason, blocked.message)
    return _condition(standing, kind, False, Reason.PROGRESSING, "")


def _traffic_settled(standing: Standing) -> Condition:
    kind, spread = ConditionType.TRAFFIC_SETTLED, standing.spread
    if hindrance := standing.before_pods() or standing.revision_refused():
        return _hindered(standing, kind, hindrance)
    reason = Reason.REVISION_LIVE if spread.settled else Reason.WAITING_FOR_REVISION
    return _condition(standing, kind, spread.settled, reason, spread.text)


def _hindered(standing: Standing, kind: ConditionType, hindrance: Blocked) -> Condition:
    return _condition(standing, kind, False, hindrance.reason, hindrance.message)


def _condition(
    standing: Standing, kind: ConditionType, holds: bool, reason: Reason, message: str
) -> Condition:
    return Condition(
        type=kind,
        status="True" if holds else "False",
        reason=reason,
        message=message,
        observed_generation=standing.situation.model.generation,
    )
