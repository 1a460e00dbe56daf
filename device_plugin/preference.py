"""Which devices should a container get? Those reserved for a pod that waits for them, else the best. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from mcp2026.api.gpu_devices import DeviceKind, kind_of_resource
from mcp2026.api.gpu_sharing import SharingMode
from mcp2026.device_plugin.devices import Snapshot
from mcp2026.device_plugin.reservations import matching_reservation, open_reservations
from mcp2026.topology.errors import NoSuchDevicesError, NoSuchSetError
from mcp2026.topology.mig.choice import CutGpu, choose_mig
from mcp2026.topology.mig.tables import geometry_of
from mcp2026.topology.score import Circumstances, best_gpu_set
from mcp2026.topology.sharing import (
    DeviceChoice,
    Packing,
    SharedGpus,
    choose_memory,
    choose_shares,
)

PreferenceKind = Literal["reserved", "scored", "fallback"]
"""reserved: what was promised to a pod. scored: the best of what is free. fallback: a second best,
or simply the first ones."""


@dataclass(frozen=True, slots=True)
class Preference:
    """The devices to take and why: for which pod, the score's terms, or why the first ones were taken."""

    devices: tuple[str, ...]
    reason: str
    kind: PreferenceKind


def preferred_devices(
    snapshot: Snapshot, resource: str, available: Sequence[str], must_include: Sequence[str], size: int
) -> Preference:
    """Return `size` of the `available` devices of `resource` with all of `must_include` among them.

    What cannot be answered well is answered with the first available ones: an error here would fail the pod.
    What is reserved for other pods is left to them as long as there is enough beside it.
    """
    waiting = open_reservations(snapshot.reservations, snapshot.held_by_container, resource)
    if (match := matching_reservation(waiting, available, must_include, size)) is not None:
        reservation, devices = match
        return Preference(devices, f"reserved for {reservation.namespace}/{reservation.pod}", "reserved")
    promised = {device for _, _, devices in waiting for device in devices} - set(must_include)
    unpromised = [device for device in available if device not in promised]
    kind = kind_of_resource(resource)
    choose = _best_whole_gpus if kind is None else _CHOICES[kind]
    problem = ""
    for free in (unpromised, available):
        try:
            preference = choose(snapshot, free, must_include, size)
        except (NoSuchDevicesError, NoSuchSetError) as error:
            problem = str(error)
        else:
            if preference.kind == "scored" or free is available:
                return preference
    in_order = list(dict.fromkeys([*must_include, *available]))
    return Preference(tuple(in_order[: max(size, 0)]), problem, "fallback")


_Choose = Callable[[Snapshot, Sequence[str], Sequence[str], int], Preference]


def _best_whole_gpus(
    snapshot: Snapshot, available: Sequence[str], must_include: Sequence[str], size: int
) -> Preference:
    positions = snapshot.positions
    known = [device for device in available if device in positions]
    if any(device not in positions for device in must_include):
        raise NoSuchSetError(size, len(known))
    choice = best_gpu_set(
        snapshot.graph,
        [positions[device] for device in known],
        size,
        [positions[device] for device in must_include],
        Circumstances(degraded=_degraded(snapshot)),
    )
    gpus = snapshot.machine.gpus
    return Preference(tuple(gpus[place].uuid for place in choice.gpus), str(choice.score), "scored")


def _shares(
    snapshot: Snapshot, available: Sequence[str], must_include: Sequence[str], size: int
) -> Preference:
    """Take shares of one GPU where they add up (MPS), else of as many GPUs as there are shares."""
    through_mps = {device for device in (*must_include, *available) if _mode_of(snapshot, device) == "MPS"}
    in_turns = [device for device in available if device not in through_mps]
    gpus = _shared_gpus(snapshot)
    packing = Packing(snapshot.placing.packing.lower())
    if not through_mps.issuperset(must_include) or not through_mps:
        return _of(choose_shares(gpus, in_turns, must_include, size, packing))
    mps = [device for device in available if device in through_mps]
    try:
        return _of(choose_shares(gpus, mps, must_include, size, packing, distinct=False))
    except NoSuchDevicesError:
        return _of(choose_shares(gpus, in_turns, must_include, size, packing))


def _memory(
    snapshot: Snapshot, available: Sequence[str], must_include: Sequence[str], size: int
) -> Preference:
    return _of(choose_memory(_shared_gpus(snapshot), available, must_include, size))


def _mig_devices(
    snapshot: Snapshot, available: Sequence[str], must_include: Sequence[str], size: int
) -> Preference:
    """Choose by the extender's rule: what is held or promised, of whatever profile, is gone."""
    degraded = _degraded(snapshot)
    gpus = {}
    for uuid, instances in snapshot.mig_instances.items():
        place = snapshot.positions[uuid]
        gpu = snapshot.machine.gpus[place]
        geometry = geometry_of(gpu.product, gpu.memory_mib)
        gpus[place] = CutGpu(instances, geometry, place in snapshot.graph.degraded or place in degraded)
    choice = choose_mig(gpus, snapshot.holdings.keys() | _promised(snapshot), available, must_include, size)
    reason = f"the GPUs lose least of what could be made of them: {choice.lost} memory slices"
    return Preference(choice.ids, reason, "scored")


def _promised(snapshot: Snapshot) -> set[str]:
    """Return the devices of all resources that are reserved for containers that hold none of them yet."""
    resources = {
        resource
        for reservation in snapshot.reservations
        for given in reservation.assignment.values()
        for resource in given
    }
    return {
        device
        for resource in resources
        for _, _, devices in open_reservations(snapshot.reservations, snapshot.held_by_container, resource)
        for device in devices
    }


def _shared_gpus(snapshot: Snapshot) -> SharedGpus:
    in_use = {uuid: len(devices) for uuid, devices in snapshot.held_devices.items()}
    circumstances = Circumstances(degraded=_degraded(snapshot))
    return SharedGpus(snapshot.machine, snapshot.graph, in_use, circumstances)


def _degraded(snapshot: Snapshot) -> tuple[int, ...]:
    return tuple(
        place
        for place, gpu in enumerate(snapshot.machine.gpus)
        if (condition := snapshot.conditions.get(gpu.uuid)) is not None and condition.health == "Degraded"
    )


def _mode_of(snapshot: Snapshot, device: str) -> SharingMode:
    return snapshot.sharing_of(snapshot.gpu_of(device)).sharing.mode


def _of(choice: DeviceChoice) -> Preference:
    return Preference(choice.ids, choice.reason, "scored" if choice.as_wished else "fallback")


_CHOICES: Mapping[DeviceKind, _Choose] = {
    DeviceKind.GPU: _best_whole_gpus,
    DeviceKind.SHARE: _shares,
    DeviceKind.MEMORY: _memory,
    DeviceKind.MIG: _mig_devices,
}
