"""Where would the members of a gang go, if all were placed at once? Pure.

Members are equal, and are placed one after the other by the ranking and the choice of devices by which single
pods are placed, each seeing what those before it took. Nodes that no score tells apart are scored once, and
what a member takes changes one node alone, so nothing else is looked at again.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

from mcp2026.api.gpu_assignment import GpuAssignment
from mcp2026.api.gpu_devices import DeviceKind
from mcp2026.scheduler_extender.choosing import Key, assignment_for, best_key, choose_parts
from mcp2026.scheduler_extender.cluster_events import ObservedPod
from mcp2026.scheduler_extender.parts_placement import Parts
from mcp2026.scheduler_extender.preferences import Preferences
from mcp2026.scheduler_extender.request import Demand
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from mcp2026.scheduler_extender.snapshot import ClusterSnapshot, NodeGpus

SECONDS = 0.004
"""For which a plan is made in one go, while others wait. Most gangs take two or three of these."""
PORTION = 16
"""Places that are held in one go: about 1 ms."""


@dataclass(frozen=True, slots=True)
class Place:
    """Exact devices on a node for one member."""

    node: str
    assignment: GpuAssignment


@dataclass(frozen=True, slots=True)
class Planned:
    """A place for each member; or none, how many were `found`, and the `most` if every other pod went."""

    places: tuple[Place, ...] = ()
    found: int = 0
    most: int = 0

    def portions(self) -> Iterator[tuple[Place, ...]]:
        """Yield the places, some at a time, those on one node together."""
        by_node: dict[str, list[Place]] = {}
        for place in self.places:
            by_node.setdefault(place.node, []).append(place)
        portion: list[Place] = []
        for here in by_node.values():
            portion += here
            if len(portion) >= PORTION:
                yield tuple(portion)
                portion = []
        if portion:
            yield tuple(portion)


@dataclass(frozen=True, slots=True)
class _Class:
    """Nodes that no score tells apart: the GPUs of the first, and where in the order offered they are."""

    gpus: NodeGpus
    places: list[int]
    crowd: int
    """How many pods of the other kind of QoS each has."""


class GangPlan:
    """The plan for `count` pods like `pod` on the nodes named, made a little at a time.

    Of nodes that are equally good, that which was named first is taken.
    """

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        node_names: tuple[str, ...],
        pod: ObservedPod,
        count: int,
        memo: ScoreMemo,
        preferences: Preferences,
    ) -> None:
        self._snapshot = snapshot
        self._names = node_names
        self._demands = pod.demands
        self._count = count
        self._memo = memo
        self._preferences = preferences
        self._planned: Planned | None = None
        self._steps = self._plan()

    def advance(self, clock: Callable[[], float], seconds: float = SECONDS) -> Planned | None:
        """Go on for so many seconds of `clock`; return the plan once it is made."""
        end = clock() + seconds
        for _ in self._steps:
            if clock() >= end:
                break
        return self._planned

    def _plan(self) -> Iterator[None]:
        """Make the plan, in steps of which each looks at one class of nodes or places one member."""
        classes = self._classes()
        yield
        room = self._room_of_whole_gpus(classes)
        if room is not None and room < self._count:
            self._planned = self._too_few(room)
            return
        # The best devices first; of equally good ones those of the node that was named first.
        best: list[tuple[Key, int, NodeGpus | None, Iterator[int], int]] = []
        for each in classes:
            places = iter(each.places)
            best.append((self._worth(each.gpus, each.crowd), next(places), None, places, each.crowd))
            yield
        heapify(best)
        found: list[Place] = []
        while best and len(found) < self._count:
            worth, place, left, others, crowd = heappop(best)
            if (other := next(others, None)) is not None:
                heappush(best, (worth, other, None, others, crowd))
            gpus = self._gpus(place) if left is None else left
            assignment = assignment_for(gpus, self._demands, self._memo, self._preferences)
            found.append(Place(self._names[place], assignment))
            left = without(gpus, self._demands, assignment, self._preferences)
            if self._has_room(left):
                heappush(best, (self._worth(left, crowd), place, left, iter(()), crowd))
            yield
        all_found = len(found) == self._count
        self._planned = Planned(tuple(found), len(found)) if all_found else self._too_few(len(found))

    def _classes(self) -> list[_Class]:
        """Return the classes of nodes that have room for a member."""
        crowds = self._preferences.crowds(self._snapshot)
        places: dict[str | None, list[int]] = {}
        for place, its in enumerate(map((crowds.classes or self._snapshot.states).get, self._names)):
            places.setdefault(its, []).append(place)
        found = []
        for each in places.values():
            name = self._names[each[0]]
            node = self._snapshot.nodes.get(name)
            if node is not None and node.gpus is not None and self._has_room(node.gpus):
                found.append(_Class(node.gpus, each, crowds.counts.get(name, 0)))
        return found

    def _room_of_whole_gpus(self, classes: list[_Class]) -> int | None:
        """Return how many members find room: every order finds as many. None where GPUs are sold in parts."""
        if any(demand.kind is not DeviceKind.GPU for demand in self._demands):
            return None
        return sum(
            len(each.places) * min(each.gpus.available // demand.units for demand in self._demands)
            for each in classes
        )

    def _too_few(self, found: int) -> Planned:
        return Planned(found=found, most=most_members(self._snapshot, self._names, self._demands))

    def _gpus(self, place: int) -> NodeGpus:
        gpus = self._snapshot.nodes[self._names[place]].gpus
        assert gpus is not None  # of a class that has room
        return gpus

    def _has_room(self, gpus: NodeGpus) -> bool:
        return all(gpus.fits(demand) for demand in self._demands)

    def _worth(self, gpus: NodeGpus, crowd: int) -> Key:
        """Return how good the node is, by the order in which single pods' nodes are: the less, the better."""
        devices = best_key(gpus, self._demands, self._memo, self._preferences)
        fullness = self._preferences.fullness(gpus, self._demands)
        return (*(-value for value in devices), crowd, -fullness)


def plan_gang(
    snapshot: ClusterSnapshot,
    node_names: tuple[str, ...],
    pod: ObservedPod,
    count: int,
    memo: ScoreMemo,
    preferences: Preferences,
) -> Planned:
    """Return the places of `count` pods like `pod` on the nodes named, or none if there are too few."""
    plan = GangPlan(snapshot, node_names, pod, count, memo, preferences)
    while (planned := plan.advance(lambda: 0.0)) is None:
        pass
    return planned


def most_members(snapshot: ClusterSnapshot, node_names: tuple[str, ...], demands: tuple[Demand, ...]) -> int:
    """Return how many pods with `demands` the nodes named could hold at most, if every pod went."""
    return sum(
        min(_most(gpus, demand) for demand in demands)
        for name in node_names
        if (node := snapshot.nodes.get(name)) is not None and (gpus := node.gpus) is not None
    )


def _most(gpus: NodeGpus, demand: Demand) -> int:
    if demand.kind is DeviceKind.GPU:
        return gpus.healthy // demand.units
    healthy = (part for part in gpus.parts.get(demand.resource, ()) if part.position not in gpus.unhealthy)
    return sum(part.total for part in healthy) // demand.units


def without(
    gpus: NodeGpus, demands: tuple[Demand, ...], assignment: GpuAssignment, preferences: Preferences
) -> NodeGpus:
    """Return `gpus` as they are once a pod with `demands` has what `assignment`, chosen for it, names."""
    held = set(gpus.held)
    parts = dict(gpus.parts)
    tenants = gpus.tenants
    for demand in demands:
        devices = {device for given in assignment.values() for device in given.get(demand.resource, ())}
        if demand.kind is DeviceKind.GPU:
            held |= {position for position, uuid in enumerate(gpus.uuids) if uuid in devices}
        else:
            units = choose_parts(gpus, demand, preferences).units
            tenants = tuple(
                preferences.with_this_pod(each) if position in units else each
                for position, each in enumerate(tenants)
            )
            parts[demand.resource] = tuple(
                _less(part, units, devices) for part in gpus.parts[demand.resource]
            )
    return replace(gpus, held=frozenset(held), parts=parts, tenants=tenants)


def _less(part: Parts, units: Mapping[int, int], devices: set[str]) -> Parts:
    return replace(
        part,
        free=part.free - units.get(part.position, 0),
        devices=tuple(device for device in part.devices if device not in devices),
    )
