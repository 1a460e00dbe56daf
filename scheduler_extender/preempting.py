"""Who must go so that a pod gets the devices that it asks for, on each node that kube-scheduler names? Pure.

docs/decisions/0110 says in which order sets are compared and what becomes of kube-scheduler's proposal.
"""

from dataclasses import replace

from mcp2026.api.gpu_devices import DeviceKind
from mcp2026.scheduler_extender.budgets import budgets_broken, is_protected
from mcp2026.scheduler_extender.choosing import unpromised
from mcp2026.scheduler_extender.promises import gang_of
from mcp2026.scheduler_extender.request import Demand
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from mcp2026.scheduler_extender.snapshot import ClusterSnapshot, NodeGpus, NodeSnapshot, PlacedPod
from mcp2026.scheduler_extender.victims import (
    Occupant,
    cheapest_eviction,
    with_what_the_scheduler_needs,
)
from mcp2026.scheduler_extender.victims_of_parts import PartsHolder, cheapest_holders
from mcp2026.scheduler_extender.wire import MetaPod, MetaVictims, PreemptionArgs, ProposedVictims


def preempt(
    snapshot: ClusterSnapshot, args: PreemptionArgs, demands: tuple[Demand, ...], memo: ScoreMemo
) -> dict[str, MetaVictims]:
    """Return the victims of each node on which evicting pods makes room; other nodes are left out.

    A pod without GPUs has kube-scheduler's own victims. A gang's member has none: pods would go for it alone,
    and the gang still not fit (0116).
    """
    if not demands:
        return {node: _as_proposed(proposed) for node, proposed in args.proposed.items()}
    if gang_of(args.pod.metadata.annotations or {}) is not None:
        return {}
    priority = args.spec.priority or 0
    found = {}
    for name, proposed in args.proposed.items():
        node = snapshot.nodes.get(name)
        if node is None or node.gpus is None:
            continue
        victims = node_victims(snapshot, node, demands, priority, proposed, memo)
        if victims is not None:
            found[name] = victims
    return found


def _as_proposed(proposed: ProposedVictims) -> MetaVictims:
    return MetaVictims(tuple(map(MetaPod, proposed.uids)), proposed.budgets_broken)


def node_victims(
    snapshot: ClusterSnapshot,
    node: NodeSnapshot,
    demands: tuple[Demand, ...],
    priority: int,
    proposed: ProposedVictims,
    memo: ScoreMemo,
) -> MetaVictims | None:
    """Return who must go from `node` for a pod with `demands`; None where nobody's going helps."""
    gpus = node.gpus
    if gpus is None or not all(gpus.could_fit(demand) for demand in demands):
        return None
    lower = [placed for placed in node.pods if placed.pod.priority < priority]
    chosen: dict[str, Occupant] = {}
    for demand in demands:
        victims = _victims_for(gpus, demand, lower, snapshot, memo)
        if victims is None:
            return None
        chosen |= {victim.uid: victim for victim in victims}
    known = {placed.pod.uid: placed for placed in node.pods}
    base = [_proposed_occupant(uid, known, snapshot) for uid in proposed.uids]
    everyone = with_what_the_scheduler_needs(tuple(chosen.values()), base)
    pods = [known[victim.uid].pod for victim in everyone if victim.uid in known]
    unknown = len(everyone) - len(pods)
    broken = budgets_broken(pods, snapshot.budgets)
    return MetaVictims(
        tuple(MetaPod(victim.uid) for victim in everyone),
        broken + min(unknown, proposed.budgets_broken),
    )


def _proposed_occupant(uid: str, known: dict[str, PlacedPod], snapshot: ClusterSnapshot) -> Occupant:
    """Return a victim of kube-scheduler's; of one without GPUs we know nothing but its UID."""
    placed = known.get(uid)
    if placed is None:
        return Occupant(uid, 0, frozenset())
    return _occupant(placed, placed.gpus, snapshot)


def _occupant(placed: PlacedPod, gpus: frozenset[int], snapshot: ClusterSnapshot) -> Occupant:
    pod = placed.pod
    return Occupant(
        uid=pod.uid,
        priority=pod.priority,
        gpus=gpus,
        protected=is_protected(pod, snapshot.budgets),
        milli_cpu=pod.milli_cpu,
        memory=pod.memory,
    )


def _victims_for(
    gpus: NodeGpus, demand: Demand, lower: list[PlacedPod], snapshot: ClusterSnapshot, memo: ScoreMemo
) -> tuple[Occupant, ...] | None:
    staying = [placed for placed in lower if not placed.pod.leaving]
    leaving = [placed for placed in lower if placed.pod.leaving]
    if demand.kind is DeviceKind.GPU:
        available = set(unpromised(gpus, memo)).union(*(placed.gpus for placed in leaving)) - gpus.unhealthy
        occupants = [
            _occupant(placed, usable, snapshot)
            for placed in staying
            if (usable := placed.gpus - gpus.unhealthy - gpus.not_whole)
        ]
        eviction = cheapest_eviction(gpus.graph, available, occupants, demand.units)
        return None if eviction is None else eviction.victims
    free = [
        replace(part, free=part.free + sum(_units(placed, demand, part.position) for placed in leaving))
        for part in gpus.parts.get(demand.resource, ())
        if part.position not in gpus.unhealthy
    ]
    holders = [
        PartsHolder(_occupant(placed, frozenset(), snapshot), units)
        for placed in staying
        if (units := placed.parts.get(demand.resource))
    ]
    return cheapest_holders(demand, free, holders)


def _units(placed: PlacedPod, demand: Demand, position: int) -> int:
    return placed.parts.get(demand.resource, {}).get(position, 0)
