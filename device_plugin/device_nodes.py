"""Which files in /dev does a container need that uses a GPU, or a MIG device? Pure."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from mcp2026.device_plugin.devices import Snapshot

CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
"""Needed beside /dev/nvidiaN by every container with a GPU."""

_MIG_MINOR = re.compile(r"(?P<name>gpu\d+/gi\d+(?:/ci\d+)?)/access (?P<minor>\d+)")


@dataclass(frozen=True, slots=True)
class HostNodes:
    """What the host has: whether a path is there, and the minor numbers of the capabilities of MIG.

    `mig_minors` is by `gpu0/gi1` and `gpu0/gi1/ci0`, numbers of GPUs being those of /dev/nvidiaN.
    """

    exists: Callable[[str], bool]
    mig_minors: Mapping[str, int] = field(default_factory=dict)

    def control(self) -> tuple[str, ...]:
        """Return the nodes that every container with a GPU needs."""
        return tuple(node for node in CONTROL_NODES if self.exists(node))

    def of_gpu(self, snapshot: Snapshot, uuid: str) -> tuple[str, ...]:
        """Return the node of the GPU `uuid`."""
        minor = snapshot.minor_numbers.get(uuid)
        node = f"/dev/nvidia{minor}"
        return (node,) if minor is not None and self.exists(node) else ()

    def of_mig_device(self, snapshot: Snapshot, uuid: str) -> tuple[str, ...]:
        """Return the nodes of the MIG device `uuid`: its GPU's, and two that open its instances."""
        gpu = snapshot.gpu_of(uuid)
        minor = snapshot.minor_numbers.get(gpu)
        capabilities = [
            f"/dev/nvidia-caps/nvidia-cap{number}"
            for instance in snapshot.mig_instances.get(gpu, ())
            if instance.uuid == uuid
            for name in (
                f"gpu{minor}/gi{instance.gpu_instance}",
                f"gpu{minor}/gi{instance.gpu_instance}/ci{instance.compute_instance}",
            )
            if (number := self.mig_minors.get(name)) is not None
        ]
        return (*self.of_gpu(snapshot, gpu), *(node for node in capabilities if self.exists(node)))

    def of_devices(self, snapshot: Snapshot, uuids: Iterable[str]) -> tuple[str, ...]:
        """Return all nodes for GPUs and MIG devices `uuids`, each once."""
        nodes = [*self.control()]
        for uuid in uuids:
            found = self.of_mig_device if uuid in snapshot.gpu_of_mig_device else self.of_gpu
            nodes += found(snapshot, uuid)
        return tuple(dict.fromkeys(nodes))


def parse_mig_minors(text: str) -> dict[str, int]:
    """Return the minor numbers that the kernel module lists in /proc/driver/nvidia-caps/mig-minors."""
    return {found["name"]: int(found["minor"]) for found in _MIG_MINOR.finditer(text)}
