"""Which of the nodes that fit is best: the one whose best free set of GPUs scores highest.

The score of a set is a list of terms in bands. Bands cannot be put into the protocol's 0 to 10 as a weighted
sum without one flipping another, so nodes are ranked by their lists and the ranks are put into 0 to 10.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mcp2026.scheduler_extender.choosing import Key, best_key
from mcp2026.scheduler_extender.preferences import NO_PREFERENCES, NodeTerm, Preferences
from mcp2026.scheduler_extender.request import Demand
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from mcp2026.scheduler_extender.snapshot import ClusterSnapshot, NodeGpus, NodeSnapshot
from mcp2026.scheduler_extender.wire import MAX_PRIORITY

NodeClass = str | tuple[str | None, int | None] | None
"""Equal for nodes that no score tells apart: the state, or state and crowd."""
_NO_ROOM: Key = ()
"""The key of a node without room: below every real key."""


@dataclass(frozen=True, slots=True)
class RankedClass:
    """Nodes that no score tells apart. `gpus` are those of the first; None: there is no room.

    `terms` are those of the node, below those of its GPUs.
    """

    priority: int
    nodes: tuple[str, ...]
    gpus: NodeGpus | None
    terms: tuple[NodeTerm, ...] = ()


@dataclass(frozen=True, slots=True)
class Ranking:
    """The nodes in the order asked, the class of each, and what is known of each class.

    `firsts` has the GPUs of the first node of each class; None: there is no room. `terms` are of the node.
    """

    nodes: tuple[str, ...]
    classes: tuple[NodeClass, ...]
    priorities: Mapping[NodeClass, int]
    firsts: Mapping[NodeClass, NodeGpus | None]
    terms: Mapping[NodeClass, tuple[NodeTerm, ...]] = field(default_factory=dict)

    def priority_of_each(self) -> Iterator[int]:
        """Yield the priority of each of `nodes`, 0 to 10."""
        return map(self.priorities.__getitem__, self.classes)

    def best(self, count: int) -> tuple[RankedClass, ...]:
        """Return the `count` best classes, the best first, of equal ones the largest."""
        sizes = Counter(self.classes)
        best = sorted(self.priorities, key=lambda each: (-self.priorities[each], -sizes[each]))[:count]
        members: dict[NodeClass, list[str]] = {each: [] for each in best}
        for name, its in zip(self.nodes, self.classes, strict=True):
            if its in members:
                members[its].append(name)
        return tuple(
            RankedClass(
                self.priorities[each], tuple(members[each]), self.firsts[each], self.terms.get(each, ())
            )
            for each in best
        )


def rank_nodes(
    snapshot: ClusterSnapshot,
    node_names: tuple[str, ...],
    demands: tuple[Demand, ...],
    memo: ScoreMemo,
    preferences: Preferences = NO_PREFERENCES,
) -> Ranking:
    """Rank the nodes by their best devices for `demands`: all alike if the pod asks for no GPU."""
    if not demands:
        return Ranking(node_names, ("",) * len(node_names), {"": 0}, {"": None})
    crowds = preferences.crowds(snapshot)
    classes = _classes(snapshot, node_names, crowds)
    firsts = dict(zip(reversed(classes), reversed(node_names), strict=True))
    gpus = {each: _with_room(snapshot.nodes.get(name), demands) for each, name in firsts.items()}
    terms = {
        each: preferences.node_terms(free, demands, crowds.get(firsts[each], 0))
        for each, free in gpus.items()
        if free is not None
    }
    of_states: dict[str, Key] = {}
    keys = []
    for each, free in gpus.items():
        if free is None:
            keys.append(_NO_ROOM)
            continue
        key = of_states.get(free.state)
        if key is None:
            key = of_states[free.state] = best_key(free, demands, memo, preferences)
        keys.append(key + tuple(term.value for term in terms[each]))
    priorities = dict(zip(gpus, ranks_to_priorities(keys), strict=True))
    return Ranking(node_names, classes, priorities, gpus, terms)


def _classes(
    snapshot: ClusterSnapshot, node_names: tuple[str, ...], crowds: Mapping[str, int]
) -> tuple[NodeClass, ...]:
    """Return the class of each node: its state, and beside it how crowded it is, where any node is."""
    states = map(snapshot.states.get, node_names)
    return tuple(zip(states, map(crowds.get, node_names), strict=True)) if crowds else tuple(states)


def _with_room(node: NodeSnapshot | None, demands: tuple[Demand, ...]) -> NodeGpus | None:
    gpus = node.gpus if node is not None else None
    return gpus if gpus is not None and all(gpus.fits(demand) for demand in demands) else None


def ranks_to_priorities(keys: Sequence[tuple[int, ...]]) -> list[int]:
    """Return a priority 0 to 10 for each key.

    Equal keys get equal priorities, a greater key never a lower one. The greatest alone gets 10, so that the
    best node wins however many classes there are; the others are spread down to 0. A lone class gets 10.
    """
    classes = sorted(set(keys), reverse=True)
    steps = len(classes) - 1
    priority = {
        key: MAX_PRIORITY - (-(-MAX_PRIORITY * rank // steps) if steps else 0)
        for rank, key in enumerate(classes)
    }
    priority[_NO_ROOM] = 0
    return [priority[key] for key in keys]
