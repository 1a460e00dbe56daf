"""What the plugin asks of a GPU driver, as data and a protocol. `adapters/nvml` answers it from NVML.

All calls block, for at most the adapter's deadline, and are for one thread at a time. None is made while the
kubelet waits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from mcp2026.topology.machine import Machine
from mcp2026.topology.mig.geometry import MigInstance, MigProfile


@dataclass(frozen=True, slots=True)
class Reading:
    """A machine; the GPUs that are not part of it (driver's index → reason); facts by UUID beside it.

    `minor_numbers` has the N of /dev/nvidiaN, `compute_capabilities` (major, minor).
    """

    machine: Machine
    unreadable: dict[int, str]
    minor_numbers: dict[str, int]
    compute_capabilities: dict[str, tuple[int, int]]
    mig_instances: dict[str, tuple[MigInstance, ...]]
    """By UUID of the GPU; a GPU that is not in MIG mode has no entry, one without instances an empty one."""
    bare_mig_instances: Mapping[str, tuple[MigInstance, ...]] = field(default_factory=dict)
    """GPU instances without a compute instance, so without a MIG device: somebody made half of one.

    By UUID of the GPU, only where there are some. They take their slices and cannot be used; their own UUID
    is empty and their compute instance -1. `destroy_mig_instance` removes them.
    """


class EventKind(StrEnum):
    """What the driver tells of its own accord."""

    XID = "xid"
    """A fault, numbered as in NVIDIA's catalogue of XIDs."""
    SINGLE_BIT_ECC = "single-bit-ecc"
    """Corrected; no reason to act."""
    DOUBLE_BIT_ECC = "double-bit-ecc"
    """Not corrected."""
    UNAVAILABLE = "unavailable"
    """The GPU cannot be used at present; told by drivers since 580."""
    RECOVERY_ACTION = "recovery-action"
    """What would mend the GPU has changed, see `Vitals.recovery_action`; told by drivers since 580."""


@dataclass(frozen=True, slots=True)
class GpuEvent:
    """An event of the GPU `uuid` (None: of all GPUs). `code` is the XID. `mig_uuid`: it names a slice."""

    uuid: str | None
    kind: EventKind
    code: int = 0
    mig_uuid: str | None = None


@dataclass(frozen=True, slots=True)
class Vitals:
    """How a GPU is now; None where driver or board do not tell.

    `failure` says why it does not answer at all; then nothing else is known. `inactive_links` are the numbers
    of NVLinks that the GPU has and that are down. `thermal_slowdown`: its clocks are held down because of
    heat. `uncorrected_ecc_errors` counts since the driver was loaded. `pending_repair` names row
    remapping or page retirement that is pending or failed, and what it needs: a reset, or a new board.
    `temperature` is in °C, memory in MiB, `busy` in percent. `recovery_action` says what the driver advises;
    empty if nothing. `fabric_failure` says that the GPU is not part of the NVSwitches' fabric, so that no
    program can use it: the fabric manager of the node has to be looked at.
    """

    failure: str = ""
    inactive_links: tuple[int, ...] = ()
    thermal_slowdown: bool = False
    temperature: int | None = None
    uncorrected_ecc_errors: int | None = None
    pending_repair: str = ""
    memory_used_mib: int | None = None
    busy: int | None = None
    recovery_action: str = ""
    fabric_failure: str = ""


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that has a context on a GPU; memory in MiB, None where not told.

    `gpu_instance` is the driver's number of the MIG instance that it uses, None outside of MIG mode.
    """

    pid: int
    memory_mib: int | None
    gpu_instance: int | None = None


class ComputeMode(StrEnum):
    """Who may have contexts on a GPU."""

    DEFAULT = "default"
    EXCLUSIVE_PROCESS = "exclusive-process"
    """One process alone: with MPS, its server."""
    PROHIBITED = "prohibited"


class Driver(Protocol):
    """The driver of this node's GPUs, which are named by UUID.

    Every call raises `DriverNotRunningError` when the driver as a whole is gone, and `GpuCallError` when the
    GPU refuses or a call takes longer than the deadline. A GPU of which a call hangs is left alone until that
    call returns: until then all calls about it fail at once.
    """

    def close(self) -> None:
        """Let go of the driver; never raises."""

    def read(self, name: str) -> Reading:
        """Read all GPUs and their links as the machine `name`; `DriverTooOldError` if that cannot be done."""

    def vitals(self, uuids: Sequence[str]) -> dict[str, Vitals]:
        """Return how the GPUs are; one that does not answer is told in `failure`, not raised.

        Many that hang cost one deadline.
        """

    def answering(self, indices: Sequence[int]) -> frozenset[int]:
        """Return which of the GPUs with these indices, unreadable before, can be read now."""

    def processes(self, uuid: str) -> tuple[GpuProcess, ...]:
        """Return the processes that compute on the GPU."""

    def compute_mode(self, uuid: str) -> ComputeMode:
        """Return who may have contexts on the GPU."""

    def set_compute_mode(self, uuid: str, mode: ComputeMode) -> None:
        """Set who may have contexts on the GPU."""

    def mig_profiles(self, uuid: str) -> tuple[MigProfile, ...]:
        """Return the profiles that the GPU has, with all their placements; empty where it has no MIG."""

    def set_mig_mode(self, uuid: str, enabled: bool) -> None:
        """Switch MIG mode; `GpuCallError` says so where a reset of the GPU would be needed first."""

    def create_mig_instance(self, uuid: str, profile: MigProfile, start: int) -> MigInstance:
        """Make a GPU instance at memory slice `start`, with one compute instance that fills it."""

    def destroy_mig_instance(self, uuid: str, instance: MigInstance) -> None:
        """Remove a GPU instance and its compute instances; refused by the driver while a process uses it."""


class EventSource(Protocol):
    """Where the driver's events come from. For a thread of its own."""

    def wait(self, timeout_s: float) -> tuple[GpuEvent, ...]:
        """Return what came within `timeout_s`, empty if nothing; `DriverNotRunningError` when deaf."""

    def close(self) -> None:
        """Stop listening."""
