"""What is seen before a decision on sharing, and the steps that a decision can ask for. Plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from mcp2026.api.gpu_sharing import Sharing
from mcp2026.api.gpu_topology import Holder
from mcp2026.device_plugin.driver import ComputeMode
from mcp2026.device_plugin.sharing.mps_limits import MpsLimits
from mcp2026.topology.mig.geometry import MigInstance, MigProfile


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """What the driver says of a GPU. `instances` is None when it is not in MIG mode; `pids` compute on it.

    `profiles` is empty where the GPU has no MIG. `bare` are instances that no MIG device came of. Memory is
    in MiB.
    """

    memory_mib: int
    compute_capability: tuple[int, int]
    compute_mode: ComputeMode = ComputeMode.DEFAULT
    instances: tuple[MigInstance, ...] | None = None
    bare: tuple[MigInstance, ...] = ()
    profiles: tuple[MigProfile, ...] = ()
    pids: frozenset[int] = frozenset()


class DaemonState(StrEnum):
    """How an MPS control daemon is."""

    DOWN = "down"
    """No process: not started yet, or it ended."""
    SILENT = "silent"
    """There is a process, and it does not answer."""
    SERVING = "serving"


@dataclass(frozen=True, slots=True)
class MpsDaemon:
    """The MPS daemon that is reserved for a GPU, as its record on disk and its process tell.

    `sharing` is what it was reserved for; `compute_mode_before` is what the GPU is to have again afterwards;
    `pids` are the daemon's and its servers'; `reason` says why it is down or silent.
    """

    sharing: Sharing
    compute_mode_before: ComputeMode
    state: DaemonState = DaemonState.DOWN
    pids: frozenset[int] = frozenset()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class KubeletView:
    """What the kubelet said when it was asked at `asked_at` (s, of the clock that decisions are made by).

    `held` has the holder by device id, None where only the answer to Allocate is known. `allocatable` has the
    devices that the kubelet may still give away or gave away; None if it does not tell.
    """

    asked_at: float
    held: Mapping[str, Holder | None] = field(default_factory=dict)
    allocatable: frozenset[str] | None = frozenset()


@dataclass(frozen=True, slots=True)
class Observation:
    """All that a decision is made from; mappings are by UUID of the GPU.

    A GPU without `facts` could not be read now. `unreadable` says of which GPUs it is not known whether they
    have a daemon, and why: nothing may be changed on them. `kubelet` is None when it does not answer, for
    the reason `kubelet_failure`.
    """

    wanted: Mapping[str, Sharing]
    facts: Mapping[str, GpuFacts]
    daemons: Mapping[str, MpsDaemon] = field(default_factory=dict)
    kubelet: KubeletView | None = None
    kubelet_failure: str = ""
    unreadable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SetMigMode:
    """Switch MIG mode."""

    uuid: str
    enabled: bool


@dataclass(frozen=True, slots=True)
class DestroyInstance:
    """Remove a MIG instance."""

    uuid: str
    instance: MigInstance


@dataclass(frozen=True, slots=True)
class CreateInstance:
    """Make a MIG instance at memory slice `start`."""

    uuid: str
    profile: MigProfile
    start: int


@dataclass(frozen=True, slots=True)
class ReserveMps:
    """Record that the GPU gets an MPS daemon, and its compute mode of now, before anything is changed."""

    uuid: str
    sharing: Sharing
    compute_mode_before: ComputeMode


@dataclass(frozen=True, slots=True)
class SetComputeMode:
    """Set who may have contexts on the GPU."""

    uuid: str
    mode: ComputeMode


@dataclass(frozen=True, slots=True)
class StartMps:
    """Start the MPS daemon with `ceiling` as the defaults of its clients."""

    uuid: str
    ceiling: MpsLimits


@dataclass(frozen=True, slots=True)
class StopMps:
    """Stop the MPS daemon: by `quit`, and by force if it does not answer."""

    uuid: str


@dataclass(frozen=True, slots=True)
class ReleaseMps:
    """Remove the record of `ReserveMps`."""

    uuid: str


Step = (
    SetMigMode
    | DestroyInstance
    | CreateInstance
    | ReserveMps
    | SetComputeMode
    | StartMps
    | StopMps
    | ReleaseMps
)
