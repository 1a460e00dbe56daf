"""What we know of the cluster, from events alone: no input or output, no clock.

Free GPUs are counted carefully: a GPU is free only if its node's `GPUTopology` shows no holder, and pods
that are bound to the node but that the topology does not show yet are deducted by count. A pod bound
by kube-scheduler is thus counted from the moment in which the watch shows it, long before the kubelet
has allocated its devices; and it is never counted twice. A holder that the watch of pods showed and then saw
end is one no longer, although the topology shows it some seconds more: the kubelet lets a pod go only when
its containers have ended.
"""

import sys
from collections.abc import Callable

from mcp2026.scheduler_extender.accounting import node_gpus, placed_pods, tenants_of
from mcp2026.scheduler_extender.cluster_events import (
    ClusterEvent,
    Gone,
    Kind,
    Listed,
    Observed,
    ObservedBudget,
    ObservedNode,
    ObservedPod,
    ObservedTopology,
    Seen,
)
from mcp2026.scheduler_extender.snapshot import NO_CROWDS, ClusterSnapshot, Crowds, NodeGpus, NodeSnapshot

GangKey = tuple[str, str]
"""Namespace and name of a gang."""


def gang_key(pod: ObservedPod) -> GangKey:
    """Return the gang that `pod` belongs to; one without a gang is alone in that of the empty name."""
    return pod.namespace, pod.gang.name if pod.gang is not None else ""


NO_TOPOLOGY = "no GPUTopology for this node: is the device plugin running?"


class _CrowdCount:
    """Counts the pods of one kind on each node."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._classes: dict[str, str] = {}
        self._now: Crowds | None = None

    def set(self, node: str, count: int, state: str) -> None:
        name = sys.intern(f"{state} {count}")
        if self._classes.get(node) is name:
            return
        self._classes[node] = name
        if count:
            self._counts[node] = count
        else:
            self._counts.pop(node, None)
        self._now = None

    def forget(self, node: str) -> None:
        self._counts.pop(node, None)
        self._classes.pop(node, None)
        self._now = None

    def now(self) -> Crowds:
        """Return the counts as they are; without any, there is nothing to tell nodes apart by."""
        if self._now is None:
            self._now = Crowds(self._counts.copy(), self._classes.copy()) if self._counts else NO_CROWDS
        return self._now


class _Alike:
    """Groups the nodes that no answer of ours can tell apart, by what it would say of them."""

    def __init__(self) -> None:
        self._words: dict[str, str] = {}
        self._names: dict[str, set[str]] = {}
        self._changed: set[str] = set()
        self._now: dict[str, frozenset[str]] = {}

    def set(self, node: str, words: str) -> None:
        if self._words.get(node) == words:
            return
        self.forget(node)
        self._words[node] = words
        self._names.setdefault(words, set()).add(node)
        self._changed.add(words)

    def forget(self, node: str) -> None:
        words = self._words.pop(node, None)
        if words is not None:
            self._names[words].remove(node)
            self._changed.add(words)

    def now(self) -> dict[str, frozenset[str]]:
        """Return the groups as they are; only those that have changed are written anew."""
        if self._changed:
            self._now = self._now.copy()
        for words in self._changed:
            if names := self._names[words]:
                self._now[words] = frozenset(names)
            else:
                del self._names[words]
                self._now.pop(words, None)
        self._changed.clear()
        return self._now


class ClusterCache:
    """Takes events, gives snapshots."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeSnapshot] = {}
        self._states: dict[str, str] = {}
        self._alike = _Alike()
        self._guaranteed = _CrowdCount()
        self._others = _CrowdCount()
        self._gangs: dict[GangKey, dict[str, ObservedPod]] = {}
        self._new_states: dict[str, NodeGpus] = {}
        self.on_new_state: Callable[[], None] = lambda: None
        """Called whenever a node has come into another state, for `take_new_states`."""
        """Of each node: kept beside, and interned, so that thousands are looked up and compared fast."""
        self._topologies: dict[str, ObservedTopology] = {}
        self._pods: dict[str, ObservedPod] = {}
        """By key: pods that are bound, ask for GPUs and have not ended. No others matter."""
        self._pods_on: dict[str, dict[str, ObservedPod]] = {}
        self._departed: dict[str, set[str]] = {}
        """Per node the keys of pods that have ended and that its topology still shows as holders."""
        self._budgets: dict[str, ObservedBudget] = {}
        self._assumed: dict[str, float] = {}
        """Keys of pods that we are binding, with the time at which we stop believing in it."""
        self._listed: set[Kind] = set()
        self._snapshot: ClusterSnapshot | None = None

    @property
    def waiting_for(self) -> tuple[Kind, ...]:
        """The kinds that were not listed yet; a snapshot is trustworthy once there are none."""
        return tuple(kind for kind in Kind if kind not in self._listed)

    def take_new_states(self, most: int) -> list[NodeGpus]:
        """Return up to `most` states that nodes have come into since they were last taken, each once."""
        return [self._new_states.popitem()[1] for _ in range(min(most, len(self._new_states)))]

    @property
    def sizes(self) -> dict[Kind, int]:
        """How many objects of each kind are kept."""
        return {
            Kind.NODES: len(self._nodes),
            Kind.PODS: len(self._pods),
            Kind.GPU_TOPOLOGIES: len(self._topologies),
            Kind.BUDGETS: len(self._budgets),
        }

    def snapshot(self) -> ClusterSnapshot:
        """Return the cluster as it is now. Costs nothing while nothing changed."""
        if self._snapshot is None:
            self._snapshot = ClusterSnapshot(
                nodes=self._nodes.copy(),
                states=self._states.copy(),
                alike=self._alike.now(),
                budgets=tuple(self._budgets.values()),
                guaranteed=self._guaranteed.now(),
                others=self._others.now(),
            )
        return self._snapshot

    def node(self, name: str) -> NodeSnapshot | None:
        """Return the node as it is now: the same object for as long as it does not change."""
        return self._nodes.get(name)

    def bound_at(self, pod: ObservedPod) -> str:
        """Return the node on which the watch has shown this very pod; empty if it has not."""
        known = self._pods.get(pod.key)
        seen = known is not None and known.uid == pod.uid and pod.key not in self._assumed
        return known.node if known is not None and seen else ""

    def apply(self, event: ClusterEvent) -> None:
        """Take one event into account."""
        match event:
            case Listed(kind, objects):
                keys = {observed.key for observed in objects}
                for key in [key for key in self._keys(kind) if key not in keys]:
                    if kind is not Kind.PODS or key not in self._assumed:
                        self._forget(kind, key)
                for observed in objects:
                    self._remember(observed)
                self._listed.add(kind)
            case Seen(observed):
                self._remember(observed)
            case Gone(kind, key):
                # An assumed pod was never shown: what is gone is one of the same name that was before it.
                if kind is not Kind.PODS or key not in self._assumed:
                    self._forget(kind, key)

    def assume(self, pod: ObservedPod, until: float) -> None:
        """Count `pod`, which names its node and its devices, as bound until the watch shows it or `until`."""
        self._assumed.pop(pod.key, None)
        self._remember(pod)
        if pod.key in self._pods:  # else it asks for no GPU: there is nothing to count
            self._assumed[pod.key] = until

    def assumed(self, key: str) -> ObservedPod | None:
        """Return the pod `key` if it is assumed to be bound, and was not seen bound."""
        return self._pods[key] if key in self._assumed else None

    def release(self, key: str) -> None:
        """Stop assuming that the pod `key` is bound; one that the watch has shown stays."""
        if self._assumed.pop(key, None) is not None:
            self._forget(Kind.PODS, key)

    def members(self, gang: GangKey) -> tuple[ObservedPod, ...]:
        """Return the pods of `gang` that are bound, or assumed to be."""
        return tuple(self._gangs.get(gang, {}).values())

    def expire(self, now: float) -> tuple[str, ...]:
        """Release what was assumed until `now` at the latest; return which pods these were."""
        expired = tuple(key for key, until in self._assumed.items() if until <= now)
        for key in expired:
            self.release(key)
        return expired

    def _keys(self, kind: Kind) -> tuple[str, ...]:
        match kind:
            case Kind.NODES:
                return tuple(self._nodes)
            case Kind.PODS:
                return tuple(self._pods)
            case Kind.GPU_TOPOLOGIES:
                return tuple(self._topologies)
            case Kind.BUDGETS:
                return tuple(self._budgets)

    def _remember(self, observed: Observed) -> None:
        match observed:
            case ObservedNode(name):
                if name not in self._nodes:
                    self._set(self._view(name))
            case ObservedBudget():
                self._budgets[observed.key] = observed
                self._snapshot = None
            case ObservedTopology(name):
                self._topologies[name] = observed
                if name in self._departed:
                    self._departed[name].intersection_update(observed.holding)
                self._refresh(name)
            case ObservedPod():
                if observed.key in self._assumed and self._pods[observed.key].uid != observed.uid:
                    return  # one of the same name that was before the pod that we are binding
                self._assumed.pop(observed.key, None)
                if self._pods.get(observed.key) == observed:
                    return
                self._forget(Kind.PODS, observed.key)
                if observed.node and observed.demands and not observed.finished:
                    self._pods[observed.key] = observed
                    self._departed.get(observed.node, set()).discard(observed.key)
                    self._pods_on.setdefault(observed.node, {})[observed.key] = observed
                    if observed.gang is not None:
                        self._gangs.setdefault(gang_key(observed), {})[observed.key] = observed
                    self._refresh(observed.node)

    def _forget(self, kind: Kind, key: str) -> None:
        match kind:
            case Kind.NODES:
                if self._nodes.pop(key, None):
                    del self._states[key]
                    self._alike.forget(key)
                    self._guaranteed.forget(key)
                    self._others.forget(key)
                    self._snapshot = None
            case Kind.BUDGETS:
                if self._budgets.pop(key, None):
                    self._snapshot = None
            case Kind.GPU_TOPOLOGIES:
                if self._topologies.pop(key, None):
                    self._departed.pop(key, None)
                    self._refresh(key)
            case Kind.PODS:
                pod = self._pods.pop(key, None)
                if pod is not None:
                    if pod.gang is not None:
                        self._leave_gang(pod)
                    here = self._pods_on[pod.node]
                    del here[key]
                    if not here:
                        del self._pods_on[pod.node]
                    topology = self._topologies.get(pod.node)
                    if topology is not None and key in topology.holding:
                        self._departed.setdefault(pod.node, set()).add(key)
                    self._refresh(pod.node)

    def _leave_gang(self, pod: ObservedPod) -> None:
        members = self._gangs[gang_key(pod)]
        del members[pod.key]
        if not members:
            del self._gangs[gang_key(pod)]

    def _refresh(self, node: str) -> None:
        if node in self._nodes:
            self._set(self._view(node))

    def _set(self, node: NodeSnapshot) -> None:
        state = sys.intern(node.state)
        if node.gpus is not None and self._states.get(node.name) != state:
            self._new_states[state] = node.gpus
            self.on_new_state()
        self._nodes[node.name] = node
        self._states[node.name] = state
        self._alike.set(node.name, node.words)
        tenants = tenants_of(placed.pod for placed in node.pods)
        self._guaranteed.set(node.name, tenants.guaranteed, state)
        self._others.set(node.name, tenants.others, state)
        self._snapshot = None

    def _view(self, node: str) -> NodeSnapshot:
        topology = self._topologies.get(node)
        if topology is None:
            return NodeSnapshot(node, None, NO_TOPOLOGY)
        if topology.graph is None:
            return NodeSnapshot(node, None, topology.problem)
        departed = self._departed.get(node, ())
        pods = self._pods_on.get(node, {})
        return NodeSnapshot(
            node,
            node_gpus(topology.graph, topology, pods, departed),
            pods=tuple(placed_pods(topology, pods)),
        )
