"""The table of SPEC R3.1: each GPU with its PCIe bus id, NVLink peers, bandwidth and latency."""

import json
from typing import Any, Literal

import yaml

from mcp2026.topology.affinity import affinity_graph
from mcp2026.topology.machine import Machine

Output = Literal["text", "json", "yaml"]


def topology_rows(machine: Machine) -> list[dict[str, Any]]:
    """Return one row for each GPU; peers by bandwidth, descending."""
    graph = affinity_graph(machine)
    return [
        {
            "gpu": gpu.index,
            "pciBusId": gpu.pci_bus_id,
            "numaNode": gpu.numa_node,
            "nvlinkPeers": [
                {
                    "gpu": machine.gpus[peer.index].index,
                    "bandwidthGbPerS": peer.bandwidth_gb_per_s,
                    "latencyNs": peer.latency_ns,
                }
                for peer in graph.nvlink_peers(position)
            ],
            "latencyNs": {
                machine.gpus[other].index: graph.latency[position][other]
                for other in range(len(graph))
                if other != position
            },
        }
        for position, gpu in enumerate(machine.gpus)
    ]


def render(machine: Machine, output: Output) -> str:
    """Return the topology of `machine` as text for people or as data for programs."""
    rows = topology_rows(machine)
    if output == "json":
        return json.dumps({"name": machine.name, "gpus": rows}, indent=2)
    if output == "yaml":
        return yaml.safe_dump({"name": machine.name, "gpus": rows}, sort_keys=False).rstrip()
    headings = ("GPU", "PCIE BUS ID", "NUMA", "NVLINK PEERS (GB/s)", "LATENCY (ns)")
    return _table(headings, [_text_row(row) for row in rows])


def _text_row(row: dict[str, Any]) -> tuple[str, ...]:
    peers = ", ".join(f"{peer['gpu']} ({peer['bandwidthGbPerS']})" for peer in row["nvlinkPeers"])
    latencies = ", ".join(f"{gpu}: {latency}" for gpu, latency in row["latencyNs"].items())
    numa = "-" if row["numaNode"] is None else str(row["numaNode"])
    return str(row["gpu"]), row["pciBusId"], numa, peers or "none", latencies or "-"


def _table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in (headings, *rows)) for column in range(len(headings))]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (headings, *rows)
    )
