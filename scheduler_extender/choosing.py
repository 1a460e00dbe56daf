"""Which devices of a node a pod should get: the choice by which the node is ranked and reserved. Pure.

Pods that are starting and that nothing was reserved for get theirs first. The node's device plugin will
choose for them with this same scorer, so what it will take is foreseen with it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from mcp2026.api.gpu_devices import DeviceId, DeviceKind
from mcp2026.scheduler_extender.memory_placement import place_memory
from mcp2026.scheduler_extender.request import Demand
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from mcp2026.scheduler_extender.snapshot import NodeGpus, Parts

Key = tuple[int, ...]
"""Compares choices for one demand: the greater, the better."""


@dataclass(frozen=True, slots=True)
class PartsChoice:
    """How many parts to take of the GPU at each position, and the terms by which choices compare."""

    units: Mapping[int, int]
    terms: tuple[tuple[str, int], ...]

    @property
    def key(self) -> Key:
        """The values of the terms."""
        return tuple(value for _, value in self.terms)


def best_key(gpus: NodeGpus, demands: tuple[Demand, ...], memo: ScoreMemo) -> Key:
    """Return how good the best devices for `demands` are; the node must fit all of them."""
    key: Key = ()
    for demand in demands:
        if demand.kind is DeviceKind.GPU:
            key += memo.best(gpus, unpromised(gpus, memo), demand.units).key
        else:
            key += choose_parts(gpus, demand).key
    return key


def unpromised(gpus: NodeGpus, memo: ScoreMemo) -> tuple[int, ...]:
    """Return the free GPUs that no starting pod will take."""
    free = gpus.free
    for promise in gpus.promised:
        if promise > len(free):
            return ()
        taken = memo.best(gpus, free, promise).gpus
        free = tuple(gpu for gpu in free if gpu not in taken)
    return free


def choose_parts(gpus: NodeGpus, demand: Demand) -> PartsChoice:
    """Return what to take for `demand` of GPUs that are sold in parts; the node must fit it.

    Memory: each container on the GPU that has least left afterwards, which keeps room for large requests.
    Shares: one of each GPU as far as that goes, the fullest GPUs first, which keeps idle ones idle.
    MIG devices: the fullest GPUs first.
    """
    parts = [part for part in gpus.parts.get(demand.resource, ()) if part.free]
    if demand.kind is DeviceKind.MEMORY:
        return _memory(parts, demand)
    left = {part.position: part.free for part in parts}
    taken: dict[int, int] = {}
    fullest_first = sorted(parts, key=lambda part: (part.free, part.position))
    wanted = demand.units
    while wanted:
        before = wanted
        for part in fullest_first:
            count = min(wanted, left[part.position], 1 if demand.kind is DeviceKind.SHARE else wanted)
            if count:
                left[part.position] -= count
                taken[part.position] = taken.get(part.position, 0) + count
                wanted -= count
        if wanted == before:
            raise ValueError(f"{demand} does not fit")
    return PartsChoice(
        taken, (("parts-of-one-gpu", -max(taken.values())), ("parts-left", -sum(left.values())))
    )


def _memory(parts: list[Parts], demand: Demand) -> PartsChoice:
    left = {part.position: part.free for part in parts}
    placed = place_memory(demand, left)
    if placed is None:
        raise ValueError(f"{demand} does not fit")
    asked = dict(demand.containers) or {"": demand.units}
    taken: dict[int, int] = {}
    for container, position in placed.items():
        taken[position] = taken.get(position, 0) + asked[container]
    rest = sum(left[position] - units for position, units in taken.items())
    return PartsChoice(taken, (("memory-left-gib", -rest),))


def assignment_for(
    gpus: NodeGpus, demands: tuple[Demand, ...], memo: ScoreMemo
) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return the exact devices that each container of a pod with `demands` is to get here.

    The set for the whole pod is chosen first, as it was scored; each container, the greatest first, then
    gets the best part of it.

    Raises:
        ValueError: the node does not fit the demands.

    """
    assignment: dict[str, dict[str, tuple[str, ...]]] = {}
    for demand in demands:
        for container, devices in _devices_for(gpus, demand, memo).items():
            assignment.setdefault(container, {})[demand.resource] = devices
    return assignment


def _devices_for(gpus: NodeGpus, demand: Demand, memo: ScoreMemo) -> dict[str, tuple[str, ...]]:
    greatest_first = sorted(demand.containers, key=lambda asked: -asked[1])
    if demand.kind is DeviceKind.MEMORY:
        free = {part.position: part.free for part in gpus.parts.get(demand.resource, ())}
        placed = place_memory(demand, free)
        if placed is None:
            raise ValueError(f"{demand} does not fit")
        return {
            container: _gib_of(gpus.uuids[placed[container]], units) for container, units in demand.containers
        }
    if demand.kind is DeviceKind.GPU:
        whole = unpromised(gpus, memo)
        if len(whole) < demand.units:
            raise ValueError(f"{demand} does not fit")
        pool = memo.best(gpus, whole, demand.units).gpus
        found = {}
        for container, units in greatest_first:
            mine = memo.best(gpus, pool, units).gpus
            pool = tuple(gpu for gpu in pool if gpu not in mine)
            found[container] = tuple(gpus.uuids[gpu] for gpu in mine)
        return found
    names = _named(gpus.parts.get(demand.resource, ()), choose_parts(gpus, demand).units)
    return {container: tuple(next(names) for _ in range(units)) for container, units in greatest_first}


def _gib_of(uuid: str, count: int) -> tuple[str, ...]:
    """Return the names of `count` GiB of a GPU: which of them is of no account."""
    return tuple(str(DeviceId(uuid, DeviceKind.MEMORY, number)) for number in range(count))


def _named(parts: Iterable[Parts], units: Mapping[int, int]) -> Iterator[str]:
    taken = [part.devices[: units.get(part.position, 0)] for part in parts]
    deepest = max(map(len, taken), default=0)
    return iter([devices[turn] for turn in range(deepest) for devices in taken if turn < len(devices)])
