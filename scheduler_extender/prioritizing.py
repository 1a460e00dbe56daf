"""Which of the nodes that fit is best: the one whose best free set of GPUs scores highest.

The score of a set is a list of terms in bands. Bands cannot be put into the protocol's 0 to 10 as a weighted
sum without one flipping another, so nodes are ranked by their lists and the ranks are put into 0 to 10.
"""

from collections.abc import Sequence

from mcp2026.scheduler_extender.score_memo import ScoreMemo
from mcp2026.scheduler_extender.snapshot import ClusterSnapshot, NodeGpus
from mcp2026.scheduler_extender.wire import MAX_PRIORITY

_NO_ROOM: tuple[int, ...] = ()
"""The key of a node without room: below every real key."""


def prioritize_nodes(
    snapshot: ClusterSnapshot, node_names: tuple[str, ...], asked: int, memo: ScoreMemo
) -> dict[str, int]:
    """Return the priority of each node, 0 to 10: 0 everywhere for a pod that asks for no GPU."""
    if asked == 0:
        return dict.fromkeys(node_names, 0)
    keys: dict[str, tuple[int, ...]] = {"": _NO_ROOM}
    states = []
    for name in node_names:
        node = snapshot.nodes.get(name)
        gpus = node.gpus if node is not None else None
        state = gpus.state if gpus is not None and asked <= gpus.available else ""
        if gpus is not None and state not in keys:
            keys[state] = best_key(gpus, asked, memo)
        states.append(state)
    seen = set(states)
    classes = [state for state in keys if state in seen]
    ranked = ranks_to_priorities([keys[state] for state in classes])
    priority = dict(zip(classes, ranked, strict=True))
    return {name: priority[state] for name, state in zip(node_names, states, strict=True)}


def best_key(gpus: NodeGpus, asked: int, memo: ScoreMemo) -> tuple[int, ...]:
    """Return the score's key of the best set of `asked` GPUs that the node can give.

    Pods that are starting get their sets first. The node's device plugin will choose for them with this same
    scorer, so what it will take is foreseen with it; the node's `available` is at least `asked`.
    """
    free = gpus.free
    for promise in gpus.promised:
        taken = memo.best(gpus, free, promise).gpus
        free = tuple(gpu for gpu in free if gpu not in taken)
    return memo.best(gpus, free, asked).key


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
