"""Which of the nodes that fit is best: the one whose best free set of GPUs scores highest.

The score of a set is a list of terms in bands. Bands cannot be put into the protocol's 0 to 10 as a weighted
sum without one flipping another, so nodes are ranked by their lists and the ranks are put into 0 to 10.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mcp2026.scheduler_extender.choosing import Key, best_key
from mcp2026.scheduler_extender.request import Demand
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from mcp2026.scheduler_extender.snapshot import ClusterSnapshot, NodeGpus
from mcp2026.scheduler_extender.wire import MAX_PRIORITY

_NO_ROOM: Key = ()
"""The key of a node without room: below every real key."""


@dataclass(frozen=True, slots=True)
class RankedClass:
    """Nodes that no score tells apart, by name. `gpus` are those of the first; None: there is no room."""

    priority: int
    nodes: tuple[str, ...]
    gpus: NodeGpus | None


def rank_nodes(
    snapshot: ClusterSnapshot, node_names: tuple[str, ...], demands: tuple[Demand, ...], memo: ScoreMemo
) -> tuple[RankedClass, ...]:
    """Return the nodes in classes with a priority from 0 to 10: 0 for all if the pod asks for no GPU."""
    if not demands:
        return (RankedClass(0, node_names, None),)
    members: dict[str, list[str]] = {}
    firsts: dict[str, NodeGpus | None] = {}
    for name in node_names:
        node = snapshot.nodes.get(name)
        gpus = node.gpus if node is not None else None
        state = gpus.state if gpus is not None else ""
        known = members.get(state)
        if known is not None:
            known.append(name)
            continue
        fits = gpus is not None and all(gpus.fits(demand) for demand in demands)
        members[state] = [name]
        firsts[state] = gpus if fits else None
    keys = [_NO_ROOM if gpus is None else best_key(gpus, demands, memo) for gpus in firsts.values()]
    return tuple(
        RankedClass(priority, tuple(members[state]), gpus)
        for priority, (state, gpus) in zip(ranks_to_priorities(keys), firsts.items(), strict=True)
    )


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
