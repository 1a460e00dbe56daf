"""What containers get so that they use what they hold, in each mode."""

import pytest

from mcp2026.api.gpu_devices import parse_device_id
from mcp2026.api.gpu_sharing import Sharing
from mcp2026.device_plugin.devices import CurrentSharing, Snapshot
from mcp2026.device_plugin.sharing.environment import (
    MPS_DIRECTORY,
    SharesOfSeveralGpusError,
    container_access,
)
from mcp2026.device_plugin.sharing.mps_limits import limits_of_units, most_clients
from mcp2026.topology.machine import Gpu, Machine
from mcp2026.topology.mig.geometry import MigInstance

GPUS = [f"GPU-{number}" for number in range(3)]


def snapshot(sharing: Sharing, instances: tuple[MigInstance, ...] = ()) -> Snapshot:
    gpus = tuple(Gpu(index, uuid, "H100", 81920, f"0000:0{index}:00.0", 0) for index, uuid in enumerate(GPUS))
    return Snapshot(
        Machine("n", gpus, ((None,) * 3,) * 3),
        sharing=dict.fromkeys(GPUS, CurrentSharing(sharing)),
        mig_instances={GPUS[1]: instances} if instances else {},
    )


def environment(sharing: Sharing, *devices: str) -> dict[str, str]:
    return container_access(snapshot(sharing), [parse_device_id(device) for device in devices]).environment


def test_whole_gpus_are_named_in_the_machines_order() -> None:
    assert environment(Sharing(), GPUS[2], GPUS[0]) == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-0,GPU-2",
        "MCP2026_GPU_UUIDS": "GPU-0,GPU-2",
    }


def test_shares_in_time_name_their_gpu_once() -> None:
    got = environment(Sharing("TimeSlice", replicas=4), "GPU-1::3", "GPU-1::0")
    assert got == {"NVIDIA_VISIBLE_DEVICES": "GPU-1", "MCP2026_GPU_UUIDS": "GPU-1"}


@pytest.mark.parametrize(
    ("sharing", "devices", "percentage", "memory"),
    [
        pytest.param(Sharing("MPS", replicas=4), 1, "25", "0=20480M", id="a share of four"),
        pytest.param(Sharing("MPS", replicas=4), 3, "75", "0=61440M", id="three shares of four"),
        pytest.param(Sharing("MPS", replicas=3), 1, "33", "0=27306M", id="thirds are rounded down"),
        pytest.param(Sharing("MPS", unit="Memory"), 10, "12", "0=10240M", id="10 of 80 GiB"),
    ],
)
def test_mps_limits_follow_the_request(sharing: Sharing, devices: int, percentage: str, memory: str) -> None:
    mark = "m" if sharing.unit == "Memory" else ""
    access = container_access(
        snapshot(sharing), [parse_device_id(f"GPU-1::{mark}{number}") for number in range(devices)]
    )
    assert access.environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == percentage
    assert access.environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == memory
    assert access.environment["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    pipe, shm = access.mounts
    assert pipe.host_path == f"{MPS_DIRECTORY}/GPU-1/pipe"
    assert pipe.container_path == access.environment["CUDA_MPS_PIPE_DIRECTORY"]
    assert shm.container_path == "/dev/shm"


def test_memory_of_which_the_driver_does_not_tell_has_no_limit() -> None:
    machine = Machine("n", (Gpu(0, GPUS[0], "GH200", 0, "0000:01:00.0", 0),), ((None,),))
    node = Snapshot(machine, sharing={GPUS[0]: CurrentSharing(Sharing("MPS", replicas=4))})
    given = container_access(node, [parse_device_id("GPU-0::1")]).environment
    assert given["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in given


def test_shares_of_two_gpus_with_a_daemon_each_are_refused() -> None:
    with pytest.raises(SharesOfSeveralGpusError, match="GPU-0, GPU-1"):
        environment(Sharing("MPS", replicas=2), "GPU-1::0", "GPU-0::1")


def test_slices_are_named_themselves_by_placement() -> None:
    slices = tuple(MigInstance(f"MIG-{start}", "1g.10gb", start, 1, start, 0) for start in (3, 1))
    held = [parse_device_id("MIG-3"), parse_device_id("MIG-1")]
    got = container_access(snapshot(Sharing("MIG", mig_layout=("1g.10gb",) * 2), slices), held).environment
    assert got == {
        "NVIDIA_VISIBLE_DEVICES": "MIG-1,MIG-3",
        "CUDA_VISIBLE_DEVICES": "MIG-1,MIG-3",
        "MCP2026_GPU_UUIDS": "GPU-1",
    }


@pytest.mark.parametrize("replicas", range(1, 49))
def test_all_shares_together_fit(replicas: int) -> None:
    limits = limits_of_units(Sharing("MPS", replicas=replicas), 81559, 1)
    assert limits.thread_percentage * replicas <= 100
    assert limits.memory_mib * replicas <= 81559


@pytest.mark.parametrize(("capability", "most"), [((6, 1), 16), ((7, 0), 48), ((7, 5), 48), ((9, 0), 48)])
def test_how_many_clients_a_gpu_takes(capability: tuple[int, int], most: int) -> None:
    assert most_clients(capability) == most
