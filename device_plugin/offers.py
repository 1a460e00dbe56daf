"""What the kubelet may give away of each resource: the device lists, decided purely over a snapshot.

A GPU stands in the lists of one resource alone, that of its mode (decision 0100), so it is never sold twice.
"""

from collections.abc import Iterator, Mapping

from mcp2026.api.gpu_devices import DeviceId, DeviceKind, mig_resource
from mcp2026.api.gpu_sharing import EXCLUSIVE, Sharing
from mcp2026.api.names import GPU_MEMORY_RESOURCE, GPU_RESOURCE, GPU_SHARED_RESOURCE
from mcp2026.device_plugin.devices import Device, Snapshot
from mcp2026.topology.machine import Gpu

MIB_PER_GIB = 1024


def offers(snapshot: Snapshot) -> Mapping[str, tuple[Device, ...]]:
    """Return the devices of each resource that the node has any of, GPUs in the machine's order.

    An unhealthy GPU's devices stay, unhealthy. Of a GPU that is being drained those stay that are held; one
    that is being changed, or could not be, has none. One of which nothing is known yet is whole, unless
    something else is wanted.
    """
    lists: dict[str, list[Device]] = {}
    for gpu in snapshot.machine.gpus:
        current = snapshot.sharing_of(gpu.uuid)
        unknown = gpu.uuid not in snapshot.sharing and snapshot.wanted_of(gpu.uuid) != EXCLUSIVE
        if unknown or current.state in ("Changing", "Failed"):
            continue
        held = snapshot.held_devices.get(gpu.uuid, frozenset())
        healthy = gpu.uuid not in snapshot.unhealthy
        for resource, device in devices_of(snapshot, gpu, current.sharing):
            if current.state == "Active" or device in held:
                usable = healthy and device not in snapshot.unhealthy
                lists.setdefault(resource, []).append(Device(device, usable, gpu.numa_node))
    return {resource: tuple(devices) for resource, devices in lists.items()}


def devices_of(snapshot: Snapshot, gpu: Gpu, sharing: Sharing) -> Iterator[tuple[str, str]]:
    """Yield the resource and the name of each device that `gpu` is sold as when it is shared by `sharing`."""
    if sharing.mode == "Exclusive":
        yield GPU_RESOURCE, gpu.uuid
    elif sharing.mode == "MIG":
        for instance in snapshot.mig_instances.get(gpu.uuid, ()):
            yield mig_resource(instance.profile), instance.uuid
    elif sharing.unit == "Memory":
        for number in range(gpu.memory_mib // MIB_PER_GIB):
            yield GPU_MEMORY_RESOURCE, str(DeviceId(gpu.uuid, DeviceKind.MEMORY, number))
    else:
        for number in range(sharing.shares):
            yield GPU_SHARED_RESOURCE, str(DeviceId(gpu.uuid, DeviceKind.SHARE, number))
