"""Which of the nodes that fit is best: the one whose best free set of GPUs scores highest.

The score of a set is a list of terms in bands. Bands cannot be put into the protocol's 0 to 10 as a weighted
sum without one flipping another, so nodes are ranked by their lists and the ranks are put into 0 to 10.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mcp2026.scheduler_extender.choosing import Key, best_key
from mcp2026.scheduler_extender.preferences import NO_PREFERENCES, Preferences
from mcp2026.scheduler_extender.request import Demand
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from mcp2026.scheduler_extender.snapshot import ClusterSnapshot, NodeGpus, NodeSnapshot
from mcp2026.scheduler_extender.wire import MAX_PRIORITY

NODE_TERMS = (("other-qos-on-node", ""), ("free-percent", "%"))
"""Name and unit of the terms that are of the node and not of the GPUs taken, below all that are of these."""
_NO_ROOM: Key = ()
"""The key of a node without room: below every real key."""


@dataclass(frozen=True, slots=True)
class RankedClass:
    """Nodes that no score tells apart. `gpus` are those of the first; None: there is no room.

    `node_key` has the values of `NODE_TERMS`. There are `size` nodes, of which `nodes` are the first.
    """

    priority: int
    nodes: tuple[str, ...]
    gpus: NodeGpus | None
    node_key: Key = ()
    size: int = 0


@dataclass(frozen=True, slots=True)
class Ranking:
    """The nodes in the order asked, the class of each, and what is known of each class.

    `firsts` has the GPUs of the first node of each class; None: there is no room. `node_keys` has
    the values of `NODE_TERMS`.
    """

    nodes: tuple[str, ...]
    classes: tuple[str | None, ...]
    priorities: Mapping[str | None, int]
    firsts: Mapping[str | None, NodeGpus | None]
    node_keys: Mapping[str | None, Key] = field(default_factory=dict)

    def priority_of_each(self) -> Iterator[int]:
        """Yield the priority of each of `nodes`, 0 to 10."""
        return map(self.priorities.__getitem__, self.classes)

    def best(self, count: int, names: int | None = None) -> tuple[RankedClass, ...]:
        """Return the `count` best classes, the best first, of equal ones the largest.

        Each has the first `names` of its nodes, or all of them.
        """
        sizes = Counter(self.classes)
        best = sorted(self.priorities, key=lambda each: (-self.priorities[each], -sizes[each]))[:count]
        wanted = {each: sizes[each] if names is None else min(names, sizes[each]) for each in best}
        members: dict[str | None, list[str]] = {each: [] for each in best}
        for name, its in zip(self.nodes, self.classes, strict=True):
            if its in wanted:
                members[its].append(name)
                wanted[its] -= 1
                if not wanted[its]:
                    del wanted[its]
        return tuple(
            RankedClass(
                self.priorities[each],
                tuple(members[each]),
                self.firsts[each],
                self.node_keys.get(each, ()),
                sizes[each],
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
    classes = tuple(map((crowds.classes or snapshot.states).get, node_names))
    firsts = dict(zip(reversed(classes), reversed(node_names), strict=True))
    of_states: dict[str | None, _Scored] = {}
    for name in firsts.values():
        state = snapshot.states.get(name)
        if state not in of_states:
            of_states[state] = _scored(snapshot.nodes.get(name), demands, memo, preferences)
    scored = {each: of_states[snapshot.states.get(name)] for each, name in firsts.items()}
    node_keys = {each: (-crowds.counts.get(firsts[each], 0), its.fullness) for each, its in scored.items()}
    keys = [_NO_ROOM if its.gpus is None else its.key + node_keys[each] for each, its in scored.items()]
    priorities = dict(zip(scored, ranks_to_priorities(keys), strict=True))
    return Ranking(
        node_names, classes, priorities, {each: its.gpus for each, its in scored.items()}, node_keys
    )


@dataclass(frozen=True, slots=True)
class _Scored:
    """Of nodes in one state: how good the best devices are; without `gpus` there is no room."""

    gpus: NodeGpus | None
    key: Key = _NO_ROOM
    fullness: int = 0


def _scored(
    node: NodeSnapshot | None, demands: tuple[Demand, ...], memo: ScoreMemo, preferences: Preferences
) -> _Scored:
    gpus = _with_room(node, demands)
    if gpus is None:
        return _Scored(None)
    return _Scored(gpus, best_key(gpus, demands, memo, preferences), preferences.fullness(gpus, demands))


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
