"""What the plugin knows of the node's GPUs at one moment, and the device list that the kubelet gets of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from mcp2026.topology.affinity import AffinityGraph, affinity_graph
from mcp2026.topology.machine import Machine


@dataclass(frozen=True)
class Snapshot:
    """The machine and how its GPUs are.

    `unhealthy` maps UUIDs to reasons. `unreadable` maps NVML indices to the reasons why those GPUs are
    not part of the machine. `minor_numbers` gives the N of /dev/nvidiaN by UUID.
    """

    machine: Machine
    unhealthy: Mapping[str, str] = field(default_factory=dict)
    unreadable: Mapping[int, str] = field(default_factory=dict)
    minor_numbers: Mapping[str, int] = field(default_factory=dict)
    driver_failure: str = ""
    """Why the driver as a whole does not answer; empty while it does."""

    @cached_property
    def graph(self) -> AffinityGraph:
        """The affinity graph of the machine, made once."""
        return affinity_graph(self.machine)

    @cached_property
    def positions(self) -> dict[str, int]:
        """The place of each GPU in the machine, by UUID."""
        return {gpu.uuid: place for place, gpu in enumerate(self.machine.gpus)}


@dataclass(frozen=True, slots=True)
class Device:
    """One entry of the kubelet's device list."""

    id: str
    healthy: bool
    numa_node: int | None


def device_list(snapshot: Snapshot) -> tuple[Device, ...]:
    """Return all GPUs as the kubelet should see them: one that fails stays in the list, unhealthy."""
    return tuple(
        Device(gpu.uuid, gpu.uuid not in snapshot.unhealthy, gpu.numa_node) for gpu in snapshot.machine.gpus
    )


def with_health(snapshot: Snapshot, failures: Mapping[str, str | None]) -> Snapshot:
    """Return `snapshot` after a probe: the GPUs with a reason are unhealthy, those with None well again."""
    unhealthy = {
        uuid: reason
        for uuid in snapshot.positions
        if (reason := failures.get(uuid, snapshot.unhealthy.get(uuid))) is not None
    }
    return replace(snapshot, unhealthy=unhealthy, driver_failure="")


def without_driver(snapshot: Snapshot, reason: str) -> Snapshot:
    """Return `snapshot` after the driver stopped answering: no GPU is healthy."""
    return replace(snapshot, unhealthy=dict.fromkeys(snapshot.positions, reason), driver_failure=reason)


def after_rereading(old: Snapshot, new: Snapshot) -> Snapshot:
    """Return which of two snapshots holds: a new one that lacks a GPU does not, so that none vanishes."""
    return new if old.positions.keys() <= new.positions.keys() else old
