"""The verbs, from decoded arguments to results: each takes one snapshot and decides on it alone."""

from mcp2026.scheduler_extender.filtering import Filtered
from mcp2026.scheduler_extender.prioritizing import RankedClass
from mcp2026.scheduler_extender.wire import (
    ExtenderArgs,
    ExtenderFilterResult,
    HostPriority,
    HostPriorityList,
    NodeList,
)


def filter_result(filtered: Filtered, args: ExtenderArgs) -> ExtenderFilterResult:
    """Return which nodes can take the pod, as names or as whole nodes, in the way asked."""
    whole = args.whole_nodes
    return ExtenderFilterResult(
        nodes=None if whole is None else NodeList(tuple(whole[name] for name in filtered.feasible)),
        node_names=filtered.feasible if whole is None else None,
        failed_nodes=filtered.failed,
        failed_and_unresolvable_nodes=filtered.unresolvable,
    )


def priority_list(ranked: tuple[RankedClass, ...]) -> HostPriorityList:
    """Return the priority of each node."""
    return tuple(HostPriority(name, nodes.priority) for nodes in ranked for name in nodes.nodes)
