"""Which devices of a node a pod should get: the choice by which the node is ranked and reserved. Pure.

Pods that are starting and that nothing was reserved for get theirs first. The node's device plugin will
choose for them with this same scorer, so what it will take is foreseen with it.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from mcp2026.api.gpu_devices import DeviceId, DeviceKind
from mcp2026.scheduler_extender.parts_placement import PlacedParts, place_parts
from mcp2026.scheduler_extender.preferences import NO_PREFERENCES, Preferences
from mcp2026.scheduler_extender.request import Demand
from mcp2026.scheduler_extender.score_memo import BestSet, ScoreMemo
from mcp2026.scheduler_extender.snapshot import NodeGpus

Key = tuple[int, ...]
"""Compares choices for one demand: the greater, the better."""


@dataclass(frozen=True, slots=True)
class PartsChoice:
    """What each container gets, how many that are of each GPU, and the terms by which choices compare."""

    placed: PlacedParts
    units: Mapping[int, int]
    terms: tuple[tuple[str, int], ...]

    @property
    def key(self) -> Key:
        """The values of the terms."""
        return tuple(value for _, value in self.terms)


def best_key(
    gpus: NodeGpus,
    demands: tuple[Demand, ...],
    memo: ScoreMemo,
    preferences: Preferences = NO_PREFERENCES,
) -> Key:
    """Return how good the best devices for `demands` are; the node must fit all of them."""
    key: Key = ()
    for demand in demands:
        if demand.kind is DeviceKind.GPU:
            key += best_whole(gpus, demand, memo, preferences).key
        else:
            key += choose_parts(gpus, demand, preferences).key
    return key


def best_whole(gpus: NodeGpus, demand: Demand, memo: ScoreMemo, preferences: Preferences) -> BestSet:
    """Return the best whole GPUs for `demand`; the node must fit it."""
    return memo.best(gpus, unpromised(gpus, memo), demand.units, preferences.of_whole_gpus(gpus))


def unpromised(gpus: NodeGpus, memo: ScoreMemo) -> tuple[int, ...]:
    """Return the free GPUs that no starting pod will take."""
    free = gpus.free
    for promise in gpus.promised:
        if promise > len(free):
            return ()
        taken = memo.best(gpus, free, promise).gpus
        free = tuple(gpu for gpu in free if gpu not in taken)
    return free


def choose_parts(gpus: NodeGpus, demand: Demand, preferences: Preferences = NO_PREFERENCES) -> PartsChoice:
    """Return what to take for `demand` of GPUs that are sold in parts.

    First, GPUs that keep the promise and that no pods of the other kind of QoS are on. Of nodes that fit, the
    one is better on whose GPUs less is left: large requests find room elsewhere.

    Raises:
        ValueError: the node does not fit the demand.

    """
    parts = gpus.parts.get(demand.resource, ())
    against = preferences.against_parts(gpus, demand)
    placed = place_parts(demand, parts, against)
    if placed is None:
        raise ValueError(f"{demand} does not fit")
    taken: Counter[int] = Counter()
    for units in placed.values():
        taken.update(units)
    left = sum(part.free - taken[part.position] for part in parts if taken[part.position])
    most = max(taken.values()) if demand.kind is DeviceKind.SHARE else 0
    mine = [against[position] for position in taken if position in against]
    terms = (
        ("slo-shortfall", -max((excess for excess, _ in mine), default=0)),
        ("other-qos-on-gpus", -sum(others for _, others in mine)),
        ("shares-of-one-gpu", -most),
        ("left-on-these-gpus", -left),
    )
    return PartsChoice(placed, taken, terms)


def assignment_for(
    gpus: NodeGpus,
    demands: tuple[Demand, ...],
    memo: ScoreMemo,
    preferences: Preferences = NO_PREFERENCES,
) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return the exact devices that each container of a pod with `demands` is to get here.

    The set for the whole pod is chosen first, as it was scored; each container, the greatest first, then
    gets the best part of it.

    Raises:
        ValueError: the node does not fit the demands.

    """
    assignment: dict[str, dict[str, tuple[str, ...]]] = {}
    for demand in demands:
        for container, devices in _devices_for(gpus, demand, memo, preferences).items():
            assignment.setdefault(container, {})[demand.resource] = devices
    return assignment


def _devices_for(
    gpus: NodeGpus, demand: Demand, memo: ScoreMemo, preferences: Preferences
) -> dict[str, tuple[str, ...]]:
    greatest_first = sorted(demand.containers, key=lambda asked: -asked[1])
    if demand.kind is DeviceKind.GPU:
        if len(unpromised(gpus, memo)) < demand.units:
            raise ValueError(f"{demand} does not fit")
        pool = best_whole(gpus, demand, memo, preferences).gpus
        found = {}
        for container, units in greatest_first:
            mine = memo.best(gpus, pool, units).gpus
            pool = tuple(gpu for gpu in pool if gpu not in mine)
            found[container] = tuple(gpus.uuids[gpu] for gpu in mine)
        return found
    return _names_of_parts(gpus, demand, preferences)


def _names_of_parts(gpus: NodeGpus, demand: Demand, preferences: Preferences) -> dict[str, tuple[str, ...]]:
    free = {part.position: list(part.devices) for part in gpus.parts.get(demand.resource, ())}
    found: dict[str, tuple[str, ...]] = {}
    for container, mine in choose_parts(gpus, demand, preferences).placed.items():
        names: list[str] = []
        for position, units in mine.items():
            if demand.kind is DeviceKind.MEMORY:
                names += _gib_of(gpus.uuids[position], units)
            else:
                names += free[position][:units]
                del free[position][:units]
        found[container] = tuple(names)
    return found


def _gib_of(uuid: str, count: int) -> list[str]:
    """Return the names of `count` GiB of a GPU: which of them is of no account."""
    return [str(DeviceId(uuid, DeviceKind.MEMORY, number)) for number in range(count)]
