"""On which GPU does the memory go that each container of a pod asks for? One container, one GPU. Pure."""

from collections.abc import Mapping

from mcp2026.scheduler_extender.request import Demand


def place_memory(demand: Demand, free: Mapping[int, int]) -> dict[str, int] | None:
    """Return the GPU of each container by name; `free` has the GiB free on each GPU. None: they do not fit.

    The greatest first, each where least is left: large requests find room later, and with the few containers
    of a pod this finds a way if there is one. What only an init container asks for goes by an empty name.
    """
    left = dict(free)
    placed: dict[str, int] = {}
    for container, units in sorted(demand.containers, key=lambda asked: -asked[1]) or [("", demand.units)]:
        enough = [gpu for gpu, gib in left.items() if gib >= units]
        if not enough:
            return None
        chosen = min(enough, key=lambda gpu: (left[gpu], gpu))
        left[chosen] -= units
        placed[container] = chosen
    return placed
