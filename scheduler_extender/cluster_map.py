"""The cluster's GPUs as a map for people: what each is sold as, who has it, and what is wrong. Pure."""

from collections.abc import Iterator
from typing import Literal

import msgspec

from mcp2026.scheduler_extender.snapshot import ClusterSnapshot, NodeGpus, NodeSnapshot

GpuState = Literal["free", "held", "reserved", "shared", "unhealthy", "unavailable"]
"""reserved: promised to a pod that starts. shared: sold in parts. unavailable: sold as nothing at present."""


class GpuCell(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One GPU. Of one that is shared, `free` of `total` parts of `resource` are free."""

    index: int
    state: GpuState
    pods: tuple[str, ...] = ()
    resource: str = ""
    free: int = 0
    total: int = 0


class NodeRow(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One node; `problem` says why its GPUs are not known."""

    name: str
    gpus: tuple[GpuCell, ...] = ()
    problem: str = ""


def cluster_map(snapshot: ClusterSnapshot) -> tuple[NodeRow, ...]:
    """Return all nodes by name."""
    return tuple(_row(snapshot.nodes[name]) for name in sorted(snapshot.nodes))


def _row(node: NodeSnapshot) -> NodeRow:
    if node.gpus is None:
        return NodeRow(node.name, problem=node.problem)
    return NodeRow(node.name, tuple(_cells(node, node.gpus)))


def _cells(node: NodeSnapshot, gpus: NodeGpus) -> Iterator[GpuCell]:
    parts = {part.position: (resource, part) for resource, those in gpus.parts.items() for part in those}
    for position, index in enumerate(gpus.indices):
        holders = [placed for placed in node.pods if placed.is_on(position)]
        pods = tuple(placed.pod.key for placed in holders)
        if position in gpus.unhealthy:
            yield GpuCell(index, "unhealthy", pods)
        elif position in parts:
            resource, part = parts[position]
            yield GpuCell(index, "shared", pods, resource, part.free, part.total)
        elif position in gpus.not_whole:
            yield GpuCell(index, "unavailable", pods)
        elif position in gpus.held:
            shown = not holders or any(placed.shown for placed in holders)
            yield GpuCell(index, "held" if shown else "reserved", pods)
        else:
            yield GpuCell(index, "free", pods)
