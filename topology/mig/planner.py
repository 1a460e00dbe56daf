"""How does a GPU come from the instances that it has to those that it shall have?

Instances in use stay where they are. Of the others as many as possible stay; what is wanted beside them is
made where it leaves most room for later requests.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from mcp2026.topology.errors import InstancesInTheWayError, LayoutDoesNotFitError, UnknownMigProfileError
from mcp2026.topology.mig.capacity import (
    MEDIA_EXTENSIONS,
    Occupancy,
    capacity,
    compute_slices,
    starts_left,
)
from mcp2026.topology.mig.geometry import MigInstance, MigProfile


@dataclass(frozen=True, slots=True)
class Creation:
    """An instance of `profile` to be made at the memory slice `start`."""

    profile: MigProfile
    start: int

    def __str__(self) -> str:
        return f"{self.profile.name} at {self.start}"


@dataclass(frozen=True, slots=True)
class LayoutPlan:
    """First all of `destroy` go, then all of `create` are made, in this order. `keep` stays untouched."""

    destroy: tuple[MigInstance, ...]
    create: tuple[Creation, ...]
    keep: tuple[MigInstance, ...]

    @property
    def changes(self) -> int:
        """How many instances are destroyed or created."""
        return len(self.destroy) + len(self.create)


def plan_layout(
    profiles: Sequence[MigProfile],
    present: Sequence[MigInstance],
    in_use: Collection[str],
    wanted: Sequence[str],
    mix: Mapping[str, int] | None = None,
) -> LayoutPlan:
    """Return the shortest way from `present` to a GPU that has exactly the profiles `wanted`.

    `profiles` are all that the GPU has, `in_use` the UUIDs of instances that must not be touched, `mix` as
    for `capacity`.

    Raises:
        UnknownMigProfileError: the GPU has no such profile.
        LayoutDoesNotFitError: it would not fit on an empty GPU either.
        InstancesInTheWayError: it does not fit around instances in use, which are named.

    """
    by_name = {profile.name: profile for profile in profiles}
    for name in (*wanted, *(instance.profile for instance in present)):
        if name not in by_name:
            raise UnknownMigProfileError(name, tuple(by_name))
    _check_totals(profiles, wanted, by_name)
    held = [instance for instance in present if instance.uuid in in_use]
    movable = [instance for instance in present if instance.uuid not in in_use]
    by_start = sorted(held, key=lambda instance: instance.start)
    for count in range(len(held) + 1):
        for moved in combinations(by_start, count):
            staying = [instance for instance in held if instance not in moved]
            plan = _shortest(profiles, staying, [*movable, *moved], wanted, by_name, mix)
            if plan is not None and not moved:
                return plan
            if plan is not None:
                raise InstancesInTheWayError(tuple(_described(instance) for instance in moved))
    raise LayoutDoesNotFitError(f"{', '.join(wanted)}: the places that the profiles can take overlap")


def _check_totals(
    profiles: Sequence[MigProfile], wanted: Sequence[str], by_name: Mapping[str, MigProfile]
) -> None:
    for name, count in Counter(wanted).items():
        if count > by_name[name].most:
            raise LayoutDoesNotFitError(f"{count} of {name}; allowed: at most {by_name[name].most}")
    media = [name for name in wanted if MEDIA_EXTENSIONS in name]
    if len(media) > 1:
        raise LayoutDoesNotFitError(f"{', '.join(media)}; allowed: one with media extensions")
    compute = sum(by_name[name].compute_slices for name in wanted)
    if compute > compute_slices(profiles):
        raise LayoutDoesNotFitError(
            f"{', '.join(wanted)}: {compute} compute slices; allowed: at most {compute_slices(profiles)}"
        )
    memory = sum(by_name[name].size for name in wanted)
    slices = max(profile.size for profile in profiles)
    if memory > slices:
        raise LayoutDoesNotFitError(f"{', '.join(wanted)}: {memory} memory slices; allowed: at most {slices}")


def _beyond(held: Sequence[MigInstance], wanted: Sequence[str]) -> list[MigInstance]:
    left = Counter(wanted)
    beyond = []
    for instance in held:
        if left[instance.profile]:
            left[instance.profile] -= 1
        else:
            beyond.append(instance)
    return beyond


def _described(instance: MigInstance) -> str:
    return f"{instance.profile} at {instance.start} ({instance.uuid})"


def _shortest(
    profiles: Sequence[MigProfile],
    held: Sequence[MigInstance],
    movable: Sequence[MigInstance],
    wanted: Sequence[str],
    by_name: Mapping[str, MigProfile],
    mix: Mapping[str, int] | None,
) -> LayoutPlan | None:
    """Try to keep all movable instances, then all but one, and so on; of equals the roomiest wins."""
    for count in range(len(movable), -1, -1):
        best: tuple[int, tuple[int, ...], LayoutPlan] | None = None
        for kept in combinations(movable, count):
            stays = [*held, *kept]
            if _beyond(stays, wanted):
                continue
            taken = Occupancy(
                sum(instance.slices for instance in stays),
                sum(by_name[instance.profile].compute_slices for instance in stays),
                tuple(sorted(instance.profile for instance in stays)),
            )
            missing = Counter(wanted) - Counter(taken.profiles)
            ordered = sorted(
                (by_name[name] for name in missing.elements()),
                key=lambda profile: (-profile.size, profile.name),
            )
            for creations, occupancy in _arrangements(profiles, ordered, taken):
                starts = tuple(creation.start for creation in creations)
                left = capacity(profiles, occupancy, mix)
                if best is None or (left, starts) > best[:2]:
                    gone = tuple(instance for instance in movable if instance not in kept)
                    best = left, starts, LayoutPlan(gone, creations, tuple(stays))
        if best is not None:
            return best[2]
    return None


def _arrangements(
    profiles: Sequence[MigProfile], missing: Sequence[MigProfile], taken: Occupancy, not_before: int = 0
) -> Iterator[tuple[tuple[Creation, ...], Occupancy]]:
    """Yield all ways to place `missing`; instances of one profile are placed from low to high."""
    if not missing:
        yield (), taken
        return
    profile, *rest = missing
    for start in starts_left(profiles, profile, taken):
        if start < not_before:
            continue
        same_follows = bool(rest) and rest[0].name == profile.name
        further = _arrangements(
            profiles, rest, taken.with_instance(profile, start), start if same_follows else 0
        )
        for creations, occupancy in further:
            yield (Creation(profile, start), *creations), occupancy
