"""What was decided for each pod, and why: a bounded record for people. Pure, but for the time it is told.

Nodes come in groups, with a count and a few names: all that a reason or a score says is the same for them.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping

import msgspec

from mcp2026.api.gpu_assignment import GpuAssignment
from mcp2026.api.gpu_devices import DeviceKind
from mcp2026.scheduler_extender.choosing import best_whole, choose_parts
from mcp2026.scheduler_extender.filtering import Filtered
from mcp2026.scheduler_extender.preferences import NO_PREFERENCES, Preferences
from mcp2026.scheduler_extender.prioritizing import NODE_TERMS, RankedClass, Ranking
from mcp2026.scheduler_extender.request import Demand
from mcp2026.scheduler_extender.score_memo import ScoreMemo

DECISIONS_KEPT = 1_000
NAMES_SHOWN = 5
CLASSES_SHOWN = 20
_UNITS = {"slo-shortfall": "µs"}
"""Of the terms of parts."""


class NodeGroup(msgspec.Struct, frozen=True, rename="camel"):
    """Nodes that one thing can be said of: how many, and the first of them."""

    count: int
    nodes: tuple[str, ...]


class RefusedNodes(msgspec.Struct, frozen=True, rename="camel"):
    """Nodes that did not fit for the same reason. `preemptible`: evicting pods could make room."""

    reason: str
    preemptible: bool
    group: NodeGroup


class ScoreTerm(msgspec.Struct, frozen=True, rename="camel"):
    """A term of a score, from the highest band to the lowest."""

    name: str
    value: int
    unit: str = ""


class RankedNodes(msgspec.Struct, frozen=True, rename="camel"):
    """Nodes of one class: priority from 0 to 10, the GPUs that would be taken (by index), and the score."""

    priority: int
    gpus: tuple[int, ...]
    terms: tuple[ScoreTerm, ...]
    group: NodeGroup
    predicted_p95_ms: float | None = None
    """The worst p95 expected on these GPUs; None: nothing is known."""


class Decision(msgspec.Struct, frozen=True, rename="camel"):
    """What is known of one pod. `at` is the time of the last question about it, in seconds since 1970."""

    pod: str
    uid: str
    at: float
    asked: tuple[str, ...] = ()
    qos: str = ""
    """The pod's QoS class; empty: not known."""
    model: str = ""
    slo_p95_ms: float | None = None
    """The latency that was promised; None: nothing was."""
    gang: str = ""
    """Of a gang's member: what is held for the gang, or why it does not fit."""
    attempts: int = 0
    fitting: int = 0
    filter_ms: float = 0.0
    """How long the answer of filter took, from the whole body on, in ms; and that of prioritize."""
    prioritize_ms: float = 0.0
    refused: tuple[RefusedNodes, ...] = ()
    ranked: tuple[RankedNodes, ...] = ()
    victims: Mapping[str, tuple[str, ...]] = {}
    """By node: the UIDs of the pods that would have to go."""
    node: str = ""
    """Where bind was asked to put it last."""
    reserved: Mapping[str, Mapping[str, tuple[str, ...]]] = {}
    problem: str = ""
    """Why bind failed; empty if it did not."""


class DecisionLog:
    """The decisions for the `limit` pods asked about last. For one thread at a time."""

    def __init__(self, limit: int = DECISIONS_KEPT) -> None:
        self._limit = limit
        self._by_uid: OrderedDict[str, Decision] = OrderedDict()

    def filtered(
        self,
        pod: str,
        uid: str,
        demands: Iterable[Demand],
        result: Filtered,
        at: float,
        preferences: Preferences = NO_PREFERENCES,
        gang: str = "",
    ) -> None:
        """Note the answer of filter; what was noted of an earlier attempt goes."""
        before = self._by_uid.get(uid)
        self._keep(
            Decision(
                pod=pod,
                uid=uid,
                at=at,
                asked=tuple(map(str, demands)),
                qos=preferences.qos or "",
                model=preferences.model,
                slo_p95_ms=_milliseconds(preferences.slo_us),
                gang=gang,
                attempts=1 if before is None else before.attempts + 1,
                fitting=len(result.feasible),
                refused=_grouped(result),
            )
        )

    def ranked(self, uid: str, classes: tuple[RankedNodes, ...], at: float) -> None:
        """Note the answer of prioritize."""
        self._change(uid, at, ranked=classes)

    def took(self, uid: str, **milliseconds: float) -> None:
        """Note how long an answer took: `filter_ms` or `prioritize_ms`."""
        before = self._by_uid.get(uid)
        if before is not None:
            self._by_uid[uid] = msgspec.structs.replace(before, **milliseconds)

    def preempted(self, uid: str, victims: Mapping[str, tuple[str, ...]], at: float) -> None:
        """Note the answer of preempt."""
        self._change(uid, at, victims=dict(victims))

    def bound(self, uid: str, node: str, reserved: GpuAssignment, problem: str, at: float) -> None:
        """Note the outcome of bind."""
        self._change(uid, at, node=node, reserved=reserved, problem=problem)

    def of_pod(self, pod: str) -> tuple[Decision, ...]:
        """Return what is known of the pods called `pod` (``namespace/name``), the latest first."""
        return tuple(decision for decision in self.latest() if decision.pod == pod)

    def latest(self) -> tuple[Decision, ...]:
        """Return all decisions, the latest first."""
        return tuple(reversed(self._by_uid.values()))

    def _change(self, uid: str, at: float, **changes: object) -> None:
        """Add to what is known of a pod; one that filter was not asked about is not known."""
        before = self._by_uid.get(uid)
        if before is not None:
            self._keep(msgspec.structs.replace(before, at=at, **changes))

    def _keep(self, decision: Decision) -> None:
        self._by_uid[decision.uid] = decision
        self._by_uid.move_to_end(decision.uid)
        if len(self._by_uid) > self._limit:
            self._by_uid.popitem(last=False)


def ranked_nodes(
    ranking: Ranking,
    demands: tuple[Demand, ...],
    memo: ScoreMemo,
    preferences: Preferences = NO_PREFERENCES,
) -> tuple[RankedNodes, ...]:
    """Return the best classes of nodes with their scores, the best first."""
    best = ranking.best(CLASSES_SHOWN, NAMES_SHOWN)
    return tuple(_with_score(ranked, demands, memo, preferences) for ranked in best)


def _with_score(
    ranked: RankedClass, demands: tuple[Demand, ...], memo: ScoreMemo, preferences: Preferences
) -> RankedNodes:
    gpus: tuple[int, ...] = ()
    terms: tuple[ScoreTerm, ...] = ()
    predicted: list[int] = []
    if ranked.gpus is not None:
        for demand in demands:
            if demand.kind is DeviceKind.GPU:
                best = best_whole(ranked.gpus, demand, memo, preferences)
                taken = best.gpus
                terms += tuple(ScoreTerm(term.name, term.value, term.unit) for term in best.score.terms)
            else:
                choice = choose_parts(ranked.gpus, demand, preferences)
                taken = tuple(choice.units)
                terms += tuple(ScoreTerm(name, value, _UNITS.get(name, "")) for name, value in choice.terms)
            p95 = preferences.predicted_us(ranked.gpus, demand, taken)
            predicted += [] if p95 is None else [p95]
            gpus += tuple(ranked.gpus.indices[position] for position in taken)
        terms += tuple(
            ScoreTerm(name, value, unit)
            for (name, unit), value in zip(NODE_TERMS, ranked.node_key, strict=True)
        )
    worst = _milliseconds(max(predicted, default=None))
    return RankedNodes(ranked.priority, gpus, terms, NodeGroup(ranked.size, ranked.nodes), worst)


def _milliseconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1000


def group_of(names: Iterable[str]) -> NodeGroup:
    """Return the group of `names`."""
    everyone = tuple(names)
    return NodeGroup(len(everyone), everyone[:NAMES_SHOWN])


def _grouped(result: Filtered) -> tuple[RefusedNodes, ...]:
    groups: dict[tuple[str, bool], list[str]] = {}
    for refused, preemptible in ((result.failed, True), (result.unresolvable, False)):
        for node, reason in refused.items():
            groups.setdefault((reason, preemptible), []).append(node)
    largest_first = sorted(groups.items(), key=lambda item: -len(item[1]))
    return tuple(
        RefusedNodes(reason, preemptible, group_of(names)) for (reason, preemptible), names in largest_first
    )
