"""How much has the node in all, and how much of it is free? Pure."""

from mcp2026.api.gpu_topology import GpuTotals
from mcp2026.device_plugin.devices import Snapshot
from mcp2026.device_plugin.offers import MIB_PER_GIB
from mcp2026.topology.machine import Gpu


def totals(snapshot: Snapshot) -> GpuTotals:
    """Return the sums over the GPUs of `snapshot`."""
    gpus = snapshot.machine.gpus
    usable = [
        gpu
        for gpu in gpus
        if gpu.uuid not in snapshot.unhealthy
        and snapshot.sharing_of(gpu.uuid).state in ("Active", "Draining")
    ]
    free = [
        gpu
        for gpu in usable
        if gpu.uuid not in snapshot.held_devices and snapshot.sharing_of(gpu.uuid).state == "Active"
    ]
    memory = sum(gpu.memory_mib for gpu in usable)
    return GpuTotals(
        gpus=len(gpus),
        free=len(free),
        unhealthy=len(snapshot.unhealthy.keys() & snapshot.positions.keys()),
        allocatable_memory_mi_b=memory,
        free_memory_mi_b=max(memory - sum(_held_mib(snapshot, gpu) for gpu in usable), 0),
    )


def _held_mib(snapshot: Snapshot, gpu: Gpu) -> int:
    """Return how much of the GPU's memory goes with the devices that are held of it."""
    held = snapshot.held_devices.get(gpu.uuid, frozenset())
    sharing = snapshot.sharing_of(gpu.uuid).sharing
    if not held or sharing.mode == "Exclusive":
        return gpu.memory_mib if held else 0
    if sharing.mode == "MIG":
        instances = snapshot.mig_instances.get(gpu.uuid, ())
        return sum(instance.memory_mib for instance in instances if instance.uuid in held)
    if sharing.unit == "Memory":
        return len(held) * MIB_PER_GIB
    return len(held) * gpu.memory_mib // sharing.shares
