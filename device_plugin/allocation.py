"""What does a container need to use the devices that the kubelet gives it? Pure, over a snapshot."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mcp2026.api.gpu_devices import DeviceKind, kind_of_resource, parse_device_id
from mcp2026.device_plugin.cdi.specification import cdi_name
from mcp2026.device_plugin.device_nodes import HostNodes
from mcp2026.device_plugin.devices import Snapshot
from mcp2026.device_plugin.errors import SharesOfOneGpuError, UnsharableSetError
from mcp2026.device_plugin.sharing.environment import (
    MPS_DIRECTORY,
    NVIDIA_VISIBLE_DEVICES,
    Mount,
    container_access,
)
from mcp2026.device_plugin.strategy import Strategy

NOT_BY_VARIABLE = "void"
"""Keeps the NVIDIA runtime from adding GPUs of its own accord."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a container gets; device nodes are those of the host, at the same path inside."""

    environment: dict[str, str]
    mounts: tuple[Mount, ...] = ()
    device_nodes: tuple[str, ...] = ()
    cdi_devices: tuple[str, ...] = ()


def grant(
    snapshot: Snapshot,
    resource: str,
    devices: Sequence[str],
    strategies: Collection[Strategy],
    nodes: HostNodes,
    in_cdi: Collection[str] = (),
    mps_directory: Path = MPS_DIRECTORY,
) -> Grant:
    """Return what a container needs to use `devices` of `resource`; `in_cdi` are the UUIDs that CDI knows.

    A device that CDI does not know is left to NVIDIA_VISIBLE_DEVICES.

    Raises:
        UnsharableSetError: GiB of several GPUs.
        SharesOfOneGpuError: several shares of one GPU in turns, where the configuration forbids that.
        SharesOfSeveralGpusError: shares of several GPUs through MPS.

    """
    if kind_of_resource(resource) is DeviceKind.MEMORY:
        gpus = sorted({snapshot.gpu_of(device) for device in devices})
        if len(gpus) > 1:
            raise UnsharableSetError(resource, gpus)
    if snapshot.placing.distinct_only:
        _check_distinct(snapshot, resource, devices)
    access = container_access(snapshot, [parse_device_id(device) for device in devices], mps_directory)
    given = Grant(dict(access.environment), access.mounts)
    visible = [uuid for uuid in access.environment[NVIDIA_VISIBLE_DEVICES].split(",") if uuid]
    if Strategy.DEVICE_NODES in strategies:
        given = replace(given, device_nodes=nodes.of_devices(snapshot, visible))
    if Strategy.CDI_CRI in strategies and set(visible) <= set(in_cdi):
        given = replace(given, cdi_devices=tuple(cdi_name(uuid) for uuid in visible))
        if Strategy.ENVVAR not in strategies:
            given.environment[NVIDIA_VISIBLE_DEVICES] = NOT_BY_VARIABLE
    return given


def _check_distinct(snapshot: Snapshot, resource: str, devices: Sequence[str]) -> None:
    if kind_of_resource(resource) is not DeviceKind.SHARE:
        return
    for uuid, count in Counter(snapshot.gpu_of(device) for device in devices).items():
        if count > 1 and snapshot.sharing_of(uuid).sharing.mode == "TimeSlice":
            raise SharesOfOneGpuError(resource, uuid, count)
