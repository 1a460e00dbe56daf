"""The table of SPEC R3.1: GPUs with PCIe bus id, NVLink peers, bandwidth and latency, and how they are."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import yaml

from mcp2026.api.gpu_topology import GpuStatus
from mcp2026.topology.affinity import affinity_graph
from mcp2026.topology.links import LatencySource, LinkKind, broken_links, links, off_fabric
from mcp2026.topology.machine import Description, Gpu, Machine

DataFormat = Literal["text", "json", "yaml"]

HEADINGS = ("GPU", "PCIE BUS ID", "NUMA", "HEALTH", "NVLINK PEERS (GB/s)", "LATENCY (ns)")
CLUSTER_HEADINGS = ("SHARING", "HELD BY")
"""Known for a `GPUTopology` alone."""


def topology_document(description: Description) -> dict[str, Any]:
    """Return the topology as data for programs."""
    machine = description.machine
    sources = {link.latency_source for link in links(machine)}
    return {
        "name": machine.name,
        "driver": machine.driver,
        "cuda": machine.cuda,
        "latencySource": sources.pop() if len(sources) == 1 else "mixed" if sources else "nominal",
        "gpus": topology_rows(description),
        "brokenLinks": [
            {"gpu": link.gpu, "link": link.link, "peer": link.peer, "reason": str(link.reason)}
            for link in broken_links(machine)
        ],
        "offFabric": [machine.gpus[place].index for place in off_fabric(machine)],
    }


def topology_rows(description: Description) -> list[dict[str, Any]]:
    """Return one row for each GPU; peers by bandwidth, descending."""
    machine = description.machine
    graph = affinity_graph(machine)
    joined = {(link.a, link.b): link for link in links(machine)}
    statuses = _statuses(description)
    rows = []
    for place, gpu in enumerate(machine.gpus):
        peers = []
        for peer in graph.nvlink_peers(place):
            link = joined[min(place, peer.index), max(place, peer.index)]
            peers.append(
                {
                    "gpu": machine.gpus[peer.index].index,
                    "bandwidthGbPerS": peer.bandwidth_gb_per_s,
                    "latencyNs": peer.latency_ns,
                    "latencySource": str(_source(measured=peer.measured)),
                    "links": link.count,
                    "version": link.version,
                    "switched": link.kind is LinkKind.NVSWITCH,
                }
            )
        row = {
            "gpu": gpu.index,
            "uuid": gpu.uuid,
            "product": gpu.product,
            "memoryMiB": gpu.memory_mib,
            "pciBusId": gpu.pci_bus_id,
            "numaNode": gpu.numa_node,
            "health": health(gpu),
            "nvlinkPeers": peers,
            "latencyNs": {
                machine.gpus[other].index: graph.latency[place][other]
                for other in range(len(graph))
                if other != place
            },
        }
        if place in statuses:
            row |= _cluster_fields(statuses[place])
        rows.append(row)
    return rows


def render(description: Description, output: DataFormat) -> str:
    """Return the topology as text for people or as data for programs."""
    if output == "json":
        return json.dumps(topology_document(description), indent=2)
    if output == "yaml":
        return yaml.safe_dump(
            json.loads(json.dumps(topology_document(description))), sort_keys=False
        ).rstrip()
    return "\n".join([_text_table(description), *_remarks(description.machine)])


def health(gpu: Gpu) -> str:
    """Return in one word how the GPU is."""
    return "Unhealthy" if not gpu.healthy else "Degraded" if gpu.degraded else "Healthy"


def ranges(numbers: Iterable[int]) -> str:
    """Return ``0-2,5`` for 0, 1, 2 and 5."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(
        str(first) if first == last else f"{first}{',' if last == first + 1 else '-'}{last}"
        for first, last in runs
    )


def columns(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with aligned columns."""
    widths = [max(len(row[column]) for row in (headings, *rows)) for column in range(len(headings))]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (headings, *rows)
    )


def holders(status: GpuStatus) -> str:
    """Return who holds the GPU or parts of it: ``default/chat``, ``default/chat (2), default/other``."""
    if status.held_by:
        return f"{status.held_by.namespace}/{status.held_by.pod}"
    return ", ".join(
        f"{each.namespace}/{each.pod}" + (f" ({each.units})" if each.units > 1 else "")
        for each in status.allocations
    )


def sharing(status: GpuStatus) -> str:
    """Return how the GPU is shared: ``TimeSlice x 4``, ``MIG 3g.40gb,1g.10gb (Draining)``."""
    shared = status.sharing
    text: str = shared.mode
    if shared.mode in ("TimeSlice", "MPS"):
        text += " by GiB" if shared.unit == "Memory" else f" x {shared.replicas or 1}"
    if status.mig_devices:
        text += " " + ",".join(device.profile for device in status.mig_devices)
    return text if shared.state == "Active" else f"{text} ({shared.state})"


def _statuses(description: Description) -> dict[int, GpuStatus]:
    return dict(enumerate(description.topology.status.gpus)) if description.topology else {}


def _cluster_fields(status: GpuStatus) -> dict[str, Any]:
    held = status.held_by
    return {
        "healthReason": status.health_reason,
        "healthMessage": status.health_message,
        "sharing": {
            "mode": status.sharing.mode,
            "unit": status.sharing.unit,
            "replicas": status.sharing.replicas,
            "state": status.sharing.state,
        },
        "heldBy": {"namespace": held.namespace, "pod": held.pod, "container": held.container}
        if held
        else None,
        "allocations": [
            {
                "resource": each.resource,
                "units": each.units,
                "namespace": each.namespace,
                "pod": each.pod,
                "container": each.container,
            }
            for each in status.allocations
        ],
        "migDevices": [
            {"uuid": device.uuid, "profile": device.profile, "start": device.start}
            for device in status.mig_devices
        ],
    }


def _source(*, measured: bool) -> LatencySource:
    return LatencySource.MEASURED if measured else LatencySource.NOMINAL


def _text_table(description: Description) -> str:
    statuses = _statuses(description)
    rows = []
    for place, gpu in enumerate(description.machine.gpus):
        row = [
            str(gpu.index),
            gpu.pci_bus_id,
            "-" if gpu.numa_node is None else str(gpu.numa_node),
            health(gpu),
            _peers(description.machine, place) or "none",
            _latencies(description.machine, place) or "-",
        ]
        if place in statuses:
            row += [sharing(statuses[place]), holders(statuses[place]) or "-"]
        rows.append(row)
    return columns(HEADINGS + (CLUSTER_HEADINGS if statuses else ()), rows)


def _peers(machine: Machine, place: int) -> str:
    """Return peers that are reached alike together: ``300: 1 (12 x NVLink 3)``."""
    groups: dict[tuple[int, int, int, bool], list[int]] = {}
    for link in links(machine):
        if place in (link.a, link.b) and link.count:
            other = link.b if link.a == place else link.a
            kind = (-link.bandwidth_gb_per_s, link.count, link.version, link.kind is LinkKind.NVSWITCH)
            groups.setdefault(kind, []).append(machine.gpus[other].index)
    return "; ".join(
        f"{-bandwidth}: {ranges(others)} ({count} x NVLink{f' {version}' if version else ''}"
        f"{', switched' if switched else ''})"
        for (bandwidth, count, version, switched), others in sorted(groups.items())
    )


def _latencies(machine: Machine, place: int) -> str:
    graph = affinity_graph(machine)
    groups: dict[tuple[int, bool], list[int]] = {}
    for other in range(len(graph)):
        if other != place:
            kind = (graph.latency[place][other], (place, other) in graph.measured)
            groups.setdefault(kind, []).append(machine.gpus[other].index)
    return "; ".join(
        f"{latency}{'*' if measured else ''}: {ranges(others)}"
        for (latency, measured), others in sorted(groups.items())
    )


def _remarks(machine: Machine) -> list[str]:
    lines = []
    if len(machine.gpus) > 1:
        if any(link.latency_source is LatencySource.MEASURED for link in links(machine)):
            lines.append("latency: * measured; others are nominal, by the kind of link")
        else:
            lines.append("latency: nominal, by the kind of link; none was measured")
    lines += [
        f"GPU {machine.gpus[place].index} is off the NVSwitch fabric: PCIe alone"
        for place in off_fabric(machine)
    ]
    lines += [f"broken: {line}" for line in broken_lines(machine)]
    return ["", *lines] if lines else []


def broken_lines(machine: Machine) -> list[str]:
    """Return a line for the broken links of a GPU to one peer: ``NVLink 3-5 of GPU 1: down``."""
    by_end: dict[tuple[int, int | None, str], list[int]] = {}
    for link in broken_links(machine):
        by_end.setdefault((link.gpu, link.peer, str(link.reason)), []).append(link.link)
    return [
        f"NVLink {ranges(numbers)} of GPU {gpu}{'' if peer is None else f' to GPU {peer}'}: {reason}"
        for (gpu, peer, reason), numbers in by_end.items()
    ]
