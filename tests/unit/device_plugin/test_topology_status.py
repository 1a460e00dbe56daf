"""The GPUTopology of every machine, and what of it goes to the API server."""

from pathlib import Path
from typing import Any

import pytest

from mcp2026.api.gpu_topology import Holder, parse_gpu_topology
from mcp2026.api.names import GPU_RESOURCE
from mcp2026.device_plugin.devices import GpuCondition, Holding, Snapshot
from mcp2026.device_plugin.topology_status import status_resource, topology_resource, topology_status
from mcp2026.topology.machine import Machine, machine_from_file, machine_from_topology

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
FIXTURES = sorted(TOPOLOGIES.glob("*.yaml"))


def machine(name: str) -> Machine:
    return machine_from_file(TOPOLOGIES / f"{name}.yaml")


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: f"{path.stem} comes back as it went")
def test_a_machine_survives_the_way_through_kubernetes_json(path: Path) -> None:
    before = machine_from_file(path)
    resource = status_resource(before.name, topology_status(Snapshot(before)))
    assert machine_from_topology(before.name, parse_gpu_topology(resource).status) == before


def test_peers_are_by_bandwidth_and_name_gpus_by_index() -> None:
    status = topology_status(Snapshot(machine("dgx-1v-8xv100")))
    peers = [(peer.index, peer.bandwidth_gb_per_s) for peer in status.gpus[0].peers]
    assert peers == [(3, 50), (4, 50), (1, 25), (2, 25)]
    assert all(peer.latency_ns > 0 for gpu in status.gpus for peer in gpu.peers)


def test_health_and_holders_are_those_of_the_gpus_named() -> None:
    pairs = machine("4xa100-pcie-nvlink-pairs")
    first, last = pairs.gpus[0].uuid, pairs.gpus[3].uuid
    holder = Holder("default", "resnet50-0", "runtime")
    snapshot = Snapshot(
        pairs,
        conditions={first: GpuCondition("Unhealthy", "Lost", "GPU is lost: reset it")},
        holdings={last: Holding(GPU_RESOURCE, holder)},
    )
    status = topology_status(snapshot)
    assert [gpu.health for gpu in status.gpus] == ["Unhealthy", "Healthy", "Healthy", "Healthy"]
    assert status.gpus[0].health_message == "GPU is lost: reset it"
    assert [gpu.held_by for gpu in status.gpus] == [None, None, None, holder]


def _nulls(value: Any, path: str = "") -> list[str]:
    if isinstance(value, dict):
        return [found for key, item in value.items() for found in _nulls(item, f"{path}.{key}")]
    if isinstance(value, list):
        return [found for place, item in enumerate(value) for found in _nulls(item, f"{path}[{place}]")]
    assert not isinstance(value, tuple), path
    return [path] if value is None else []


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_what_is_unknown_is_left_out(path: Path) -> None:
    assert _nulls(status_resource("node", topology_status(Snapshot(machine_from_file(path))))) == []


def test_the_names_in_json_are_those_of_the_crd() -> None:
    resource = status_resource("node", topology_status(Snapshot(machine("4xa100-pcie-nvlink-pairs"))))
    gpu = resource["status"]["gpus"][0]
    assert set(gpu) == {
        "index", "uuid", "product", "memoryMiB", "pciBusId", "numaNode", "health", "healthReason",
        "healthMessage", "sharing", "migCapable", "nvlinks", "inactiveLinks", "peers", "allocations",
        "migDevices",
    }  # fmt: skip
    assert set(gpu["peers"][0]) == {"index", "bandwidthGbPerS", "latencyNs"}
    assert resource["status"]["pcieAncestors"][0] == ["SELF", "NODE", "SYSTEM", "SYSTEM"]


def test_the_object_goes_when_the_node_goes() -> None:
    metadata = topology_resource("node-1", "the-uid")["metadata"]
    assert metadata["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "the-uid"}
    ]
