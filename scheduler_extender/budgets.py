"""Which pods do PodDisruptionBudgets protect, and how many would a set of evictions break? Pure.

Kubernetes' rules (`pkg/scheduler/framework/plugins/defaultpreemption`): a pod whose eviction is counted
already breaks nothing; every other victim uses up one disruption of each budget that selects it.
"""

from collections.abc import Iterable, Mapping

from mcp2026.scheduler_extender.cluster_events import ObservedBudget, ObservedPod
from mcp2026.scheduler_extender.kube_objects import LabelSelector, SelectorRequirement


def is_protected(pod: ObservedPod, budgets: Iterable[ObservedBudget]) -> bool:
    """Tell whether evicting `pod` alone would break a budget."""
    return any(budget.allowed <= 0 for budget in _budgets_of(pod, budgets))


def budgets_broken(victims: Iterable[ObservedPod], budgets: Iterable[ObservedBudget]) -> int:
    """Return how many of `victims`, evicted together, go against a budget."""
    all_budgets = tuple(budgets)
    left = {budget.key: budget.allowed for budget in all_budgets}
    broken = 0
    for pod in victims:
        mine = _budgets_of(pod, all_budgets)
        for budget in mine:
            left[budget.key] -= 1
        broken += any(left[budget.key] < 0 for budget in mine)
    return broken


def _budgets_of(pod: ObservedPod, budgets: Iterable[ObservedBudget]) -> tuple[ObservedBudget, ...]:
    return tuple(
        budget
        for budget in budgets
        if budget.namespace == pod.namespace
        and budget.selector is not None
        and pod.name not in budget.going
        and selects(budget.selector, pod.labels)
    )


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Tell whether `selector` means a pod with `labels`; an empty one means every pod that has labels."""
    wanted, requirements = selector.match_labels or {}, selector.match_expressions or ()
    if not wanted and not requirements:
        return bool(labels)
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _holds(requirement, labels) for requirement in requirements
    )


def _holds(requirement: SelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in (requirement.values or ())
        case "NotIn":
            return value not in (requirement.values or ())
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return False
