"""Which nodes can take the pod, and why not the others, in words that a person can act on."""

from collections import OrderedDict
from dataclasses import dataclass
from itertools import filterfalse

from mcp2026.api.gpu_devices import DeviceKind
from mcp2026.scheduler_extender.request import Demand
from mcp2026.scheduler_extender.snapshot import ClusterSnapshot, NodeGpus, NodeSnapshot

DEMANDS_KNOWN, WORDS_KNOWN = 32, 4_096
"""What is remembered: 80 MiB at the very most."""
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


class RefusalMemo:
    """Remembers what was said of nodes for the demands asked about last: pods ask for few different things.

    What is said of a node depends on its words alone, so it stays true.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Demand, ...], dict[str, Refusal | None]] = OrderedDict()

    def of(self, demands: tuple[Demand, ...]) -> dict[str, Refusal | None]:
        """Return what is known for `demands`, by the nodes' words; the caller adds what is not."""
        known = self._known.setdefault(demands, {})
        self._known.move_to_end(demands)
        if len(self._known) > DEMANDS_KNOWN:
            self._known.popitem(last=False)
        if len(known) > WORDS_KNOWN:
            known.clear()
        return known


def filter_nodes(
    snapshot: ClusterSnapshot,
    node_names: tuple[str, ...],
    demands: tuple[Demand, ...],
    memo: RefusalMemo | None = None,
) -> Filtered:
    """Sort `node_names` by whether each has what all `demands` ask for, keeping their order."""
    if not demands:
        return Filtered(node_names, {}, {})
    known = {} if memo is None else memo.of(demands)
    refused: dict[str, Refusal] = {}
    for words, alike in snapshot.alike.items():
        if words not in known:
            known[words] = _of_node(snapshot.nodes[next(iter(alike))], demands)
        refusal_of_all = known[words]
        if refusal_of_all is not None:
            refused.update(dict.fromkeys(alike, refusal_of_all))
    unseen = filterfalse(snapshot.nodes.__contains__, node_names)
    refused.update(dict.fromkeys(unseen, Refusal(NOT_SEEN, resolvable=True)))

    filtered = Filtered(tuple(filterfalse(refused.__contains__, node_names)), {}, {})
    if len(filtered.feasible) < len(node_names):
        for name in filter(refused.__contains__, node_names):
            why = refused[name]
            (filtered.failed if why.resolvable else filtered.unresolvable)[name] = why.reason
    return filtered


def _of_node(node: NodeSnapshot, demands: tuple[Demand, ...]) -> Refusal | None:
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
