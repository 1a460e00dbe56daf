"""Which devices should a container get? Those reserved for a pod that waits for them, else the best. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from mcp2026.api.gpu_devices import DeviceKind, kind_of_resource
from mcp2026.device_plugin.devices import Snapshot
from mcp2026.device_plugin.reservations import matching_reservation, open_reservations
from mcp2026.topology.errors import NoSuchSetError
from mcp2026.topology.score import best_gpu_set

PreferenceKind = Literal["reserved", "scored", "fallback"]
"""reserved: what was promised to a pod. scored: the best of what is free. fallback: the first ones."""


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
    choose = _CHOICES.get(kind, _best_whole_gpus) if kind is not None else _best_whole_gpus
    problem = ""
    for free in (unpromised, available):
        try:
            return choose(snapshot, free, must_include, size)
        except NoSuchSetError as error:
            problem = str(error)
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
    )
    gpus = snapshot.machine.gpus
    return Preference(tuple(gpus[place].uuid for place in choice.gpus), str(choice.score), "scored")


def _by_gpu(snapshot: Snapshot, devices: Iterable[str]) -> dict[str, list[str]]:
    """Return `devices` by their GPU, GPUs in the machine's order."""
    last = len(snapshot.positions)
    grouped: dict[str, list[str]] = {}
    for device in devices:
        grouped.setdefault(snapshot.gpu_of(device), []).append(device)
    return dict(sorted(grouped.items(), key=lambda entry: (snapshot.positions.get(entry[0], last), entry[0])))


def _units_of_one_gpu(
    snapshot: Snapshot, available: Sequence[str], must_include: Sequence[str], size: int
) -> Preference:
    """Take all units of the one GPU that fits best, so that large requests still find a GPU."""
    grouped = _by_gpu(snapshot, dict.fromkeys([*must_include, *available]))
    required = _by_gpu(snapshot, must_include)
    fitting = [
        (len(units), place, uuid)
        for place, (uuid, units) in enumerate(grouped.items())
        if len(units) >= size and required.keys() <= {uuid}
    ]
    if not fitting:
        raise NoSuchSetError(size, max(map(len, grouped.values()), default=0))
    left, _, uuid = min(fitting)
    rest = [unit for unit in grouped[uuid] if unit not in set(must_include)]
    chosen = (*must_include, *rest[: size - len(must_include)])
    return Preference(chosen, f"{left - size} of {uuid} stay free", "scored")


def _shares(
    snapshot: Snapshot, available: Sequence[str], must_include: Sequence[str], size: int
) -> Preference:
    """Take shares of one GPU where they add up (MPS), else of as many GPUs as there are shares."""
    everything = [*must_include, *available]
    through_mps = [
        device for device in everything if snapshot.sharing_of(snapshot.gpu_of(device)).sharing.mode == "MPS"
    ]
    if through_mps and not any(device not in set(through_mps) for device in must_include):
        try:
            return _units_of_one_gpu(snapshot, through_mps, must_include, size)
        except NoSuchSetError:
            pass
    in_turns = [device for device in everything if device not in set(through_mps)]
    return _units_of_distinct_gpus(snapshot, in_turns, must_include, size)


def _units_of_distinct_gpus(
    snapshot: Snapshot, available: Sequence[str], must_include: Sequence[str], size: int
) -> Preference:
    """Take units of as many GPUs as there are units, of those with the most left."""
    left = _by_gpu(snapshot, [device for device in available if device not in set(must_include)])
    chosen = list(must_include)
    taken = Counter(snapshot.gpu_of(device) for device in must_include)
    while len(chosen) < size:
        candidates = [uuid for uuid, units in left.items() if units]
        if not candidates:
            raise NoSuchSetError(size, len(chosen))
        uuid = max(candidates, key=lambda each: (-taken[each], len(left[each])))
        chosen.append(left[uuid].pop(0))
        taken[uuid] += 1
    return Preference(tuple(chosen), f"of {len(taken)} GPUs", "scored")


def _slices_where_most_are_taken(
    snapshot: Snapshot, available: Sequence[str], must_include: Sequence[str], size: int
) -> Preference:
    """Take MIG devices of the GPUs with the fewest left, so that whole GPUs come free to be cut otherwise."""
    candidates = _by_gpu(snapshot, [device for device in available if device not in set(must_include)])
    in_order = [device for units in sorted(candidates.values(), key=len) for device in units]
    chosen = [*must_include, *in_order][: max(size, 0)]
    if len(chosen) < size:
        raise NoSuchSetError(size, len(chosen))
    return Preference(tuple(chosen), "of GPUs with the fewest MIG devices free", "scored")


_CHOICES: Mapping[DeviceKind, _Choose] = {
    DeviceKind.GPU: _best_whole_gpus,
    DeviceKind.SHARE: _shares,
    DeviceKind.MEMORY: _units_of_one_gpu,
    DeviceKind.MIG: _slices_where_most_are_taken,
}
