"""Which devices of a node a pod should get: the choice by which the node is ranked and reserved. Pure.

Pods that are starting and that nothing was reserved for get theirs first. The node's device plugin will
choose for them with this same scorer, so what it will take is foreseen with it.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from mcp2026.api.gpu_devices import DeviceId, DeviceKind
from mcp2026.scheduler_extender.parts_placement import Avoided, Parts, PlacedParts, place_parts
from mcp2026.scheduler_extender.preferences import NO_PREFERENCES, Preferences
from mcp2026.scheduler_extender.request import Demand
from mcp2026.scheduler_extender.score_memo import BestSet, ScoreMemo
from mcp2026.scheduler_extender.snapshot import NodeGpus
from mcp2026.topology.mig.choice import MigChoice, choose_mig

Key = tuple[int, ...]
"""Compares choices for one demand: the greater, the better."""


@dataclass(frozen=True, slots=True)
class PartsChoice:
    """How many units of each GPU are taken, and the terms by which choices compare."""

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
            key += _key_of_parts(gpus, demand, memo, preferences)
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


def _key_of_parts(gpus: NodeGpus, demand: Demand, memo: ScoreMemo, preferences: Preferences) -> Key:
    against = tuple(sorted(preferences.against_parts(gpus, demand).items()))
    asked = gpus.state, demand.resource, demand.units, demand.containers, against
    return memo.recall(asked, lambda: choose_parts(gpus, demand, preferences).key)


def choose_parts(gpus: NodeGpus, demand: Demand, preferences: Preferences = NO_PREFERENCES) -> PartsChoice:
    """Return what to take for `demand` of GPUs that are sold in parts.

    First, GPUs that keep the promise and that no pods of the other kind of QoS are on. Of nodes that fit, the
    one is better on whose GPUs less is left: large requests find room elsewhere. MIG devices before that go
    where least is lost of what the GPUs could be cut into.

    Raises:
        ValueError: the node does not fit the demand.

    """
    parts = gpus.parts.get(demand.resource, ())
    against = preferences.against_parts(gpus, demand)
    if demand.kind is DeviceKind.MIG:
        chosen = _mig_devices(gpus, demand, against)
        taken = sum((Counter(choice.units) for choice in chosen.values()), Counter[int]())
        own = ("mig-capacity-lost", -sum(choice.lost for choice in chosen.values()))
    else:
        taken = sum(map(Counter, _placed(demand, parts, against).values()), Counter[int]())
        own = ("shares-of-one-gpu", -max(taken.values()) if demand.kind is DeviceKind.SHARE else 0)
    left = sum(part.free - taken[part.position] for part in parts if taken[part.position])
    mine = [against[position] for position in taken if position in against]
    terms = (
        ("slo-shortfall", -max((excess for excess, _ in mine), default=0)),
        ("other-qos-on-gpus", -sum(others for _, others in mine)),
        own,
        ("left-on-these-gpus", -left),
    )
    return PartsChoice(taken, terms)


def _placed(demand: Demand, parts: tuple[Parts, ...], against: Avoided) -> PlacedParts:
    placed = place_parts(demand, parts, against)
    if placed is None:
        raise ValueError(f"{demand} does not fit")
    return placed


def _mig_devices(gpus: NodeGpus, demand: Demand, against: Avoided) -> dict[str, MigChoice]:
    """Return the MIG devices of each container, chosen by the device plugin's rule, the greatest first."""
    free = [name for part in gpus.parts.get(demand.resource, ()) for name in part.devices]
    if demand.units > len(free):
        raise ValueError(f"{demand} does not fit")
    to_be_had = gpus.free_mig_devices
    held = {each.uuid for gpu in gpus.cut.values() for each in gpu.instances if each.uuid not in to_be_had}
    chosen: dict[str, MigChoice] = {}
    for container, units in _greatest_first(demand) or [("", demand.units)]:
        chosen[container] = choice = choose_mig(gpus.cut, held, free, [], units, against)
        held.update(choice.ids)
        free = [name for name in free if name not in choice.ids]
    return chosen


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
    if demand.kind is DeviceKind.GPU:
        if len(unpromised(gpus, memo)) < demand.units:
            raise ValueError(f"{demand} does not fit")
        pool = best_whole(gpus, demand, memo, preferences).gpus
        found = {}
        for container, units in _greatest_first(demand):
            mine = memo.best(gpus, pool, units).gpus
            pool = tuple(gpu for gpu in pool if gpu not in mine)
            found[container] = tuple(gpus.uuids[gpu] for gpu in mine)
        return found
    return _names_of_parts(gpus, demand, preferences)


def _names_of_parts(gpus: NodeGpus, demand: Demand, preferences: Preferences) -> dict[str, tuple[str, ...]]:
    parts = gpus.parts.get(demand.resource, ())
    against = preferences.against_parts(gpus, demand)
    if demand.kind is DeviceKind.MIG:
        return {container: choice.ids for container, choice in _mig_devices(gpus, demand, against).items()}
    free = {part.position: list(part.devices) for part in parts}
    found: dict[str, tuple[str, ...]] = {}
    for container, mine in _placed(demand, parts, against).items():
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


def _greatest_first(demand: Demand) -> list[tuple[str, int]]:
    return sorted(demand.containers, key=lambda asked: -asked[1])
