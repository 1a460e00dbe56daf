"""The best set of k GPUs: which sets are worth looking at, and which of them wins.

Of twins (GPUs that can be exchanged without changing anything) only how many are taken matters. So each set
is represented by one that takes the first of each class, and a machine has a list of such sets for each
size, best links first. A request walks down to the first sets that fit what is free; lower bands choose
among those whose links are equal.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from mcp2026.topology.affinity import AffinityGraph
from mcp2026.topology.bands import Choice, Circumstances, GraphBands, bands_of, score_of
from mcp2026.topology.bitmasks import mask_of, positions_of
from mcp2026.topology.local_search import improved_set

MOST_SETS = 20_000
"""Up to so many different sets the answer is exact. 16 GPUs have at most 12,870 of one size."""

_KEPT_LISTS = 16


@dataclass(frozen=True, slots=True)
class Request:
    """`size` GPUs out of the set `free`, with all of the set `required`, which `free` includes."""

    free: int
    required: int
    size: int


@dataclass(frozen=True, slots=True)
class SetList:
    """Sets of one size, by (weakest link, sum of links), descending, and these two in GB/s."""

    sets: tuple[int, ...]
    links: tuple[tuple[int, int], ...]


def best_choice(graph: AffinityGraph, request: Request, circumstances: Circumstances) -> Choice:
    """Return the best set; `request` is one that can be met."""
    bands = bands_of(graph)
    allowed, required = _restricted(bands, request, circumstances)
    classes = _preferred_order(bands, allowed, required, circumstances)
    missing = request.size - required.bit_count()
    exact = True
    if not missing:
        members = required
    elif (listed := _set_list(bands, request.size)) is not None:
        members = _best_of_list(bands, listed, classes, request, required, circumstances)
    elif count_sets([len(twins) for twins in classes], request.size) <= MOST_SETS:
        present = [twins[: len(mine)] for twins, mine in zip(bands.twins, classes, strict=True)]
        listed = _list_sets(bands, present, request.size)
        members = _best_of_list(bands, listed, classes, request, required, circumstances)
    else:
        members = improved_set(bands, request.free, allowed, required, request.size, circumstances)
        exact = False
    return Choice(tuple(positions_of(members)), score_of(bands, members, request.free, circumstances), exact)


def prepare(graph: AffinityGraph, sizes: Iterable[int]) -> None:
    """List the sets of these sizes now, so that the first request takes no longer than later ones."""
    for size in sizes:
        if 0 < size <= len(graph):
            _set_list(bands_of(graph), size)


def _restricted(bands: GraphBands, request: Request, circumstances: Circumstances) -> tuple[int, int]:
    """Return what may and what must be taken so that the two highest bands are as good as can be."""
    allowed, required = request.free, request.required
    if circumstances.headroom_us:
        shortfalls = circumstances.shortfalls(len(bands.graph))
        missing = request.size - required.bit_count()
        others = sorted((shortfalls[place] for place in positions_of(allowed & ~required)), reverse=True)
        unavoidable = [shortfalls[place] for place in positions_of(required)] + others[:missing]
        worst = min(unavoidable, default=0)
        enough = mask_of(place for place in positions_of(allowed) if shortfalls[place] >= worst)
        allowed = required | enough
    degraded = bands.degraded | mask_of(circumstances.degraded)
    sound = allowed & ~degraded
    if (sound | required).bit_count() >= request.size:
        allowed = sound | required
    else:
        required |= sound
    return allowed, required


def _preferred_order(
    bands: GraphBands, allowed: int, required: int, circumstances: Circumstances
) -> list[list[int]]:
    """Return the allowed GPUs of each class in the order in which they are taken."""
    neighbours = circumstances.neighbours(len(bands.graph))
    return [
        sorted(
            (place for place in twins if allowed >> place & 1),
            key=lambda place: (not required >> place & 1, neighbours[place], place),
        )
        for twins in bands.twins
    ]


def _best_of_list(
    bands: GraphBands,
    listed: SetList,
    classes: Sequence[Sequence[int]],
    request: Request,
    required: int,
    circumstances: Circumstances,
) -> int:
    """Return the best set of `listed` that the members of `classes` can make, as a set of these members."""
    fitting = musts = 0
    for twins, mine in zip(bands.twins, classes, strict=True):
        fitting |= mask_of(twins[: len(mine)])
        musts |= mask_of(twins[: sum(required >> place & 1 for place in mine)])
    blocked = ~fitting
    sets, links = listed.sets, listed.links
    first = next(i for i, members in enumerate(sets) if not members & blocked and members & musts == musts)
    equals = [sets[first]]
    for place in range(first + 1, len(sets)):
        if links[place] != links[first]:
            break
        if not sets[place] & blocked and sets[place] & musts == musts:
            equals.append(sets[place])
    taken = [_taken(bands, members, classes) for members in equals]
    if len(taken) == 1:
        return taken[0]
    tenants = circumstances.tenants
    capacity = bands.capacity(circumstances.mix)
    lower_bands: tuple[Callable[[int], int], ...] = (
        lambda members: -sum(tenants[place] for place in positions_of(members)) if tenants else 0,
        lambda members: -bands.numa_nodes(members),
        lambda members: capacity.of(request.free & ~members),
        lambda members: -bands.split_nvlink(members, request.free & ~members),
    )
    for band in lower_bands:
        values = [band(members) for members in taken]
        best = max(values)
        taken = [members for members, value in zip(taken, values, strict=True) if value == best]
        if len(taken) == 1:
            return taken[0]
    return min(taken, key=lambda members: tuple(positions_of(members)))


def _taken(bands: GraphBands, members: int, classes: Sequence[Sequence[int]]) -> int:
    """Return the GPUs that `members`, the first of each class, stand for."""
    taken = 0
    for twins, mine in zip(bands.twins, classes, strict=True):
        count = (members & mask_of(twins)).bit_count()
        taken |= mask_of(mine[:count])
    return taken


def count_sets(class_sizes: Sequence[int], size: int) -> int:
    """Return how many sets of `size` differ, if each class has so many twins."""
    ways = [1] + [0] * size
    for twins in class_sizes:
        ways = [sum(ways[max(0, total - twins) : total + 1]) for total in range(size + 1)]
    return ways[size]


def _set_list(bands: GraphBands, size: int) -> SetList | None:
    """Return the list of a whole machine, made once; None if it would be too long."""
    if count_sets([len(twins) for twins in bands.twins], size) > MOST_SETS:
        return None
    return _machine_sets(bands.graph, size)


@lru_cache(maxsize=_KEPT_LISTS)
def _machine_sets(graph: AffinityGraph, size: int) -> SetList:
    bands = bands_of(graph)
    return _list_sets(bands, bands.twins, size)


def _list_sets(bands: GraphBands, classes: Sequence[Sequence[int]], size: int) -> SetList:
    """List the sets of `size` that take the first of each class."""
    bandwidth = bands.graph.bandwidth
    places = [place for twins in classes for place in twins]
    rest = len(places)
    follows = [0] * rest
    """How many places remain in the class after this one."""
    start = 0
    for twins in classes:
        for offset in range(len(twins)):
            follows[start + offset] = len(twins) - offset
        start += len(twins)
    by_links: dict[tuple[int, int], list[int]] = {}

    def extend(index: int, members: list[int], mask: int, weakest: int, total: int) -> None:
        missing = size - len(members)
        if not missing:
            by_links.setdefault((weakest if size > 1 else 0, total), []).append(mask)
            return
        while rest - index >= missing:
            place = places[index]
            row = bandwidth[place]
            gains = [row[member] for member in members]
            low = min(gains) if gains else weakest
            members.append(place)
            extend(
                index + 1,
                members,
                mask | 1 << place,
                min(weakest, low),
                total + sum(gains),
            )
            members.pop()
            index += follows[index]

    extend(0, [], 0, 1 << 62, 0)
    best_first = sorted(by_links, reverse=True)
    sets = tuple(members for links in best_first for members in by_links[links])
    return SetList(sets, tuple(links for links in best_first for _ in by_links[links]))
