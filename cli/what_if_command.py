"""`mcp2026 what-if`: where pods would go, with the extender's own code on a snapshot of the cluster."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from mcp2026.api.configuration_file import ConfigurationFile
from mcp2026.api.errors import ConfigurationError
from mcp2026.cli import what_if_cluster as cluster
from mcp2026.cli.errors import CommandError
from mcp2026.cli.explain_text import explanation
from mcp2026.cli.topology_table import columns
from mcp2026.cli.what_if_pods import pods_from_file
from mcp2026.scheduler_extender.cluster_events import Kind, observe
from mcp2026.scheduler_extender.configuration import parse_configuration
from mcp2026.scheduler_extender.decision_log import Decision
from mcp2026.scheduler_extender.policy import DEFAULT_POLICY, Policy
from mcp2026.scheduler_extender.what_if import ClusterDocuments, cache_of, place_pods


def what_if(
    files: Sequence[Path],
    snapshot: Path | None,
    save: Path | None,
    nodes: Sequence[str],
    layouts: Sequence[str],
    config: Path | None,
    *,
    why: bool,
    as_json: bool,
) -> str:
    """Return where the pods in `files` would go, in their order; with `why` the explanation of each.

    `config` is the extender's configuration file; None: its policy by default.

    Raises:
        CommandError, TopologyError: something asked cannot be read or be so.

    """
    policy = DEFAULT_POLICY if config is None else _policy(config)
    pods = [pod for file in files for pod in pods_from_file(file)]
    documents = cluster.from_file(snapshot) if snapshot else cluster.from_cluster()
    if save is not None:
        cluster.to_file(documents, save)
    for node in nodes:
        documents = cluster.with_node(documents, node)
    for layout in layouts:
        documents = cluster.with_mig_layout(documents, layout)
    try:
        cache = cache_of(documents)
    except msgspec.DecodeError as error:
        raise _misshapen(documents) from error
    decisions = place_pods(cache, pods, time.time(), policy)
    if as_json:
        return json.dumps(msgspec.to_builtins(decisions), indent=2)
    if why:
        return "\n\n".join(map(explanation, decisions))
    return _summary(decisions)


def _misshapen(documents: ClusterDocuments) -> CommandError:
    """Return the complaint about the first object that cannot be read."""
    for kind, objects in (
        (Kind.NODES, documents.nodes),
        (Kind.PODS, documents.pods),
        (Kind.BUDGETS, documents.budgets),
        (Kind.GPU_TOPOLOGIES, documents.gpu_topologies),
    ):
        for each in objects:
            try:
                observe(kind, json.dumps(each).encode())
            except msgspec.DecodeError as error:
                name = "/".join(filter(None, (each["metadata"].get("namespace"), each["metadata"]["name"])))
                return CommandError(
                    f"of the cluster, {kind} {name}: not the shape that Kubernetes gives it: {error}"
                )
    return CommandError("an object of the cluster does not have the shape that Kubernetes gives it")


def _policy(config: Path) -> Policy:
    try:
        return ConfigurationFile(config, parse_configuration).read()
    except ConfigurationError as error:
        raise CommandError(f"--config {error}") from error


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
