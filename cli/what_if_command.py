"""`mcp2026 what-if`: where pods would go, with the extender's own code on a snapshot of the cluster."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from mcp2026.cli import what_if_cluster as cluster
from mcp2026.cli.errors import CommandError
from mcp2026.cli.explain_text import explanation
from mcp2026.cli.topology_table import columns
from mcp2026.scheduler_extender.cluster_events import Kind, ObservedPod, observe
from mcp2026.scheduler_extender.decision_log import Decision
from mcp2026.scheduler_extender.what_if import cache_of, place_pods


def what_if(
    files: Sequence[Path],
    snapshot: Path | None,
    save: Path | None,
    nodes: Sequence[str],
    layouts: Sequence[str],
    *,
    why: bool,
    as_json: bool,
) -> str:
    """Return where the pods in `files` would go, in their order; with `why` the explanation of each.

    Raises:
        CommandError, TopologyError: something asked cannot be read or be so.

    """
    documents = cluster.from_file(snapshot) if snapshot else cluster.from_cluster()
    if save is not None:
        cluster.to_file(documents, save)
    for node in nodes:
        documents = cluster.with_node(documents, node)
    for layout in layouts:
        documents = cluster.with_mig_layout(documents, layout)
    pods = [pod for file in files for pod in cluster.pods_from_file(file)]
    try:
        observed = [observe(Kind.PODS, json.dumps(pod).encode()) for pod in pods]
        cache = cache_of(documents)
    except msgspec.DecodeError as error:
        raise CommandError(f"an object does not have the shape that Kubernetes gives it: {error}") from error
    decisions = place_pods(cache, [pod for pod in observed if isinstance(pod, ObservedPod)], time.time())
    if as_json:
        return json.dumps(msgspec.to_builtins(decisions), indent=2)
    if why:
        return "\n\n".join(map(explanation, decisions))
    return _summary(decisions)


def _summary(decisions: Sequence[Decision]) -> str:
    rows = [
        (
            decision.pod,
            " and ".join(decision.asked) or "no GPUs",
            decision.node or "none",
            ", ".join(
                device
                for by_resource in decision.reserved.values()
                for devices in by_resource.values()
                for device in devices
            )
            or _why_not(decision),
        )
        for decision in decisions
    ]
    placed = sum(1 for decision in decisions if decision.node)
    table = columns(("POD", "ASKS FOR", "NODE", "DEVICES, OR WHY NOT"), rows)
    return f"{table}\n{placed} of {len(decisions)} pods find a place."


def _why_not(decision: Decision) -> str:
    if decision.node or not decision.refused:
        return "-"
    most = decision.refused[0]
    return f"{most.reason} ({most.group.count} of the nodes)"
