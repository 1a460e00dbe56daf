"""Which parts of shared GPUs should a container get: shares, or GiB of memory? MIG: `mig/choice.py`.

Pure, over the machine and the ids that the kubelet offers (`mcp2026.api.gpu_devices`). Nothing here fails for
what is offered: where a wish cannot be met the best that is there is taken, and the choice says so.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from mcp2026.api.gpu_devices import parse_device_id
from mcp2026.topology.affinity import AffinityGraph
from mcp2026.topology.bands import NOTHING_KNOWN, Circumstances
from mcp2026.topology.errors import NoSuchDevicesError
from mcp2026.topology.machine import Machine
from mcp2026.topology.score import best_gpu_set


class Packing(StrEnum):
    """Where shares of GPUs go."""

    SPREAD = "spread"
    """Where fewest others are: each container computes as fast as can be."""
    PACK = "pack"
    """Onto GPUs that are in use already, so that whole GPUs stay free."""


@dataclass(frozen=True, slots=True)
class SharedGpus:
    """The GPUs of a machine while some are shared.

    `in_use` counts by UUID of the GPU what others hold of it: shares, or GiB. `circumstances` is by position.
    """

    machine: Machine
    graph: AffinityGraph
    in_use: Mapping[str, int]
    circumstances: Circumstances = NOTHING_KNOWN

    def place(self, uuid: str) -> int | None:
        """Return the position of the GPU; None if it is not of this machine."""
        return next((place for place, gpu in enumerate(self.machine.gpus) if gpu.uuid == uuid), None)

    def degraded(self, uuid: str) -> bool:
        """Tell whether the GPU is less preferred."""
        place = self.place(uuid)
        return place is None or place in self.graph.degraded or place in self.circumstances.degraded


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """Ids of devices in the order in which to take them, and why; `as_wished` is False for a second best."""

    ids: tuple[str, ...]
    reason: str
    as_wished: bool = True


def choose_shares(
    gpus: SharedGpus,
    available: Sequence[str],
    must_include: Sequence[str],
    size: int,
    packing: Packing = Packing.SPREAD,
    *,
    distinct: bool = True,
) -> DeviceChoice:
    """Return `size` shares out of `available` with all of `must_include` among them.

    Several shares are of different GPUs (two of one are no faster than one), those that belong together by
    the scorer; with `distinct` False they are of as few GPUs as can be. To spread, what others hold of a GPU
    counts as neighbours in that band, below links. To pack, sound GPUs in use are taken before idle ones,
    whatever their links, and of equal ones the fullest. Where fewer GPUs than shares are there, the shares
    are spread evenly and `as_wished` is False.

    Raises:
        NoSuchDevicesError: fewer than `size` are there, more must be included, or one is of no GPU here.

    """
    by_gpu = _by_gpu(gpus, available, must_include, size)
    taken = list(dict.fromkeys(must_include))
    if distinct:
        begun = list(dict.fromkeys(parse_device_id(share).uuid for share in taken))
        fresh = [uuid for uuid in by_gpu if by_gpu[uuid] and uuid not in begun]
        partners = _best_gpus(gpus, fresh, begun, min(size - len(taken), len(fresh)), packing)
        taken += [by_gpu[uuid].pop(0) for uuid in partners]
    while len(taken) < size:
        counts = Counter(parse_device_id(share).uuid for share in taken)
        with_room = [uuid for uuid in by_gpu if by_gpu[uuid]]
        if distinct:
            uuid = min(with_room, key=lambda uuid: counts[uuid])
            taken.append(by_gpu[uuid].pop(0))
        else:
            missing = size - len(taken)
            begun = [uuid for uuid in with_room if counts[uuid]]
            enough = [uuid for uuid in begun or with_room if len(by_gpu[uuid]) >= missing]
            most = max(len(by_gpu[uuid]) for uuid in begun or with_room)
            roomiest = [uuid for uuid in begun or with_room if len(by_gpu[uuid]) == most]
            (uuid,) = _best_gpus(gpus, enough or roomiest, [], 1, packing)
            taken += by_gpu[uuid][:missing]
            by_gpu[uuid] = by_gpu[uuid][missing:]
    spread = len({parse_device_id(share).uuid for share in taken})
    reason = f"of {spread} GPUs that belong together, {packing}" if spread > 1 else f"of one GPU, {packing}"
    return DeviceChoice(tuple(taken), reason, as_wished=not distinct or spread == size)


def choose_memory(
    gpus: SharedGpus, available: Sequence[str], must_include: Sequence[str], size: int
) -> DeviceChoice:
    """Return `size` units of memory, all of one GPU: the one on which least is left over (best fit).

    Sound GPUs go before degraded ones; of equal ones that with most in use, then the one that later requests
    miss least. If no GPU has so much, the units come from as few GPUs as can be, and `as_wished` is False.

    Raises:
        NoSuchDevicesError: fewer than `size` are there, more must be included, or one is of no GPU here.

    """
    by_gpu = _by_gpu(gpus, available, must_include, size)
    taken = list(dict.fromkeys(must_include))
    begun = dict.fromkeys(parse_device_id(unit).uuid for unit in taken)
    missing = size - len(taken)
    enough = [uuid for uuid in begun if len(by_gpu[uuid]) >= missing]
    if not begun:
        enough = [uuid for uuid in by_gpu if len(by_gpu[uuid]) >= missing]
    if enough and len(begun) <= 1:
        fit = min(
            (gpus.degraded(uuid), len(by_gpu[uuid]) - missing, -gpus.in_use.get(uuid, 0)) for uuid in enough
        )
        equal = [
            uuid
            for uuid in enough
            if (gpus.degraded(uuid), len(by_gpu[uuid]) - missing, -gpus.in_use.get(uuid, 0)) == fit
        ]
        (uuid,) = _best_gpus(gpus, equal, [], 1, Packing.PACK)
        left = len(by_gpu[uuid]) - missing
        return DeviceChoice((*taken, *by_gpu[uuid][:missing]), f"on one GPU, {left} units of it left")
    fullest_first = sorted(by_gpu, key=lambda uuid: (uuid not in begun, -len(by_gpu[uuid])))
    for uuid in fullest_first:
        taken += by_gpu[uuid][: size - len(taken)]
    return DeviceChoice(tuple(taken), "no GPU has so many units free: several", as_wished=False)


def _best_gpus(
    gpus: SharedGpus, candidates: Sequence[str], begun: Sequence[str], size: int, packing: Packing
) -> list[str]:
    """Return the best `size` of the GPUs `candidates` to go with those of `begun`."""
    if not size:
        return []
    place_of = {gpu.uuid: place for place, gpu in enumerate(gpus.machine.gpus)}
    pool = list(candidates)
    must = list(begun)
    tenants = tuple(gpus.in_use.get(gpu.uuid, 0) for gpu in gpus.machine.gpus)
    if packing is Packing.PACK:
        used = [uuid for uuid in pool if gpus.in_use.get(uuid, 0) and not gpus.degraded(uuid)]
        if len(used) >= size:
            pool = used
        else:
            must += used
        most = max(tenants, default=0)
        tenants = tuple(most - count for count in tenants)
    known = gpus.circumstances
    circumstances = Circumstances(tenants, known.headroom_us, known.degraded, known.mix)
    choice = best_gpu_set(
        gpus.graph,
        [place_of[uuid] for uuid in pool],
        len(begun) + size,
        [place_of[uuid] for uuid in must],
        circumstances,
    )
    chosen = [gpus.machine.gpus[place].uuid for place in choice.gpus]
    return [uuid for uuid in chosen if uuid not in begun]


def _by_gpu(
    gpus: SharedGpus, available: Sequence[str], must_include: Sequence[str], size: int
) -> dict[str, list[str]]:
    """Return the ids that are available and need not be included, by UUID of the GPU, in order of number."""
    here = {gpu.uuid: place for place, gpu in enumerate(gpus.machine.gpus)}
    offered = {each: parse_device_id(each) for each in (*must_include, *available)}
    if unknown := [each for each, parts in offered.items() if parts.uuid not in here]:
        raise NoSuchDevicesError(f"not of this machine: {', '.join(unknown)}")
    _check_number(offered, must_include, size)
    musts = set(must_include)
    found: dict[str, list[str]] = {offered[each].uuid: [] for each in must_include}
    in_order = sorted((here[parts.uuid], parts.number, each) for each, parts in offered.items())
    for place, _, each in in_order:
        mine = found.setdefault(gpus.machine.gpus[place].uuid, [])
        if each not in musts:
            mine.append(each)
    return found


def _check_number(offered: Collection[str], must_include: Sequence[str], size: int) -> None:
    if not len(set(must_include)) <= size <= len(offered):
        raise NoSuchDevicesError(
            f"{size} asked, {len(offered)} available, {len(set(must_include))} must be included"
        )
