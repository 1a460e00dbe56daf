"""The cluster and the pods that are scheduled: made from machines of tests/topologies, the same each time.

Every node has 8 GPUs. Of ten nodes seven sell all of them whole; the other three sell two of theirs
otherwise: by shares, by GiB of memory, as MIG devices.
"""

import random
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from bench.scheduling.fleet import Offer, offer_of
from mcp2026.api.gpu_devices import mig_resource
from mcp2026.api.gpu_sharing import SharingStatus
from mcp2026.api.gpu_topology import GpuStatus, GPUTopologyStatus, MigDevice
from mcp2026.api.names import (
    API_VERSION,
    GPU_MEMORY_RESOURCE,
    GPU_RESOURCE,
    GPU_SHARED_RESOURCE,
    GPU_TOPOLOGY_KIND,
)
from mcp2026.topology.idle_machine import idle_status
from mcp2026.topology.machine import machine_from_file
from tools.cluster.kwok import played_node

TOPOLOGIES = Path(__file__).parents[2] / "tests" / "topologies"
MACHINES = ("hgx-h100-8gpu", "dgx-a100-8xa100", "dgx-1v-8xv100", "8xa100-pcie-nv12-pairs-all-sys")
"""Each with 8 GPUs, linked in four ways. Every second can be cut by MIG."""
GPUS_PER_NODE = 8
PARTED = (6, 7)
"""Places of the GPUs that three nodes of ten do not sell whole."""
SHARES = SharingStatus(mode="TimeSlice", unit="Replica", replicas=4)
MEMORY = SharingStatus(mode="MPS", unit="Memory")
MIG = SharingStatus(mode="MIG")
SHARING = {7: SHARES, 8: MEMORY, 9: MIG}
"""How nodes whose number ends with this digit sell their parted GPUs. Those with 9 are A100."""
MIG_LAYOUT = (("3g.20gb", 0, 4), ("2g.10gb", 4, 2), ("1g.5gb", 6, 1))
"""Profile, start and size in memory slices."""
SMALL_MIG, LARGE_MIG = mig_resource("1g.5gb"), mig_resource("3g.20gb")
RESOURCES = (
    GPU_RESOURCE,
    GPU_SHARED_RESOURCE,
    GPU_MEMORY_RESOURCE,
    *(mig_resource(name) for name, _, _ in MIG_LAYOUT),
)
"""All that nodes offer: what the scheduler must ask the extender about."""

MIX: Sequence[tuple[str, int, int]] = (
    (GPU_RESOURCE, 1, 30),
    (GPU_RESOURCE, 2, 22),
    (GPU_RESOURCE, 4, 16),
    (GPU_RESOURCE, 8, 8),
    (GPU_SHARED_RESOURCE, 1, 6),
    (GPU_SHARED_RESOURCE, 2, 4),
    (GPU_MEMORY_RESOURCE, 4, 4),
    (GPU_MEMORY_RESOURCE, 8, 4),
    (SMALL_MIG, 1, 3),
    (LARGE_MIG, 1, 3),
)
"""What a pod asks for, and how many of 100 pods do."""

LABEL = "mcp2026.io/bench"


def node_name(number: int) -> str:
    """Return the name of a node."""
    return f"gpu-{number:05}"


def status_of(number: int) -> GPUTopologyStatus:
    """Return what the device plugin would tell of the idle node of this number; no UUID is there twice."""
    machine = _machine(MACHINES[number % len(MACHINES)])
    sharing = SHARING.get(number % 10)
    gpus = []
    for place, gpu in enumerate(machine.gpus):
        own = msgspec.structs.replace(gpu, uuid=f"GPU-{number:08x}-0000-4000-8000-{place:012x}")
        gpus.append(_parted(own, number, place, sharing) if sharing and place in PARTED else own)
    return msgspec.structs.replace(machine, gpus=tuple(gpus))


def nodes(count: int) -> Iterator[dict[str, Any]]:
    """Yield the nodes, for kwok to play: Ready from the start, which saves it thousands of writes."""
    for number in range(count):
        resources = {name: str(units) for name, units in _offer(number).amounts.items()}
        node = played_node(node_name(number), resources)
        node["status"]["conditions"] = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
        yield node


def topologies(count: int) -> Iterator[dict[str, Any]]:
    """Yield the GPUTopology of each node, with its status."""
    for number in range(count):
        yield {
            "apiVersion": API_VERSION,
            "kind": GPU_TOPOLOGY_KIND,
            "metadata": {"name": node_name(number)},
            "status": without_nulls(msgspec.to_builtins(status_of(number))),
        }


def offers(count: int) -> dict[str, Offer]:
    """Return what each node has to give, by its name."""
    return {node_name(number): _offer(number) for number in range(count)}


def without_nulls(value: Any) -> Any:
    """Return `value` without members that are null, which the schema does not allow."""
    if isinstance(value, dict):
        return {name: without_nulls(member) for name, member in value.items() if member is not None}
    if isinstance(value, list | tuple):
        return [without_nulls(member) for member in value]
    return value


def pods(count: int, scheduler: str, prefix: str, first: int = 0, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Yield `count` pods from number `first` on for a scheduler; equal numbers ask for the same."""
    drawn = random.Random(seed).choices(MIX, [share for _, _, share in MIX], k=first + count)
    for number, (resource, units, _) in enumerate(drawn[first:], first):
        amounts = {"cpu": "100m", resource: str(units)}
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{prefix}-{number:05}", "labels": {LABEL: prefix}},
            "spec": {
                "schedulerName": scheduler,
                "terminationGracePeriodSeconds": 0,
                "tolerations": [{"operator": "Exists"}],
                "containers": [
                    {"name": "main", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
                ],
            },
        }


@cache
def _machine(name: str) -> GPUTopologyStatus:
    return idle_status(machine_from_file(TOPOLOGIES / f"{name}.yaml"))


def _offer(number: int) -> Offer:
    return offer_of(status_of(number))


def _parted(gpu: GpuStatus, number: int, place: int, sharing: SharingStatus) -> GpuStatus:
    devices: tuple[MigDevice, ...] = ()
    if sharing.mode == "MIG":
        devices = tuple(
            MigDevice(f"MIG-{number:08x}-0000-5000-8000-{place:06x}{start:06x}", profile, start, size)
            for profile, start, size in MIG_LAYOUT
        )
    return msgspec.structs.replace(gpu, sharing=sharing, mig_devices=devices)
