"""Which holders of shares, GiB or MIG devices must go so that a pod gets as many as it asks for? Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mcp2026.scheduler_extender.parts_placement import Parts, has_room
from mcp2026.scheduler_extender.request import Demand
from mcp2026.scheduler_extender.victims import LOWEST_PRIORITY, Occupant


@dataclass(frozen=True, slots=True)
class PartsHolder:
    """A pod that may be evicted, and the units that it has of the GPU at each position."""

    occupant: Occupant
    units: Mapping[int, int]


def cheapest_holders(
    demand: Demand, free: Sequence[Parts], holders: Sequence[PartsHolder]
) -> tuple[Occupant, ...] | None:
    """Return who must go so that `demand` fits into what is `free` of each GPU; None where it never does.

    What must come from one GPU is freed on one: each is tried. The holders that cost least go first until
    there is room, then all that went without need come back, the most important first. This is not always
    the least number of pods, but never a more important pod than need be.
    """
    pools: list[Sequence[PartsHolder]] = [holders]
    if len(demand.containers) <= 1:
        pools += [
            [holder for holder in holders if part.position in holder.units] for part in free if part.together
        ]
    evictions = (_enough_of(demand, free, pool) for pool in pools)
    possible = [victims for victims in evictions if victims is not None]
    cheapest = min(possible, key=_cost, default=None)
    return None if cheapest is None else tuple(holder.occupant for holder in cheapest)


def _enough_of(
    demand: Demand, free: Sequence[Parts], pool: Sequence[PartsHolder]
) -> tuple[PartsHolder, ...] | None:
    victims: list[PartsHolder] = []
    for holder in (None, *sorted(pool, key=_importance)):
        if holder is not None:
            victims.append(holder)
        if _fits(demand, free, victims):
            break
    else:
        return None
    for holder in sorted(victims, key=_importance, reverse=True):
        others = [victim for victim in victims if victim is not holder]
        if _fits(demand, free, others):
            victims = others
    return tuple(victims)


def _importance(holder: PartsHolder) -> tuple[bool, int, int]:
    """Protected after unprotected, then by priority; of equals the one that gives most goes first."""
    return holder.occupant.protected, holder.occupant.priority, -sum(holder.units.values())


def _cost(victims: Sequence[PartsHolder]) -> tuple[int, ...]:
    priorities = [holder.occupant.priority for holder in victims]
    return (
        sum(holder.occupant.protected for holder in victims),
        max(priorities, default=LOWEST_PRIORITY),
        sum(priority - LOWEST_PRIORITY for priority in priorities),
        len(victims),
        sum(sum(holder.units.values()) for holder in victims),
    )


def _fits(demand: Demand, free: Sequence[Parts], victims: Iterable[PartsHolder]) -> bool:
    freed: Counter[int] = Counter()
    for holder in victims:
        freed.update(holder.units)
    room = [replace(part, free=part.free + freed[part.position]) for part in free]
    return has_room(demand, room)
