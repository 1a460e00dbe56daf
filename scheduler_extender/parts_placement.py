"""Of which GPU does each container of a pod get its shares or GiB, and is there room for MIG devices? Pure.

Which MIG devices they are is chosen by `topology.mig.choice`, as the device plugin chooses them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from mcp2026.api.gpu_devices import DeviceKind
from mcp2026.scheduler_extender.request import Demand


@dataclass(frozen=True, slots=True)
class Parts:
    """A GPU that is sold in parts: how many it has, and how many of them are free.

    `devices` names the free ones, except for GiB of memory, which are all alike. `together`: what a container
    gets must come from one GPU (GiB, and shares through MPS: a process speaks to one daemon).
    """

    position: int
    total: int
    free: int
    devices: tuple[str, ...] = ()
    together: bool = False


Avoided = Mapping[int, tuple[int, int]]
"""By position what speaks against a GPU, the weightier first; nothing speaks against one that is left out."""
NOTHING: Avoided = {}

PlacedParts = Mapping[str, Mapping[int, int]]
"""Container → position of the GPU → units. What only an init container asks for goes by an empty name."""


def has_room(demand: Demand, parts: Iterable[Parts]) -> bool:
    """Tell whether `demand` fits into what is free of `parts`."""
    if demand.kind is DeviceKind.MIG:
        return demand.units <= sum(part.free for part in parts)
    return place_parts(demand, parts) is not None


def place_parts(demand: Demand, parts: Iterable[Parts], avoid: Avoided = NOTHING) -> PlacedParts | None:
    """Return how many shares or GiB of which GPU each container gets; None if they do not fit.

    The greatest container first. From one GPU where they must come from one: where least is left, which keeps
    room for large requests. Else one of each GPU as far as that goes, the fullest first, which keeps idle
    GPUs idle. With the few containers of a pod this finds a way if there is one, and it is how devices are
    then chosen, so what is promised can be kept.

    Before all that, GPUs go by `avoid`, the least first. Where that leaves no way, it counts nothing.
    """
    placed = _placed(demand, tuple(parts), avoid)
    return _placed(demand, tuple(parts), NOTHING) if placed is None and avoid else placed


def _placed(demand: Demand, parts: tuple[Parts, ...], avoid: Avoided) -> PlacedParts | None:
    by_position = {part.position: part for part in parts}
    left = {position: part.free for position, part in by_position.items()}
    placed: dict[str, dict[int, int]] = {}
    for container, units in sorted(demand.containers, key=lambda asked: -asked[1]) or [("", demand.units)]:
        mine = _of_one_gpu(by_position, left, units, avoid)
        if mine is None and demand.kind is not DeviceKind.MEMORY:
            apart = {position: left[position] for position, part in by_position.items() if not part.together}
            mine = _of_several(apart, units, avoid)
        if mine is None:
            return None
        for position, count in mine.items():
            left[position] -= count
        placed[container] = mine
    return placed


def _of_one_gpu(
    parts: Mapping[int, Parts], left: Mapping[int, int], units: int, avoid: Avoided
) -> dict[int, int] | None:
    enough = [position for position, part in parts.items() if part.together and left[position] >= units]
    if not enough:
        return None
    return {min(enough, key=_order(left, avoid)): units}


def _order(free: Mapping[int, int], avoid: Avoided) -> Callable[[int], tuple[tuple[int, int], int, int]]:
    return lambda position: (avoid.get(position, (0, 0)), free[position], position)


def _of_several(free: Mapping[int, int], units: int, avoid: Avoided) -> dict[int, int] | None:
    if sum(free.values()) < units:
        return None
    left = dict(free)
    taken: dict[int, int] = {}
    while units:
        for position in sorted(left, key=_order(free, avoid)):
            if units and left[position]:
                left[position] -= 1
                taken[position] = taken.get(position, 0) + 1
                units -= 1
    return taken
