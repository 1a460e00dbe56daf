"""Where do the instances of a wanted MIG layout go? Pure; placements are in memory slices."""

from collections import Counter
from collections.abc import Sequence, Set
from itertools import combinations

from mcp2026.device_plugin.sharing.steps import ImpossibleSharingError, LayoutChange
from mcp2026.topology.mig.geometry import COMPUTE_SLICES, MigInstance, MigProfile


def place_layout(
    profiles: Sequence[MigProfile], instances: Sequence[MigInstance], held: Set[str], wanted: Sequence[str]
) -> LayoutChange:
    """Return how `instances` become the layout `wanted` (names of profiles), with as few removed as can be.

    Those whose UUIDs are in `held` are removed only when the layout has no place for them.

    Raises:
        ImpossibleSharingError: the GPU lacks a profile, or the layout fits in no way.

    """
    known = {profile.name: profile for profile in profiles}
    if missing := sorted(set(wanted) - known.keys()):
        raise ImpossibleSharingError(
            f"this GPU has no MIG profile {', '.join(missing)}: it has {', '.join(sorted(known))}"
        )
    for name, number in Counter(wanted).items():
        if number > known[name].most:
            raise ImpossibleSharingError(f"{number} of {name}: this GPU holds at most {known[name].most}")
    for kept in _by_preference(instances, held):
        rest = Counter(wanted)
        rest.subtract(instance.profile for instance in kept)
        if min(rest.values(), default=0) < 0:
            continue
        missing_profiles = sorted(
            (known[name] for name in rest.elements()), key=lambda profile: (-profile.size, profile.name)
        )
        create = _placed(missing_profiles, _slices(kept), _compute(kept, known))
        if create is not None:
            gone = tuple(instance for instance in instances if instance not in kept)
            return LayoutChange(destroy=gone, create=create)
    raise ImpossibleSharingError(f"{', '.join(wanted)} do not fit together on this GPU")


def _by_preference(instances: Sequence[MigInstance], held: Set[str]) -> list[tuple[MigInstance, ...]]:
    """Return all sets of instances that could stay: those with all held ones first, large before small."""
    sets = [chosen for size in range(len(instances) + 1) for chosen in combinations(instances, size)]
    return sorted(sets, key=lambda chosen: (-sum(instance.uuid in held for instance in chosen), -len(chosen)))


def _placed(
    profiles: Sequence[MigProfile], taken: int, compute: int
) -> tuple[tuple[MigProfile, int], ...] | None:
    if not profiles:
        return ()
    first, *rest = profiles
    if compute + first.compute_slices > COMPUTE_SLICES:
        return None
    for start in sorted(
        first.starts, reverse=True
    ):  # small ones from the high end keep the large places free
        slices = ((1 << first.size) - 1) << start
        if not taken & slices:
            others = _placed(rest, taken | slices, compute + first.compute_slices)
            if others is not None:
                return ((first, start), *others)
    return None


def _slices(instances: Sequence[MigInstance]) -> int:
    taken = 0
    for instance in instances:
        taken |= instance.slices
    return taken


def _compute(instances: Sequence[MigInstance], known: dict[str, MigProfile]) -> int:
    return sum(known[instance.profile].compute_slices for instance in instances if instance.profile in known)
