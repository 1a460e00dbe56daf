"""The GPUTopology of every machine, and what of it goes to the API server."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mcp2026.api.conditions import Condition
from mcp2026.api.gpu_sharing import Sharing
from mcp2026.api.gpu_topology import Allocation, GPUTopologyStatus, Holder, parse_gpu_topology
from mcp2026.api.names import GPU_MEMORY_RESOURCE, GPU_RESOURCE, GPU_SHARED_RESOURCE
from mcp2026.device_plugin.devices import CurrentSharing, GpuCondition, Holding, Refusal, Snapshot
from mcp2026.device_plugin.topology_status import status_resource, topology_resource, topology_status
from mcp2026.topology.machine import Machine, machine_from_file, machine_from_topology

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
FIXTURES = sorted(TOPOLOGIES.glob("*.yaml"))


NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def status_of(snapshot: Snapshot, conditions: tuple[Condition, ...] = ()) -> GPUTopologyStatus:
    return topology_status(snapshot, conditions, NOW)


def machine(name: str) -> Machine:
    return machine_from_file(TOPOLOGIES / f"{name}.yaml")


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: f"{path.stem} comes back as it went")
def test_a_machine_survives_the_way_through_kubernetes_json(path: Path) -> None:
    before = machine_from_file(path)
    resource = status_resource(before.name, status_of(Snapshot(before)))
    assert machine_from_topology(before.name, parse_gpu_topology(resource).status) == before


def test_peers_are_by_bandwidth_and_name_gpus_by_index() -> None:
    status = status_of(Snapshot(machine("dgx-1v-8xv100")))
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
    status = status_of(snapshot)
    assert [gpu.health for gpu in status.gpus] == ["Unhealthy", "Healthy", "Healthy", "Healthy"]
    assert status.gpus[0].health_message == "GPU is lost: reset it"
    assert [gpu.held_by for gpu in status.gpus] == [None, None, None, holder]


def test_parts_are_told_by_container_and_gib_are_counted_not_named() -> None:
    pairs = machine("4xa100-pcie-nvlink-pairs")
    first, second = pairs.gpus[0].uuid, pairs.gpus[1].uuid
    one, other = Holder("a", "one", "c"), Holder("b", "other", "c")
    snapshot = Snapshot(
        pairs,
        sharing={
            first: CurrentSharing(Sharing("TimeSlice")),
            second: CurrentSharing(Sharing("MPS", unit="Memory")),
        },
        holdings={
            f"{first}::0": Holding(GPU_SHARED_RESOURCE, one),
            f"{first}::3": Holding(GPU_SHARED_RESOURCE, one),
            f"{first}::1": Holding(GPU_SHARED_RESOURCE, other),
            f"{first}::2": Holding(GPU_SHARED_RESOURCE),
            f"{second}::m4": Holding(GPU_MEMORY_RESOURCE, one),
            f"{second}::m5": Holding(GPU_MEMORY_RESOURCE, one),
        },
    )
    status = status_of(snapshot)
    shares, memory, *rest = status.gpus
    assert shares.allocations == (
        Allocation(GPU_SHARED_RESOURCE, 2, "a", "one", "c", (f"{first}::0", f"{first}::3")),
        Allocation(GPU_SHARED_RESOURCE, 1, "b", "other", "c", (f"{first}::1",)),
    )
    assert memory.allocations == (Allocation(GPU_MEMORY_RESOURCE, 2, "a", "one", "c"),)
    assert not any(gpu.allocations or gpu.held_by for gpu in rest)
    assert (shares.sharing.mode, shares.sharing.replicas) == ("TimeSlice", 4)
    assert (memory.sharing.unit, memory.sharing.replicas) == ("Memory", None)
    each = pairs.gpus[0].memory_mib
    assert (status.totals.gpus, status.totals.free, status.totals.unhealthy) == (4, 2, 0)
    assert status.totals.allocatable_memory_mi_b == 4 * each
    assert status.totals.free_memory_mi_b == 3 * each - 2 * 1024


def test_what_is_unhealthy_or_being_changed_is_not_allocatable() -> None:
    pairs = machine("4xa100-pcie-nvlink-pairs")
    uuids = [gpu.uuid for gpu in pairs.gpus]
    snapshot = Snapshot(
        pairs,
        conditions={uuids[0]: GpuCondition("Unhealthy", "Lost", "lost")},
        sharing={uuids[1]: CurrentSharing(Sharing("MPS"), "Changing", "starts")},
        holdings={uuids[2]: Holding(GPU_RESOURCE)},
    )
    totals = status_of(snapshot).totals
    assert (totals.gpus, totals.free, totals.unhealthy) == (4, 1, 1)
    assert totals.allocatable_memory_mi_b == 2 * pairs.gpus[0].memory_mib
    assert totals.free_memory_mi_b == pairs.gpus[0].memory_mib


WANTED = {f"GPU-a1004006-0000-4000-8000-00000000000{index}": Sharing() for index in range(4)}
FIRST, SECOND = list(WANTED)[:2]
KNOWN = {"wanted": WANTED, "holdings_known": True}


@pytest.mark.parametrize(
    ("state", "kind", "status", "reason", "said"),
    [
        pytest.param(KNOWN, "Healthy", "True", "AllHealthy", "", id="all GPUs are healthy"),
        pytest.param(
            {"conditions": {FIRST: GpuCondition("Unhealthy", "XidError", "XID 79: reset the node")}},
            "Healthy", "False", "GpuUnhealthy", "GPU 0: XID 79: reset the node", id="one GPU is not",
        ),
        pytest.param(
            {"conditions": {SECOND: GpuCondition("Degraded", "LinkDown", "link 3 is down")}},
            "Healthy", "False", "GpuDegraded", "GPU 1: link 3 is down", id="one GPU is degraded",
        ),
        pytest.param(
            {"unreadable": {7: "GPU is lost"}},
            "Healthy", "False", "GpuUnreadable", "GPU 7: GPU is lost", id="one GPU cannot be read",
        ),
        pytest.param(
            {"driver_failure": "not loaded"},
            "Healthy", "False", "DriverFailing", "not loaded", id="no driver",
        ),
        pytest.param({}, "SharingApplied", "Unknown", "NotReadYet", "not read", id="wishes are not known"),
        pytest.param(KNOWN, "SharingApplied", "True", "AsWanted", "", id="all is as wanted"),
        pytest.param(
            KNOWN | {"wanted": WANTED | {FIRST: Sharing("TimeSlice")}},
            "SharingApplied", "False", "Changing", "GPU 0: TimeSlice is wanted", id="nobody has acted yet",
        ),
        pytest.param(
            KNOWN
            | {
                "sharing": {
                    FIRST: CurrentSharing(Sharing(), "Draining", "waits for a pod"),
                    SECOND: CurrentSharing(Sharing("MIG"), "Failed", "no MIG here"),
                }
            },
            "SharingApplied", "False", "Failed", "GPU 1: no MIG here", id="what failed is told first",
        ),
        pytest.param(
            KNOWN | {"refusals": (Refusal("spec.gpus[0].index: 9 is no GPU of this node", 5),)},
            "SharingApplied", "False", "Refused", "spec.gpus[0].index: 9", id="the spec is refused",
        ),
        pytest.param({}, "Reserved", "Unknown", "HoldersUnknown", "kubelet", id="the kubelet does not tell"),
        pytest.param(KNOWN, "Reserved", "True", "AsReserved", "", id="nothing diverges"),
    ],
)  # fmt: skip
def test_the_conditions(state: dict[str, Any], kind: str, status: str, reason: str, said: str) -> None:
    snapshot = Snapshot(machine("4xa100-pcie-nvlink-pairs"), **state)
    found = {condition.type: condition for condition in status_of(snapshot).conditions}
    assert set(found) == {"Healthy", "SharingApplied", "Reserved"}
    condition = found[kind]
    assert (condition.status, condition.reason) == (status, reason)
    assert said in condition.message
    assert condition.last_transition_time == "2026-11-30T12:00:00Z"


def test_a_refused_spec_is_judged_and_not_followed() -> None:
    snapshot = Snapshot(
        machine("1xt4-edge"), wanted=WANTED, spec_generation=4, refusals=(Refusal("spec.sharing: no", 5),)
    )
    status = status_of(snapshot)
    assert status.observed_generation == 4
    assert {each.type: each.observed_generation for each in status.conditions}["SharingApplied"] == 5


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    before = status_of(Snapshot(machine("1xt4-edge"))).conditions
    later = topology_status(
        Snapshot(machine("1xt4-edge"), driver_failure="gone"), before, NOW.replace(hour=13)
    ).conditions
    times = {condition.type: condition.last_transition_time for condition in later}
    assert times == {
        "Healthy": "2026-11-30T13:00:00Z",
        "SharingApplied": "2026-11-30T12:00:00Z",
        "Reserved": "2026-11-30T12:00:00Z",
    }


def _nulls(value: Any, path: str = "") -> list[str]:
    if isinstance(value, dict):
        return [found for key, item in value.items() for found in _nulls(item, f"{path}.{key}")]
    if isinstance(value, list):
        return [found for place, item in enumerate(value) for found in _nulls(item, f"{path}[{place}]")]
    assert not isinstance(value, tuple), path
    return [path] if value is None else []


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_what_is_unknown_is_left_out(path: Path) -> None:
    assert _nulls(status_resource("node", status_of(Snapshot(machine_from_file(path))))) == []


def test_the_names_in_json_are_those_of_the_crd() -> None:
    resource = status_resource("node", status_of(Snapshot(machine("4xa100-pcie-nvlink-pairs"))))
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
