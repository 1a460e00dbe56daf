"""The verbs, from decoded arguments to results: each takes one snapshot and decides on it alone."""

from mcp2026.scheduler_extender.filtering import filter_nodes
from mcp2026.scheduler_extender.preempting import preempt
from mcp2026.scheduler_extender.prioritizing import prioritize_nodes
from mcp2026.scheduler_extender.request import demands_of
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from mcp2026.scheduler_extender.snapshot import ClusterSnapshot
from mcp2026.scheduler_extender.wire import (
    ExtenderArgs,
    ExtenderFilterResult,
    ExtenderPreemptionResult,
    HostPriority,
    HostPriorityList,
    NodeList,
    PreemptionArgs,
)


def decide_filter(snapshot: ClusterSnapshot, args: ExtenderArgs) -> ExtenderFilterResult:
    """Return which nodes can take the pod, as names or as whole nodes, in the way asked.

    Raises:
        InvalidQuantityError: the pod asks for an amount that is no whole number of GPUs.

    """
    filtered = filter_nodes(snapshot, args.node_names, demands_of(args.spec))
    whole = args.whole_nodes
    return ExtenderFilterResult(
        nodes=None if whole is None else NodeList(tuple(whole[name] for name in filtered.feasible)),
        node_names=filtered.feasible if whole is None else None,
        failed_nodes=filtered.failed,
        failed_and_unresolvable_nodes=filtered.unresolvable,
    )


def decide_prioritize(snapshot: ClusterSnapshot, args: ExtenderArgs, memo: ScoreMemo) -> HostPriorityList:
    """Return the priority of each node.

    Raises:
        InvalidQuantityError: the pod asks for an amount that is no whole number of GPUs.

    """
    priorities = prioritize_nodes(snapshot, args.node_names, demands_of(args.spec), memo)
    return tuple(HostPriority(host, score) for host, score in priorities.items())


def decide_preempt(
    snapshot: ClusterSnapshot, args: PreemptionArgs, memo: ScoreMemo
) -> ExtenderPreemptionResult:
    """Return the victims of each node on which evicting pods makes room.

    Raises:
        InvalidQuantityError: the pod asks for an amount that is no whole number of GPUs.

    """
    return ExtenderPreemptionResult(preempt(snapshot, args, demands_of(args.spec), memo))
