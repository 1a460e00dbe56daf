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
from mcp2026.scheduler_extender.gang_planning import Planned, plan_gang
from mcp2026.scheduler_extender.gangs import Gangs, Planning, decide
from mcp2026.scheduler_extender.policy import DEFAULT_POLICY, Policy
from mcp2026.scheduler_extender.preferences import Preferences
from mcp2026.scheduler_extender.prioritizing import rank_nodes
from mcp2026.scheduler_extender.score_memo import ScoreMemo

_FOREVER = float("inf")
_LONG = 3600.0
"""Seconds for which a gang's room is held: the clock stands still."""


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


def place_pods(
    cache: ClusterCache, pods: Iterable[ObservedPod], at: float, policy: Policy = DEFAULT_POLICY
) -> Sequence[Decision]:
    """Place `pods` in `cache` in their order; return what was decided for each, and why.

    A pod that fits nowhere is passed over. `at` is the time that the decisions bear, in seconds since 1970.
    """
    placing = _Placing(cache, policy, at)
    return [placing.place(pod) for pod in pods]


class _Placing:
    def __init__(self, cache: ClusterCache, policy: Policy, at: float) -> None:
        self._cache = cache
        self._policy = policy
        self._at = at
        self._gangs = Gangs(cache)
        self._log, self._memo = DecisionLog(limit=1_000_000), ScoreMemo()

    def place(self, pod: ObservedPod) -> Decision:
        preferences = Preferences.of(pod, self._policy)
        if pod.gang is not None and pod.demands:
            self._place_member(pod, preferences)
        else:
            self._place_alone(pod, preferences)
        return self._log.latest()[0]

    def _place_alone(self, pod: ObservedPod, preferences: Preferences) -> None:
        snapshot, memo = self._cache.snapshot(), self._memo
        filtered = filter_nodes(snapshot, tuple(snapshot.nodes), pod.demands)
        self._log.filtered(pod.key, pod.uid, pod.demands, filtered, self._at, preferences)
        ranking = rank_nodes(snapshot, filtered.feasible, pod.demands, memo, preferences)
        self._log.ranked(pod.uid, ranked_nodes(ranking, pod.demands, memo, preferences), self._at)
        if filtered.feasible:
            (best,) = ranking.best(1)
            node = best.nodes[0]
            gpus = snapshot.nodes[node].gpus
            assignment = {} if gpus is None else assignment_for(gpus, pod.demands, memo, preferences)
            self._cache.assume(pod.bound_to(node, assignment), _FOREVER)
            self._log.bound(pod.uid, node, assignment, "", self._at)

    def _place_member(self, pod: ObservedPod, preferences: Preferences) -> None:
        def plan(planning: Planning) -> Planned:
            names = planning.node_names
            return plan_gang(planning.snapshot, names, pod, planning.missing, self._memo, preferences)

        nodes = tuple(self._cache.snapshot().nodes)
        verdict = decide(self._gangs, pod, nodes, plan, self._at, _LONG)
        self._log.filtered(
            pod.key, pod.uid, pod.demands, verdict.filtered, self._at, preferences, verdict.said
        )
        for node in verdict.filtered.feasible[:1]:
            bound = self._gangs.take(pod, node, _FOREVER)
            if bound is not None:
                self._log.bound(pod.uid, node, bound.assignment, "", self._at)
