"""Where would pods go, one after the other, in a cluster as it is or as it might be? Pure.

The same filter, ranking and choice of devices as for kube-scheduler, on a cache of its own. kube-scheduler's
own filters (CPU, memory, taints, affinity) and scores are not played: of nodes that GPUs cannot tell apart it
may take another one.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcp2026.scheduler_extender.cache import ClusterCache
from mcp2026.scheduler_extender.choosing import assignment_for
from mcp2026.scheduler_extender.cluster_events import Kind, Listed, ObservedPod, observe
from mcp2026.scheduler_extender.decision_log import Decision, DecisionLog, ranked_nodes
from mcp2026.scheduler_extender.filtering import filter_nodes
from mcp2026.scheduler_extender.prioritizing import rank_nodes
from mcp2026.scheduler_extender.score_memo import ScoreMemo

_FOREVER = float("inf")


@dataclass(frozen=True, slots=True)
class ClusterDocuments:
    """A cluster as the API server gives it: the JSON objects of each kind."""

    nodes: tuple[Mapping[str, Any], ...]
    pods: tuple[Mapping[str, Any], ...]
    gpu_topologies: tuple[Mapping[str, Any], ...]
    budgets: tuple[Mapping[str, Any], ...] = ()


def cache_of(documents: ClusterDocuments) -> ClusterCache:
    """Return a cache that knows what `documents` say, and nothing else."""
    cache = ClusterCache()
    for kind, objects in (
        (Kind.NODES, documents.nodes),
        (Kind.PODS, documents.pods),
        (Kind.GPU_TOPOLOGIES, documents.gpu_topologies),
        (Kind.BUDGETS, documents.budgets),
    ):
        cache.apply(Listed(kind, tuple(observe(kind, json.dumps(each).encode()) for each in objects)))
    return cache


def place_pods(cache: ClusterCache, pods: Iterable[ObservedPod], at: float) -> Sequence[Decision]:
    """Place `pods` in `cache` in their order; return what was decided for each, and why.

    A pod that fits nowhere is passed over. `at` is the time that the decisions bear, in seconds since 1970.
    """
    log, memo = DecisionLog(limit=1_000_000), ScoreMemo()
    return [_place(cache, pod, log, memo, at) for pod in pods]


def _place(cache: ClusterCache, pod: ObservedPod, log: DecisionLog, memo: ScoreMemo, at: float) -> Decision:
    snapshot = cache.snapshot()
    filtered = filter_nodes(snapshot, tuple(snapshot.nodes), pod.demands)
    log.filtered(pod.key, pod.uid, pod.demands, filtered, at)
    ranking = rank_nodes(snapshot, filtered.feasible, pod.demands, memo)
    log.ranked(pod.uid, ranked_nodes(ranking, pod.demands, memo), at)
    if filtered.feasible:
        (best,) = ranking.best(1)
        node = best.nodes[0]
        gpus = snapshot.nodes[node].gpus
        assignment = assignment_for(gpus, pod.demands, memo) if gpus is not None else {}
        cache.assume(pod.bound_to(node, assignment), _FOREVER)
        log.bound(pod.uid, node, assignment, "", at)
    return log.latest()[0]
