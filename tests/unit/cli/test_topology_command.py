"""`mcp2026 topology`: the table of SPEC R3.1."""

import json
import re
from pathlib import Path

import pytest
import yaml

from mcp2026.cli.topology_table import render
from mcp2026.topology.machine import machine_from_file

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
BRIDGED = machine_from_file(TOPOLOGIES / "4xa100-pcie-nvlink-pairs.yaml")


def test_the_table_has_bus_ids_peers_by_bandwidth_and_latencies() -> None:
    lines = render(BRIDGED, "text").splitlines()
    headings = ["GPU", "PCIE BUS ID", "NUMA", "NVLINK PEERS (GB/s)", "LATENCY (ns)"]
    assert re.split(r" {3,}", lines[0]) == headings
    assert lines[1].split() == [
        *("0", "00000000:17:00.0", "0", "1", "(300)", "1:", "700,", "2:", "2600,", "3:", "2600")
    ]
    assert len(lines) == 5


def test_json_and_yaml_say_the_same() -> None:
    document = json.loads(render(BRIDGED, "json"))
    from_yaml = yaml.safe_load(render(BRIDGED, "yaml"))
    assert document["gpus"][0]["nvlinkPeers"] == [{"gpu": 1, "bandwidthGbPerS": 300, "latencyNs": 700}]
    for row in from_yaml["gpus"]:
        row["latencyNs"] = {str(gpu): latency for gpu, latency in row["latencyNs"].items()}
    assert from_yaml == document


@pytest.mark.parametrize("path", sorted(TOPOLOGIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_peers_are_sorted_by_bandwidth_on_every_known_machine(path: Path) -> None:
    machine = machine_from_file(path)
    rows = json.loads(render(machine, "json"))["gpus"]
    assert len(rows) == len(machine.gpus)
    for row in rows:
        bandwidths = [peer["bandwidthGbPerS"] for peer in row["nvlinkPeers"]]
        assert bandwidths == sorted(bandwidths, reverse=True)
