"""Which of the nodes that fit is best: the one whose best free set of GPUs scores highest.

The score of a set is a list of terms in bands. Bands cannot be put into the protocol's 0 to 10 as a weighted
sum without one flipping another, so nodes are ranked by their lists and the ranks are put into 0 to 10.
"""

from collections.abc import Sequence

from mcp2026.scheduler_extender.choosing import Key, best_key
from mcp2026.scheduler_extender.request import Demand
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from mcp2026.scheduler_extender.snapshot import ClusterSnapshot
from mcp2026.scheduler_extender.wire import MAX_PRIORITY

_NO_ROOM: Key = ()
"""The key of a node without room: below every real key."""


def prioritize_nodes(
    snapshot: ClusterSnapshot, node_names: tuple[str, ...], demands: tuple[Demand, ...], memo: ScoreMemo
) -> dict[str, int]:
    """Return the priority of each node, 0 to 10: 0 everywhere for a pod that asks for no GPU."""
    if not demands:
        return dict.fromkeys(node_names, 0)
    keys: dict[str, Key] = {"": _NO_ROOM}
    states = []
    for name in node_names:
        node = snapshot.nodes.get(name)
        gpus = node.gpus if node is not None else None
        state = gpus.state if gpus is not None else ""
        if gpus is not None and state not in keys:
            fits = all(gpus.fits(demand) for demand in demands)
            keys[state] = best_key(gpus, demands, memo) if fits else _NO_ROOM
        states.append(state)
    seen = set(states)
    classes = [state for state in keys if state in seen]
    ranked = ranks_to_priorities([keys[state] for state in classes])
    priority = dict(zip(classes, ranked, strict=True))
    return {name: priority[state] for name, state in zip(node_names, states, strict=True)}


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
