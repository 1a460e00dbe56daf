"""What is free of GPUs that are sold in parts, and what reservations take before the topology shows it."""

import json
from typing import Any

import msgspec
import pytest

from mcp2026.api.gpu_assignment import format_gpu_assignment
from mcp2026.api.gpu_devices import DeviceId, DeviceKind
from mcp2026.api.names import (
    GPU_ASSIGNMENT_ANNOTATION,
    GPU_MEMORY_RESOURCE,
    GPU_RESOURCE,
    GPU_SHARED_RESOURCE,
)
from mcp2026.scheduler_extender.cluster_events import Gone, Kind, Seen, observe
from mcp2026.scheduler_extender.kube_objects import PodSpec
from mcp2026.scheduler_extender.request import Demand, demands_of
from mcp2026.scheduler_extender.snapshot import NodeGpus
from tests.fakes.clusters import filled_cache, pod, topology

FOUR = "4xa100-pcie-nvlink-pairs"
MIG_3G = "mcp2026.io/mig-3g.40gb"


def uuid(index: int) -> str:
    return str(topology("n", FOUR)["status"]["gpus"][index]["uuid"])


def gib(index: int, count: int) -> tuple[str, ...]:
    return tuple(str(DeviceId(uuid(index), DeviceKind.MEMORY, number)) for number in range(count))


def shared_node(**changes: dict[str, Any]) -> dict[str, Any]:
    """GPU 0 is whole, 1 in four shares, 2 by memory (80 GiB), 3 in two MIG devices."""
    document = topology("n", FOUR)
    gpus = document["status"]["gpus"]
    gpus[1]["sharing"] = {"mode": "TimeSlice", "unit": "Replica", "replicas": 4, "state": "Active"}
    gpus[2]["sharing"] = {"mode": "MPS", "unit": "Memory", "state": "Active"}
    gpus[3]["sharing"] = {"mode": "MIG", "state": "Active"}
    gpus[3]["migDevices"] = [
        {"uuid": "MIG-a", "profile": "3g.40gb", "start": 0, "size": 4},
        {"uuid": "MIG-b", "profile": "3g.40gb", "start": 4, "size": 4},
    ]
    for index, change in changes.items():
        gpus[int(index.removeprefix("gpu"))].update(change)
    return document


def asking(name: str, resource: str, units: int, *devices: str) -> dict[str, Any]:
    document = pod(name, 0, "n")
    (container,) = document["spec"]["containers"]
    container["resources"] = {"limits": {resource: str(units)}}
    if devices:
        value = format_gpu_assignment({"main": {resource: devices}})
        document["metadata"]["annotations"] = {GPU_ASSIGNMENT_ANNOTATION: value}
    return document


def allocation(pod_name: str, resource: str, units: int, *devices: str) -> dict[str, Any]:
    return {
        "resource": resource,
        "units": units,
        "namespace": "default",
        "pod": pod_name,
        "container": "main",
        "devices": list(devices),
    }


def gpus(document: dict[str, Any], *pods: dict[str, Any]) -> NodeGpus:
    found = filled_cache([document], pods).snapshot().nodes["n"].gpus
    assert found is not None
    return found


def free(node: NodeGpus) -> dict[str, int]:
    return {
        resource: node.free_parts(resource) for resource in (GPU_SHARED_RESOURCE, GPU_MEMORY_RESOURCE, MIG_3G)
    }


def test_each_gpu_is_sold_under_one_name() -> None:
    node = gpus(shared_node())
    assert (node.free, node.total, node.available) == ((0,), 1, 1)
    assert free(node) == {GPU_SHARED_RESOURCE: 4, GPU_MEMORY_RESOURCE: 80, MIG_3G: 2}
    assert node.room == "1 of 1 free (1,2,3 shared)"


@pytest.mark.parametrize("state", ["Draining", "Changing", "Failed"])
def test_a_gpu_that_is_being_changed_is_sold_as_nothing(state: str) -> None:
    changed = {"sharing": {"mode": "Exclusive", "state": state}}
    node = gpus(shared_node(gpu0=changed))
    assert (node.free, node.total) == ((), 0)


def test_an_unhealthy_gpu_sells_no_parts() -> None:
    node = gpus(shared_node(gpu1={"health": "Unhealthy"}, gpu2={"health": "Degraded"}))
    assert free(node) == {GPU_SHARED_RESOURCE: 0, GPU_MEMORY_RESOURCE: 80, MIG_3G: 2}


@pytest.mark.parametrize(
    ("gpu", "resource", "units", "devices", "left"),
    [
        (1, GPU_SHARED_RESOURCE, 2, (f"{uuid(1)}::0", f"{uuid(1)}::3"), 2),
        (2, GPU_MEMORY_RESOURCE, 30, gib(2, 30), 50),
        (3, MIG_3G, 1, ("MIG-b",), 1),
    ],
)
@pytest.mark.parametrize("shown", [False, True], ids=["not shown", "shown by the topology"])
@pytest.mark.parametrize("reserved", [False, True], ids=["not reserved", "reserved"])
def test_parts_are_taken_once_whether_reserved_shown_or_both(
    gpu: int, resource: str, units: int, devices: tuple[str, ...], left: int, shown: bool, reserved: bool
) -> None:
    document = shared_node()
    if shown:
        named = () if resource == GPU_MEMORY_RESOURCE else devices
        document["status"]["gpus"][gpu]["allocations"] = [allocation("a", resource, units, *named)]
    node = gpus(document, asking("a", resource, units, *(devices if reserved else ())))
    assert node.free_parts(resource) == left
    if (shown or reserved) and resource == MIG_3G:
        assert node.parts[resource][0].devices == ("MIG-a",)


def test_two_pods_with_memory_of_one_gpu_both_count() -> None:
    pods = [asking(name, GPU_MEMORY_RESOURCE, 30, *gib(2, 30)) for name in "ab"]
    assert gpus(shared_node(), *pods).free_parts(GPU_MEMORY_RESOURCE) == 20


def test_reserved_gpus_are_held_exactly_before_the_topology_shows_it() -> None:
    node = gpus(topology("n", FOUR), asking("a", GPU_RESOURCE, 2, uuid(2), uuid(3)))
    assert (node.free, node.promised) == ((0, 1), ())


def test_what_was_not_reserved_of_a_demand_is_deducted_by_count() -> None:
    node = gpus(topology("n", FOUR), asking("a", GPU_RESOURCE, 3, uuid(2), "GPU-of-another-node"))
    assert (node.free, node.promised, node.available) == ((0, 1, 3), (2,), 1)


def test_a_holder_of_parts_that_has_ended_gives_them_back_at_once() -> None:
    document = shared_node(gpu1={"allocations": [allocation("a", GPU_SHARED_RESOURCE, 3, f"{uuid(1)}::0")]})
    cache = filled_cache([document], [asking("a", GPU_SHARED_RESOURCE, 3)])
    cache.apply(Gone(Kind.PODS, "default/a"))
    node = cache.snapshot().nodes["n"].gpus
    assert node is not None
    assert node.free_parts(GPU_SHARED_RESOURCE) == 4


def test_a_reservation_that_cannot_be_read_counts_as_none() -> None:
    document = asking("a", GPU_RESOURCE, 1)
    document["metadata"]["annotations"] = {GPU_ASSIGNMENT_ANNOTATION: "{"}
    cache = filled_cache([topology("n", FOUR)])
    cache.apply(Seen(observe(Kind.PODS, json.dumps(document).encode())))
    node = cache.snapshot().nodes["n"].gpus
    assert node is not None
    assert (node.free, node.promised) == ((0, 1, 2, 3), (1,))


def demand(resource: str, *units: int) -> Demand:
    containers = [
        {"name": str(place), "resources": {"limits": {resource: count}}} for place, count in enumerate(units)
    ]
    (found,) = demands_of(msgspec.convert({"containers": containers}, PodSpec))
    return found


@pytest.mark.parametrize(
    ("asked", "fits", "could_fit"),
    [
        (demand(GPU_RESOURCE, 1), True, True),
        (demand(GPU_RESOURCE, 2), False, False),
        (demand(GPU_SHARED_RESOURCE, 4), True, True),
        (demand(GPU_SHARED_RESOURCE, 3, 2), False, False),
        (demand(GPU_MEMORY_RESOURCE, 80), True, True),
        (demand(GPU_MEMORY_RESOURCE, 81), False, False),
        (demand(GPU_MEMORY_RESOURCE, 40, 40), True, True),
        (demand(GPU_MEMORY_RESOURCE, 40, 41), False, False),
        (demand(MIG_3G, 2), True, True),
        (demand("mcp2026.io/mig-1g.10gb", 1), False, False),
    ],
    ids=str,
)
def test_what_fits(asked: Demand, fits: bool, could_fit: bool) -> None:
    node = gpus(shared_node())
    assert (node.fits(asked), node.could_fit(asked)) == (fits, could_fit)


def test_room_is_told_in_the_units_asked() -> None:
    node = gpus(shared_node(), asking("a", GPU_MEMORY_RESOURCE, 30, *gib(2, 30)))
    assert node.room_for(demand(GPU_MEMORY_RESOURCE, 60)) == "free: 50 of 80 on GPU 2"
    assert (
        node.room_for(demand("mcp2026.io/mig-1g.10gb", 1)) == "no GPU here is sold as mcp2026.io/mig-1g.10gb"
    )
