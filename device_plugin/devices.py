"""What the plugin knows of the node's GPUs at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from mcp2026.api.gpu_devices import parse_device_id
from mcp2026.api.gpu_sharing import EXCLUSIVE, Sharing, SharingState
from mcp2026.api.gpu_topology import GpuHealth, Holder
from mcp2026.device_plugin.reservations import HeldDevices, Reservation
from mcp2026.device_plugin.share_placing import SPREAD, SharePlacing
from mcp2026.topology.affinity import AffinityGraph, affinity_graph
from mcp2026.topology.machine import Machine
from mcp2026.topology.mig.geometry import MigInstance


@dataclass(frozen=True, slots=True)
class GpuCondition:
    """How a GPU is: `reason` in CamelCase, `message` says what happened and what to do."""

    health: GpuHealth
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class CurrentSharing:
    """How a GPU is shared now. `message` says what is waited for, or what went wrong."""

    sharing: Sharing = EXCLUSIVE
    state: SharingState = "Active"
    message: str = ""


@dataclass(frozen=True, slots=True)
class Holding:
    """Under which resource a device is held, and by whom.

    `holder` is None from the answer to Allocate, which names no pod, until pod-resources tells.
    """

    resource: str
    holder: Holder | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A configuration file, or the spec of a generation, that could not be taken, and why."""

    message: str
    generation: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _SameMachine:
    """A key for a machine that costs no look at all of its links."""

    machine: Machine

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SameMachine) and other.machine is self.machine

    def __hash__(self) -> int:
        return id(self.machine)


@lru_cache(maxsize=2)
def _graph_of(key: _SameMachine) -> AffinityGraph:
    return affinity_graph(key.machine)


@dataclass(frozen=True)
class Snapshot:
    """The machine and how its GPUs are. Mappings are by UUID of the GPU, but for `unreadable` and `holdings`.

    `conditions` holds GPUs that are not healthy, `sharing` those that somebody has looked at (the others are
    taken as Exclusive). `unreadable` maps NVML indices to the reasons why those GPUs are not part of the
    machine. `minor_numbers` gives the N of /dev/nvidiaN, `mig_instances` the instances of GPUs in MIG mode.
    `holdings` is by device id; it means something only where `holdings_known`.
    """

    machine: Machine
    conditions: Mapping[str, GpuCondition] = field(default_factory=dict)
    wanted: Mapping[str, Sharing] = field(default_factory=dict)
    """How each GPU shall be shared, from configuration and spec; empty until both are known. Whoever shares
    the GPUs brings `sharing` there."""
    sharing: Mapping[str, CurrentSharing] = field(default_factory=dict)
    holdings: Mapping[str, Holding] = field(default_factory=dict)
    holdings_known: bool = False
    """Whether the kubelet has told, since the start, who holds what."""
    mig_instances: Mapping[str, tuple[MigInstance, ...]] = field(default_factory=dict)
    placing: SharePlacing = SPREAD
    reservations: tuple[Reservation, ...] = ()
    """Of the pods of this node."""
    spec_generation: int = 0
    """The generation of the `GPUTopology` that `wanted` follows."""
    refusals: tuple[Refusal, ...] = ()
    """What of configuration and spec could not be taken; what held before holds on."""
    unreadable: Mapping[int, str] = field(default_factory=dict)
    minor_numbers: Mapping[str, int] = field(default_factory=dict)
    driver_failure: str = ""
    """Why the driver as a whole does not answer; empty while it does."""

    @cached_property
    def unhealthy(self) -> Mapping[str, str]:
        """Why nothing may be placed on a GPU, by UUID."""
        return {
            uuid: condition.message
            for uuid, condition in self.conditions.items()
            if condition.health == "Unhealthy"
        }

    @cached_property
    def graph(self) -> AffinityGraph:
        """The affinity graph of the machine, made once for all snapshots of one machine."""
        return _graph_of(_SameMachine(self.machine))

    @cached_property
    def positions(self) -> dict[str, int]:
        """The place of each GPU in the machine, by UUID."""
        return {gpu.uuid: place for place, gpu in enumerate(self.machine.gpus)}

    @cached_property
    def gpu_of_mig_device(self) -> dict[str, str]:
        """The GPU of each MIG device, by the UUID of the latter."""
        return {
            instance.uuid: uuid for uuid, instances in self.mig_instances.items() for instance in instances
        }

    @cached_property
    def held_devices(self) -> Mapping[str, frozenset[str]]:
        """The devices that containers hold, by UUID of their GPU; GPUs without any are absent."""
        held: dict[str, set[str]] = {}
        for device in self.holdings:
            held.setdefault(self.gpu_of(device), set()).add(device)
        return {uuid: frozenset(devices) for uuid, devices in held.items()}

    @cached_property
    def held_by_container(self) -> HeldDevices:
        """The devices of each resource that each container holds, as far as pod-resources told."""
        held: dict[tuple[Holder, str], set[str]] = {}
        for device, holding in self.holdings.items():
            if holding.holder is not None:
                held.setdefault((holding.holder, holding.resource), set()).add(device)
        return {container: frozenset(devices) for container, devices in held.items()}

    def gpu_of(self, device: str) -> str:
        """Return the UUID of the GPU that `device` is (a part of); of an unknown MIG device, its own."""
        uuid = parse_device_id(device).uuid
        return self.gpu_of_mig_device.get(uuid, uuid)

    def sharing_of(self, uuid: str) -> CurrentSharing:
        """Return how the GPU `uuid` is shared now."""
        return self.sharing.get(uuid, _ALONE)

    def wanted_of(self, uuid: str) -> Sharing:
        """Return how the GPU `uuid` shall be shared."""
        return self.wanted.get(uuid, EXCLUSIVE)


_ALONE = CurrentSharing()


@dataclass(frozen=True, slots=True)
class Device:
    """One entry of the kubelet's device list."""

    id: str
    healthy: bool
    numa_node: int | None


def after_rereading(old: Snapshot, new: Snapshot) -> Snapshot:
    """Return which of two snapshots holds: a new one that lacks a GPU does not, so that none vanishes."""
    return new if old.positions.keys() <= new.positions.keys() else old
