"""How a snapshot changes by probes, and the device list that the kubelet gets of it."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from mcp2026.api.names import GPU_RESOURCE
from mcp2026.device_plugin.background import blocking_call
from mcp2026.device_plugin.devices import (
    Device,
    GpuCondition,
    Snapshot,
    after_rereading,
)
from mcp2026.device_plugin.inventory import Inventory
from mcp2026.device_plugin.offers import offers
from mcp2026.topology.machine import machine_from_file

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
LONGEST_DEVICE_ID = 63
"""The kubelet takes no longer ones."""


@pytest.fixture
def pairs() -> Snapshot:
    return Snapshot(machine_from_file(TOPOLOGIES / "4xa100-pcie-nvlink-pairs.yaml"))


def device_list(snapshot: Snapshot) -> tuple[Device, ...]:
    return offers(snapshot)[GPU_RESOURCE]


def ids(snapshot: Snapshot) -> list[str]:
    return [gpu.uuid for gpu in snapshot.machine.gpus]


@pytest.mark.parametrize("path", sorted(TOPOLOGIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_all_gpus_are_listed_with_ids_that_the_kubelet_takes(path: Path) -> None:
    snapshot = Snapshot(machine_from_file(path))
    devices = device_list(snapshot)
    assert [device.id for device in devices] == ids(snapshot)
    assert all(device.healthy and len(device.id) <= LONGEST_DEVICE_ID for device in devices)
    assert [device.numa_node for device in devices] == [gpu.numa_node for gpu in snapshot.machine.gpus]


def test_a_failing_gpu_stays_in_the_list_and_a_degraded_one_is_offered(pairs: Snapshot) -> None:
    first, second = ids(pairs)[:2]
    conditions = {
        first: GpuCondition("Unhealthy", "NotAnswering", "GPU is lost"),
        second: GpuCondition("Degraded", "LinkDown", "link 3 is down"),
    }
    failing = replace(pairs, conditions=conditions)
    assert [device.healthy for device in device_list(failing)] == [False, True, True, True]
    assert failing.unhealthy == {first: "GPU is lost"}


def test_a_rereading_that_lacks_a_gpu_does_not_make_it_vanish(pairs: Snapshot) -> None:
    machine = pairs.machine
    fewer = Snapshot(
        replace(
            machine,
            gpus=machine.gpus[:3],
            pcie_ancestors=tuple(row[:3] for row in machine.pcie_ancestors[:3]),
        )
    )
    assert after_rereading(pairs, fewer) is pairs
    assert after_rereading(fewer, pairs) is pairs


async def test_a_waiter_gets_the_latest_snapshot_and_equal_ones_wake_nobody(pairs: Snapshot) -> None:
    inventory = Inventory(pairs)
    waiter = asyncio.create_task(inventory.next_after(pairs))
    await asyncio.sleep(0)
    assert not inventory.change(lambda _: replace(pairs))
    await asyncio.sleep(0)
    assert not waiter.done()
    gone = replace(pairs, driver_failure="gone")
    assert inventory.change(lambda _: gone)
    assert await asyncio.wait_for(waiter, 1) is gone
    assert await asyncio.wait_for(inventory.next_after(pairs), 1) is gone, "missed changes are not lost"


async def test_a_blocking_call_gives_its_result_or_its_error() -> None:
    assert await blocking_call(lambda: threading.current_thread().daemon) is True
    with pytest.raises(ZeroDivisionError):
        await blocking_call(lambda: 1 // 0)


async def test_the_loop_runs_on_while_a_call_blocks_and_a_cancelled_one_is_left_behind() -> None:
    release = threading.Event()
    call = asyncio.create_task(blocking_call(release.wait))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    release.set()
