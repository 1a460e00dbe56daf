"""The verbs, from decoded arguments to results: each takes one snapshot and decides on it alone."""

from mcp2026.scheduler_extender.filtering import Filtered
from mcp2026.scheduler_extender.prioritizing import Ranking
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


def priority_list(ranking: Ranking) -> HostPriorityList:
    """Return the priority of each node."""
    return tuple(map(HostPriority, ranking.nodes, ranking.priority_of_each()))
