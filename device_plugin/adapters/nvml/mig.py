"""MIG: which instances a GPU has, which it can have, and making and removing them.

NVML's objects: a GPU instance has memory and compute slices, compute instances divide its compute slices, and
a MIG device is the two together; it alone has a UUID. Asking for GPU instances needs root in the container,
and `NVIDIA_MIG_MONITOR_DEVICES=all`, changing them `NVIDIA_MIG_CONFIG_DEVICES=all`.
"""

import ctypes
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pynvml

from mcp2026.device_plugin.adapters.nvml.calls import (
    NO_SUCH_FACT,
    NONSENSE,
    CallError,
    Calls,
    number_between,
    text_field,
)
from mcp2026.topology.mig.geometry import MigInstance, MigProfile

MOST_ENTRIES = 64
"""Room for the instances, placements or MIG devices of a GPU, of which none has more than 8."""
MOST_SLICES = 16
MOST_MEMORY_MIB = 1 << 24
MEDIA_PROFILES = (
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1,
    pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE_REV1,
)
"""Profiles that have all media engines, `+me`."""

_MIG_UUID = re.compile(r"MIG-[0-9A-Za-z/-]{1,59}")
"""Drivers before 470 wrote the UUID of the GPU and two numbers, with slashes."""
_PROFILE_NAME = re.compile(r"[0-9]+g\.[0-9]+gb[0-9a-z.+-]*")
_NO_SUCH_PROFILE = NO_SUCH_FACT | {pynvml.NVML_ERROR_INVALID_ARGUMENT}
_NO_SUCH_DEVICE = frozenset({pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT})


@dataclass(frozen=True, slots=True)
class MigReading:
    """The MIG devices of a GPU, and the GPU instances that have no compute instance and so no device."""

    instances: tuple[MigInstance, ...]
    bare: tuple[MigInstance, ...]


# ---- the mode ----


def is_enabled(calls: Calls, handle: Any) -> bool | None:
    """Tell whether the GPU is in MIG mode; None: it has none."""
    mode = calls.optional(pynvml.nvmlDeviceGetMigMode, handle)
    return None if mode is None else mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE


def set_mode(calls: Calls, handle: Any, enabled: bool) -> None:
    """Switch MIG mode; `CallError` if it is refused, or waits for a reset."""
    wanted = pynvml.NVML_DEVICE_MIG_ENABLE if enabled else pynvml.NVML_DEVICE_MIG_DISABLE
    if calls.ask(pynvml.nvmlDeviceGetMigMode, handle) == [wanted, wanted]:
        return
    activation = calls.ask(pynvml.nvmlDeviceSetMigMode, handle, wanted)
    current, _ = calls.ask(pynvml.nvmlDeviceGetMigMode, handle)
    if current == wanted:
        return
    if activation == pynvml.NVML_ERROR_IN_USE:
        reason = "a process uses the GPU: the mode is pending until it is set again or the GPU is reset"
    else:
        reason = "the mode is pending until the GPU is reset (nvidia-smi --gpu-reset, or a reboot)"
    raise CallError("nvmlDeviceSetMigMode", activation, reason)


# ---- what there is, and can be ----


def read_profiles(calls: Calls, handle: Any) -> tuple[MigProfile, ...]:
    """Return the profiles that the GPU has, in NVML's order; empty where it has no MIG."""
    profiles: dict[int, MigProfile] = {}
    for index in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        profile = _read_profile(calls, handle, index)
        if profile is not None:
            profiles.setdefault(profile.profile_id, profile)
    return tuple(profiles.values())


def read_instances(calls: Calls, handle: Any) -> MigReading:
    """Return the instances of a GPU in MIG mode, by where they start."""
    bare = {
        found.gpu_instance: found
        for profile in read_profiles(calls, handle)
        for found in _gpu_instances(calls, handle, profile)
    }
    devices = _mig_devices(calls, handle)
    complete = [
        MigInstance(uuid, one.profile, one.start, one.size, gi, ci, one.memory_mib)
        for (gi, ci), uuid in devices.items()
        if (one := bare.get(gi)) is not None
    ]
    with_device = {gi for gi, _ in devices}
    return MigReading(
        tuple(sorted(complete, key=_place)),
        tuple(sorted((one for gi, one in bare.items() if gi not in with_device), key=_place)),
    )


def uuid_of_instance(calls: Calls, handle: Any, gi: int, ci: int) -> str | None:
    """Return the UUID of the MIG device with these numbers."""
    return _mig_devices(calls, handle).get((gi, ci))


def _place(instance: MigInstance) -> tuple[int, int]:
    return instance.start, instance.compute_instance


def _read_profile(calls: Calls, handle: Any, index: int) -> MigProfile | None:
    try:
        info = _profile_info(calls, handle, index)
        placements = _placements(calls, handle, info.id)
    except CallError as error:
        if error.code in _NO_SUCH_PROFILE:
            return None
        raise
    compute_slices = number_between(info.sliceCount, 1, MOST_SLICES)
    memory_mib = number_between(info.memorySizeMB, 1, MOST_MEMORY_MIB)
    sizes = {placement.size for placement in placements}
    if compute_slices is None or memory_mib is None or len(sizes) != 1:
        return None
    return MigProfile(
        name=_profile_name(calls, handle, index, info),
        profile_id=info.id,
        compute_slices=compute_slices,
        size=sizes.pop(),
        starts=tuple(sorted(placement.start for placement in placements)),
        most=min(info.instanceCount, len(placements)),
        memory_mib=memory_mib,
    )


def _profile_info(calls: Calls, handle: Any, index: int) -> Any:
    try:
        return calls.ask(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, index)
    except CallError as error:
        if error.code != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
    return calls.ask(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, index, 1)  # without a name


def _placements(calls: Calls, handle: Any, profile_id: int) -> list[Any]:
    """Return the placements that can be true."""
    placements = (pynvml.c_nvmlGpuInstancePlacement_t * MOST_ENTRIES)()
    count = ctypes.c_uint(MOST_ENTRIES)
    function = pynvml.nvmlDeviceGetGpuInstancePossiblePlacements
    calls.ask(function, handle, profile_id, placements, ctypes.byref(count))
    return [
        placement
        for placement in placements[: _checked(function.__name__, count)]
        if 0 < placement.size <= MOST_SLICES and placement.start + placement.size <= MOST_SLICES
    ]


def _profile_name(calls: Calls, handle: Any, index: int, info: Any) -> str:
    told = text_field(info, "name").removeprefix("MIG ")
    if _PROFILE_NAME.fullmatch(told):
        return told
    suffix = "+me" if index in MEDIA_PROFILES else ""
    board = calls.optional(pynvml.nvmlDeviceGetMemoryInfo, handle)
    total_mib = board.total >> 20 if board is not None else 0
    return f"{info.sliceCount}g.{marketed_gb(info.memorySizeMB, total_mib)}gb{suffix}"


def marketed_gb(memory_mib: int, total_mib: int) -> int:
    """Return the GB in a profile's name: so many eighths of the board's size in whole GiB.

    This is how NVIDIA's tools make the name: 9,856 of 81,920 MiB are `10gb`, 80,384 are `80gb`.
    """
    if total_mib <= 0:
        return -(-memory_mib // 1024)
    eighths = min(8, -(-memory_mib * 8 // total_mib))
    return (eighths * -(-total_mib // 1024) + 4) // 8


def _gpu_instances(calls: Calls, handle: Any, profile: MigProfile) -> list[MigInstance]:
    handles = (pynvml.c_nvmlGpuInstance_t * MOST_ENTRIES)()
    count = ctypes.c_uint(MOST_ENTRIES)
    function = pynvml.nvmlDeviceGetGpuInstances
    calls.ask(function, handle, profile.profile_id, handles, ctypes.byref(count))
    found = []
    for instance in handles[: _checked(function.__name__, count)]:
        info = calls.ask(pynvml.nvmlGpuInstanceGetInfo, instance)
        start = info.placement.start
        if start + profile.size > MOST_SLICES:
            raise CallError("nvmlGpuInstanceGetInfo", NONSENSE, f"an instance starts at slice {start}")
        found.append(MigInstance("", profile.name, start, profile.size, info.id, -1, profile.memory_mib))
    return found


def _mig_devices(calls: Calls, handle: Any) -> dict[tuple[int, int], str]:
    """Return the UUIDs of the MIG devices, by GPU instance and compute instance."""
    devices: dict[tuple[int, int], str] = {}
    most = calls.ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle)
    for index in range(min(most, MOST_ENTRIES)):
        try:
            device = calls.ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
            gi = calls.ask(pynvml.nvmlDeviceGetGpuInstanceId, device)
            ci = calls.ask(pynvml.nvmlDeviceGetComputeInstanceId, device)
            devices[gi, ci] = _mig_uuid(calls.text(pynvml.nvmlDeviceGetUUID, device))
        except CallError as error:
            if error.code not in _NO_SUCH_DEVICE:
                raise
    if len(set(devices.values())) < len(devices):
        raise CallError("nvmlDeviceGetUUID", NONSENSE, "two MIG devices have one UUID")
    return devices


def _mig_uuid(told: str) -> str:
    if not _MIG_UUID.fullmatch(told):
        raise CallError("nvmlDeviceGetUUID", NONSENSE, f"gave the UUID {told!r} for a MIG device")
    return told


def _checked(function: str, count: ctypes.c_uint) -> int:
    if count.value > MOST_ENTRIES:
        raise CallError(function, NONSENSE, f"tells of {count.value} entries")
    return count.value


# ---- making and removing ----


def create_instance(calls: Calls, handle: Any, profile: MigProfile, start: int) -> MigInstance:
    """Make a GPU instance with one compute instance that fills it; what is half made is removed again."""
    placement = pynvml.c_nvmlGpuInstancePlacement_t(start=start, size=profile.size)
    instance = calls.ask(
        pynvml.nvmlDeviceCreateGpuInstanceWithPlacement, handle, profile.profile_id, ctypes.byref(placement)
    )
    try:
        gi, ci, uuid = _fill(calls, handle, instance, profile.compute_slices)
    except CallError:
        with suppress(CallError):
            _destroy(calls, instance)
        raise
    return MigInstance(uuid, profile.name, start, profile.size, gi, ci, profile.memory_mib)


def _fill(calls: Calls, handle: Any, instance: Any, slices: int) -> tuple[int, int, str]:
    """Make the compute instance; return the numbers of both instances and the UUID of the device."""
    gi = calls.ask(pynvml.nvmlGpuInstanceGetInfo, instance).id
    filling = _filling_profile(calls, instance, slices)
    compute = calls.ask(pynvml.nvmlGpuInstanceCreateComputeInstance, instance, filling)
    ci = calls.ask(pynvml.nvmlComputeInstanceGetInfo, compute).id
    uuid = uuid_of_instance(calls, handle, gi, ci)
    if uuid is None:
        raise CallError("nvmlDeviceGetMigDeviceHandleByIndex", NONSENSE, "the new instance has no device")
    return gi, ci, uuid


def destroy_instance(calls: Calls, handle: Any, instance: MigInstance) -> None:
    """Remove a GPU instance, if its numbers still are those of the same MIG device, else `CallError`."""
    gi, ci = instance.gpu_instance, instance.compute_instance
    devices = _mig_devices(calls, handle)
    unchanged = (
        devices.get((gi, ci)) == instance.uuid
        if instance.uuid
        else all(number != gi for number, _ in devices)
    )
    if not unchanged:
        reason = f"the numbers {gi}, {ci} are not those of {instance.uuid or 'a bare instance'} any more"
        raise CallError("nvmlDeviceGetGpuInstanceById", pynvml.NVML_ERROR_NOT_FOUND, reason)
    _destroy(calls, calls.ask(pynvml.nvmlDeviceGetGpuInstanceById, handle, gi))


def _destroy(calls: Calls, instance: Any) -> None:
    for profile_id, _ in _compute_profiles(calls, instance):
        handles = (pynvml.c_nvmlComputeInstance_t * MOST_ENTRIES)()
        count = ctypes.c_uint(MOST_ENTRIES)
        function = pynvml.nvmlGpuInstanceGetComputeInstances
        calls.ask(function, instance, profile_id, handles, ctypes.byref(count))
        for compute in handles[: _checked(function.__name__, count)]:
            calls.ask(pynvml.nvmlComputeInstanceDestroy, compute)
    calls.ask(pynvml.nvmlGpuInstanceDestroy, instance)


def _filling_profile(calls: Calls, instance: Any, slices: int) -> int:
    for profile_id, profile_slices in _compute_profiles(calls, instance):
        if profile_slices == slices:
            return profile_id
    function = "nvmlGpuInstanceGetComputeInstanceProfileInfo"
    raise CallError(function, NONSENSE, f"there is no compute instance of {slices} slices")


def _compute_profiles(calls: Calls, instance: Any) -> Iterable[tuple[int, int]]:
    """Give number and compute slices of the profiles of compute instances."""
    for index in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        try:
            info = _compute_profile_info(calls, instance, index)
        except CallError as error:
            if error.code not in _NO_SUCH_PROFILE:
                raise
        else:
            yield info.id, info.sliceCount


def _compute_profile_info(calls: Calls, instance: Any, index: int) -> Any:
    shared = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    function = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo
    try:
        return calls.ask(function, instance, index, shared)
    except CallError as error:
        if error.code != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
    return calls.ask(function, instance, index, shared, 1)
