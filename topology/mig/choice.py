"""Which MIG devices should a container get? The extender reserves, and the device plugin takes, by this rule.

A device that is held cannot be cut anew, so each costs what the planner could still make of its GPU. That is
least on a GPU that is broken up already.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from mcp2026.topology.errors import NoSuchDevicesError
from mcp2026.topology.mig.capacity import Occupancy, capacity
from mcp2026.topology.mig.geometry import MigInstance
from mcp2026.topology.mig.tables import GEOMETRIES, MigGeometry

_Layout = tuple[tuple[str, int], ...]
"""Instances as (profile, start)."""

_PROFILES = {geometry.kind: geometry.profiles for geometry in GEOMETRIES}
_NOTHING: Mapping[int, tuple[int, int]] = {}


@dataclass(frozen=True, slots=True)
class CutGpu:
    """A GPU in MIG mode. `geometry` is None where no table knows the GPU: then every device costs nothing."""

    instances: tuple[MigInstance, ...]
    geometry: MigGeometry | None = None
    degraded: bool = False

    def layout(self, free: Collection[str]) -> tuple[str, bool, tuple[tuple[str, int, bool], ...]]:
        """Return what tells GPUs apart while `free` has the UUIDs of the devices that are to be had."""
        instances = tuple((each.profile, each.start, each.uuid in free) for each in self.instances)
        return self.geometry.kind if self.geometry else "", self.degraded, instances


@dataclass(frozen=True, slots=True)
class MigChoice:
    """UUIDs of devices in the order in which to take them, how many that are of which GPU, and their price.

    `lost`: the capacity that the GPUs lose, in weighted memory slices (`mig.capacity.capacity`).
    """

    ids: tuple[str, ...]
    units: Mapping[int, int]
    lost: int


def choose_mig(
    gpus: Mapping[int, CutGpu],
    held: Collection[str],
    available: Sequence[str],
    must_include: Sequence[str],
    size: int,
    avoid: Mapping[int, tuple[int, int]] = _NOTHING,
) -> MigChoice:
    """Return `size` of the MIG devices `available`, with all of `must_include`, whose GPUs lose least by it.

    `gpus` are by their position in the machine, `held` has the UUIDs of all devices that are not to be had.
    One device after the other is taken from the GPU against which least speaks by `avoid`, then a sound one
    before a degraded one, then where least is lost, then where fewest others are available, then by position;
    on the GPU that which costs least, of equals the lowest.

    Raises:
        NoSuchDevicesError: fewer than `size` are there, more must be included, or one is of no GPU here.

    """
    place_of = {each.uuid: place for place, gpu in gpus.items() for each in gpu.instances}
    offered = list(dict.fromkeys([*must_include, *available]))
    if unknown := [uuid for uuid in offered if uuid not in place_of]:
        raise NoSuchDevicesError(f"not of this machine: {', '.join(unknown)}")
    if not len(set(must_include)) <= size <= len(offered):
        raise NoSuchDevicesError(
            f"{size} asked, {len(offered)} available, {len(set(must_include))} must be included"
        )
    to_be_had = set(offered)
    left = {place: _Left.of(gpu, to_be_had, held) for place, gpu in gpus.items()}
    taken: dict[str, int] = {}
    lost = 0

    def order(place: int) -> tuple[tuple[int, int], bool, int, int, int]:
        its = left[place]
        return avoid.get(place, (0, 0)), gpus[place].degraded, its.cheapest[0], len(its.free), place

    for uuid in dict.fromkeys(must_include):
        lost += left[place_of[uuid]].take(uuid)
        taken[uuid] = place_of[uuid]
    while len(taken) < size:
        place = min((place for place, its in left.items() if its.free), key=order)
        cost, uuid = left[place].cheapest
        lost += cost
        left[place].take(uuid)
        taken[uuid] = place
    units = {place: sum(mine == place for mine in taken.values()) for place in dict.fromkeys(taken.values())}
    return MigChoice(tuple(taken), units, lost)


@dataclass(slots=True)
class _Left:
    """What a GPU has left to choose from, and what of it is held, while devices are chosen."""

    kind: str
    free: list[MigInstance]
    held: list[MigInstance]

    @classmethod
    def of(cls, gpu: CutGpu, offered: Collection[str], held: Collection[str]) -> "_Left":
        return cls(
            gpu.geometry.kind if gpu.geometry else "",
            [each for each in gpu.instances if each.uuid in offered],
            [each for each in gpu.instances if each.uuid in held and each.uuid not in offered],
        )

    @property
    def cheapest(self) -> tuple[int, str]:
        """What it costs to take one more, and the UUID of that one; there must be one."""
        lost, number = _cheapest(self.kind, _layout(self.held), _layout(self.free))
        return lost, self.free[number].uuid

    def take(self, uuid: str) -> int:
        """Take `uuid` and return what it costs."""
        (mine,) = (each for each in self.free if each.uuid == uuid)
        lost, _ = _cheapest(self.kind, _layout(self.held), _layout([mine]))
        self.free.remove(mine)
        self.held.append(mine)
        return lost


def _layout(instances: Iterable[MigInstance]) -> _Layout:
    return tuple((each.profile, each.start) for each in instances)


@lru_cache(maxsize=65_536)
def _cheapest(kind: str, held: _Layout, free: _Layout) -> tuple[int, int]:
    """Return what the GPU loses by the cheapest of `free`, and its number there; of equals the lowest start.

    A cluster's GPUs are in few states, so nearly every answer is known.
    """
    before = _capacity(kind, held)
    costs = [(before - _capacity(kind, (*held, (profile, start))), start) for profile, start in free]
    cheapest = min(costs)
    return cheapest[0], costs.index(cheapest)


def _capacity(kind: str, held: _Layout) -> int:
    profiles = _PROFILES.get(kind, ())
    by_name = {profile.name: profile for profile in profiles}
    occupancy = Occupancy()
    for name, start in held:
        if name in by_name:
            occupancy = occupancy.with_instance(by_name[name], start)
    return capacity(profiles, occupancy)
