"""Which nodes can take the pod, and why not the others, in words that a person can act on."""

from dataclasses import dataclass
from itertools import compress

from mcp2026.api.gpu_devices import DeviceKind
from mcp2026.scheduler_extender.request import Demand
from mcp2026.scheduler_extender.snapshot import ClusterSnapshot, NodeGpus, NodeSnapshot

NOT_SEEN = "the scheduler extender has not seen this node yet"


@dataclass(frozen=True, slots=True)
class Filtered:
    """Every node asked about is in exactly one of the three."""

    feasible: tuple[str, ...]
    failed: dict[str, str]
    """Node → reason; room could appear when pods go."""
    unresolvable: dict[str, str]
    """Node → reason; no pod that went would make room."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a node does not fit, and whether it could if pods went."""

    reason: str
    resolvable: bool


def filter_nodes(
    snapshot: ClusterSnapshot, node_names: tuple[str, ...], demands: tuple[Demand, ...]
) -> Filtered:
    """Sort `node_names` by whether each has what all `demands` ask for, keeping their order."""
    if not demands:
        return Filtered(node_names, {}, {})
    words = tuple(map(snapshot.words.get, node_names))
    firsts = dict(zip(reversed(words), reversed(node_names), strict=True))
    refusals = {words: _of_node(snapshot.nodes.get(first), demands) for words, first in firsts.items()}
    fits = {words: refused is None for words, refused in refusals.items()}

    def refused_nodes(*, resolvable: bool) -> dict[str, str]:
        reasons = {
            words: refused.reason
            for words, refused in refusals.items()
            if refused is not None and refused.resolvable is resolvable
        }
        chosen = tuple(map(reasons.__contains__, words))
        told = map(reasons.__getitem__, compress(words, chosen))
        return dict(zip(compress(node_names, chosen), told, strict=True))

    return Filtered(
        feasible=tuple(compress(node_names, map(fits.__getitem__, words))),
        failed=refused_nodes(resolvable=True),
        unresolvable=refused_nodes(resolvable=False),
    )


def _of_node(node: NodeSnapshot | None, demands: tuple[Demand, ...]) -> Refusal | None:
    if node is None:
        return Refusal(NOT_SEEN, resolvable=True)
    if node.gpus is None:
        return Refusal(node.problem, resolvable=False)
    return refusal(node.gpus, demands)


def refusal(gpus: NodeGpus, demands: tuple[Demand, ...]) -> Refusal | None:
    """Return why `gpus` cannot meet the first of `demands` that they cannot; None where they meet all."""
    for demand in demands:
        if not gpus.could_fit(demand):
            return Refusal(_never(gpus, demand), resolvable=False)
    for demand in demands:
        if not gpus.fits(demand):
            return Refusal(f"needs {demand}, {gpus.room_for(demand)}", resolvable=True)
    return None


def _never(gpus: NodeGpus, demand: Demand) -> str:
    if demand.kind is not DeviceKind.GPU:
        return f"needs {demand}, {gpus.room_for(demand)}"
    if demand.units > gpus.total:
        shared = f" ({gpus.numbers(gpus.not_whole)} shared)" if gpus.not_whole else ""
        return f"has {_gpus(gpus.total)}, {demand.units} asked{shared}"
    sick = gpus.numbers(gpus.unhealthy - gpus.not_whole)
    return f"has {_gpus(gpus.healthy, 'healthy ')}, {demand.units} asked ({sick} unhealthy)"


def _gpus(count: int, quality: str = "") -> str:
    return f"1 {quality}GPU" if count == 1 else f"{count} {quality}GPUs"
