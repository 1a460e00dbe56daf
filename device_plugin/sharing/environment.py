"""What does a container need so that it uses what it holds of the GPUs, and no more? Decided purely."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mcp2026.api.gpu_devices import DeviceId
from mcp2026.api.names import GPU_UUIDS_VARIABLE
from mcp2026.device_plugin.devices import Snapshot
from mcp2026.device_plugin.errors import DevicePluginError
from mcp2026.device_plugin.sharing.mps_limits import limits_of_units

NVIDIA_VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
"""Read by the NVIDIA container runtime, which then makes these GPUs appear in the container."""

MPS_DIRECTORY = Path("/run/mcp2026/mps")
"""On the host, and at the same path in the plugin's container: pipes and logs by GPU, and `shm`."""
MPS_PIPE_IN_CONTAINER = "/run/mcp2026/mps/pipe"
MPS_LOG_IN_CONTAINER = "/tmp/mcp2026-mps"  # in the container, so that tenants do not share a folder for logs
"""The client library makes it; it is the container's own."""


class SharesOfSeveralGpusError(DevicePluginError):
    """One container would use several GPUs through MPS, each of which has a daemon of its own."""

    def __init__(self, uuids: Sequence[str]) -> None:
        super().__init__(
            f"the devices are of {len(uuids)} GPUs in mode MPS ({', '.join(uuids)}), but a process speaks to "
            "one MPS daemon: request at most what one GPU has, or GPUs in mode Exclusive or TimeSlice"
        )
        self.uuids = tuple(uuids)


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder of the host that appears in the container."""

    host_path: str
    container_path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class ContainerAccess:
    """Environment variables and mounts of a container."""

    environment: dict[str, str]
    mounts: tuple[Mount, ...] = ()


def pipe_directory(mps_directory: Path, uuid: str) -> Path:
    """Return where the MPS daemon of the GPU `uuid` has its pipes."""
    return mps_directory / uuid / "pipe"


def container_access(
    snapshot: Snapshot, devices: Sequence[DeviceId], mps_directory: Path = MPS_DIRECTORY
) -> ContainerAccess:
    """Return what a container needs that holds `devices`, in whatever order they are given.

    The container's device order, which its variables follow, is that of the machine, and within a GPU that
    of the placement of MIG instances.

    Raises:
        SharesOfSeveralGpusError: the devices are of several GPUs, one of them in mode MPS.

    """
    gpus = _in_machine_order(snapshot, {snapshot.gpu_of(str(device)) for device in devices})
    names = _visible_names(snapshot, gpus, devices)
    environment = {NVIDIA_VISIBLE_DEVICES: ",".join(names), GPU_UUIDS_VARIABLE: ",".join(gpus)}
    if names != gpus:  # MIG devices: CUDA would take the first one alone, and by the order of the driver
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(names)
    through_mps = [uuid for uuid in gpus if snapshot.sharing_of(uuid).sharing.mode == "MPS"]
    if not through_mps:
        return ContainerAccess(environment)
    if len(gpus) > 1:
        raise SharesOfSeveralGpusError(gpus)
    return _through_mps(snapshot, gpus[0], len(devices), environment, mps_directory)


def _in_machine_order(snapshot: Snapshot, uuids: set[str]) -> list[str]:
    last = len(snapshot.positions)
    return sorted(uuids, key=lambda uuid: (snapshot.positions.get(uuid, last), uuid))


def _visible_names(snapshot: Snapshot, gpus: Sequence[str], devices: Sequence[DeviceId]) -> list[str]:
    held = {device.uuid for device in devices}
    names: list[str] = []
    for uuid in gpus:
        instances = sorted(snapshot.mig_instances.get(uuid, ()), key=lambda instance: instance.start)
        names += [instance.uuid for instance in instances if instance.uuid in held] or [uuid]
    return names


def _through_mps(
    snapshot: Snapshot, uuid: str, units: int, environment: dict[str, str], mps_directory: Path
) -> ContainerAccess:
    memory_mib = snapshot.machine.gpus[snapshot.positions[uuid]].memory_mib
    limits = limits_of_units(snapshot.sharing_of(uuid).sharing, memory_mib, units)
    memory_limit = (
        {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={limits.memory_mib}M"} if limits.memory_mib else {}
    )
    pipe = pipe_directory(mps_directory, uuid)
    return ContainerAccess(
        environment
        | {
            "CUDA_VISIBLE_DEVICES": uuid,
            "CUDA_MPS_PIPE_DIRECTORY": MPS_PIPE_IN_CONTAINER,
            "CUDA_MPS_LOG_DIRECTORY": MPS_LOG_IN_CONTAINER,
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(limits.thread_percentage),
        }
        | memory_limit,
        (
            Mount(str(pipe), MPS_PIPE_IN_CONTAINER),
            Mount(str(mps_directory / "shm"), "/dev/shm"),  # client and server meet there too
        ),
    )
