"""Which nodes can take the pod, and why not the others, in words that a person can act on."""

from dataclasses import dataclass

from mcp2026.scheduler_extender.snapshot import ClusterSnapshot


@dataclass(frozen=True, slots=True)
class Filtered:
    """Every node asked about is in exactly one of the three."""

    feasible: tuple[str, ...]
    failed: dict[str, str]
    """Node → reason; room could appear when pods go."""
    unresolvable: dict[str, str]
    """Node → reason; no pod that went would make room."""


def filter_nodes(snapshot: ClusterSnapshot, node_names: tuple[str, ...], asked: int) -> Filtered:
    """Sort `node_names` by whether each has `asked` GPUs to give, keeping their order."""
    if asked == 0:
        return Filtered(node_names, {}, {})
    feasible: list[str] = []
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    for name in node_names:
        node = snapshot.nodes.get(name)
        if node is None:
            failed[name] = "the scheduler extender has not seen this node yet"
        elif node.gpus is None:
            unresolvable[name] = node.problem
        elif asked <= node.gpus.available:
            feasible.append(name)
        elif asked > node.gpus.total:
            unresolvable[name] = f"has {_gpus(node.gpus.total)}, {asked} asked"
        elif asked > node.gpus.healthy:
            sick = node.gpus.numbers(node.gpus.unhealthy)
            healthy = _gpus(node.gpus.healthy, "healthy ")
            unresolvable[name] = f"has {healthy}, {asked} asked ({sick} unhealthy)"
        else:
            failed[name] = f"needs {_gpus(asked)}, {node.gpus.room}"
    return Filtered(tuple(feasible), failed, unresolvable)


def _gpus(count: int, quality: str = "") -> str:
    return f"1 {quality}GPU" if count == 1 else f"{count} {quality}GPUs"
