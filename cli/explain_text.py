"""A scheduling decision in words: what was asked for, which nodes fitted, and why the winner won. Pure."""

from collections.abc import Sequence
from datetime import UTC, datetime
from textwrap import indent

from mcp2026.cli.topology_table import columns
from mcp2026.scheduler_extender.decision_log import Decision, NodeGroup, RankedNodes, ScoreTerm


def explanation(decision: Decision) -> str:
    """Return what is known of `decision`, for people."""
    when = datetime.fromtimestamp(decision.at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    asked = " and ".join(decision.asked) or "no GPUs"
    attempts = "1 attempt" if decision.attempts == 1 else f"{decision.attempts} attempts"
    parts = [f"Pod {decision.pod} asks for {asked}. {attempts}, the last at {when}."]
    parts += _circumstances(decision)
    parts.append(_outcome(decision))
    # A member of a gang goes where room is held for the gang, and nowhere else.
    if decision.ranked and not decision.gang:
        parts.append("Nodes that fit, best first:\n" + _ranking(decision.ranked))
        parts += _reason_for_the_winner(decision.ranked)
    if decision.refused:
        rows = [
            (
                str(refused.group.count),
                _names(refused.group),
                _preemption(refused.preemptible),
                refused.reason,
            )
            for refused in decision.refused
        ]
        parts.append("Nodes that do not fit:\n" + _table(("NODES", "NAMES", "PREEMPTION", "WHY"), rows))
    if decision.victims:
        parts.append("Pods that would have to go:")
        parts += [f"  {node}: {', '.join(uids) or 'none'}" for node, uids in decision.victims.items()]
    return "\n".join(parts)


def _circumstances(decision: Decision) -> list[str]:
    """Return what counted beside the request: the gang, the QoS class, the promise and what is expected."""
    told = []
    if decision.gang:
        told.append(f"{decision.gang[:1].upper()}{decision.gang[1:]}.")
    if decision.qos:
        told.append(f"QoS class {decision.qos}.")
    if decision.slo_p95_ms is not None:
        of = f" of {decision.model}" if decision.model else ""
        told.append(
            f"Promised: a p95 latency{of} of {decision.slo_p95_ms:g} ms. {_prediction(decision)}".rstrip()
        )
    return told


def _prediction(decision: Decision) -> str:
    if not decision.ranked or decision.slo_p95_ms is None:
        return ""
    best = decision.ranked[0]
    if best.predicted_p95_ms is None:
        return "Nothing was measured for the best nodes, so the promise does not count."
    kept = "is kept" if best.predicted_p95_ms <= decision.slo_p95_ms else "is broken on every node that fits"
    return f"On the best nodes {best.predicted_p95_ms:g} ms is expected: it {kept}."


def _outcome(decision: Decision) -> str:
    if decision.problem:
        return f"Not bound to {decision.node}: {decision.problem}."
    if decision.node:
        devices = [
            f"{', '.join(ids)} for {container}"
            for container, by_resource in decision.reserved.items()
            for ids in by_resource.values()
        ]
        return f"Bound to {decision.node}" + (f" with {'; '.join(devices)}." if devices else ".")
    if decision.fitting:
        return f"{decision.fitting} nodes fit by GPUs; not bound (yet): another filter may have refused them."
    return "No node fits."


def _ranking(ranked: Sequence[RankedNodes]) -> str:
    names = [term.name for term in ranked[0].terms]
    shown = [name for name in names if any(_value(nodes, name) for nodes in ranked)]
    predicted = any(nodes.predicted_p95_ms is not None for nodes in ranked)
    headings = (
        "PRIORITY",
        "NODES",
        "NAMES",
        "GPUS",
        *(["p95 expected (ms)"] if predicted else []),
        *(_heading(ranked, name) for name in shown),
    )
    rows = [
        (
            str(nodes.priority),
            str(nodes.group.count),
            _names(nodes.group),
            ",".join(map(str, nodes.gpus)) or "-",
            *([_milliseconds(nodes.predicted_p95_ms)] if predicted else []),
            *(str(_value(nodes, name)) for name in shown),
        )
        for nodes in ranked
    ]
    return _table(headings, rows)


def _milliseconds(value: float | None) -> str:
    return "unknown" if value is None else f"{value:g}"


def _heading(ranked: Sequence[RankedNodes], name: str) -> str:
    unit = next((term.unit for nodes in ranked for term in nodes.terms if term.name == name), "")
    return f"{name} ({unit})" if unit else name


def _value(nodes: RankedNodes, name: str) -> int:
    return sum(term.value for term in nodes.terms if term.name == name)


def _reason_for_the_winner(ranked: Sequence[RankedNodes]) -> list[str]:
    """Return which term decided between the best class and the next; terms are compared in their order."""
    if len(ranked) < 2:
        return []
    best, second = ranked[0], ranked[1]
    for ours, theirs in zip(best.terms, second.terms, strict=False):
        if ours.value != theirs.value:
            values = f"{_with_unit(ours)} against {_with_unit(theirs)} on {_names(second.group)}"
            return [f"{_names(best.group)} won by {ours.name}: {values}; every term before it is equal."]
    return []


def _with_unit(term: ScoreTerm) -> str:
    return f"{term.value} {term.unit}".rstrip()


def _names(group: NodeGroup) -> str:
    more = group.count - len(group.nodes)
    return ", ".join(group.nodes) + (f" and {more} more" if more else "")


def _preemption(possible: bool) -> str:
    return "could help" if possible else "cannot help"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return indent(columns(headings, rows), "  ")
