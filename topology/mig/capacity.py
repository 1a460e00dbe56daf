"""What still fits on a GPU, and what that is worth to later requests.

Memory slices are bitmasks; a GPU has at most 8, so everything is tried.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mcp2026.topology.mig.geometry import MigProfile

MEDIA_EXTENSIONS = "+me"
"""In the name of a profile with these; at most one such instance is on a GPU."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """What is taken of a GPU: memory slices as a bitmask, compute slices, and instances by profile."""

    memory: int = 0
    compute: int = 0
    profiles: tuple[str, ...] = ()

    def with_instance(self, profile: MigProfile, start: int) -> "Occupancy":
        """Return what is taken once an instance of `profile` is at memory slice `start`."""
        return Occupancy(
            self.memory | place(profile, start),
            self.compute + profile.compute_slices,
            tuple(sorted((*self.profiles, profile.name))),
        )


def place(profile: MigProfile, start: int) -> int:
    """Return the memory slices of an instance of `profile` at `start`, as a bitmask."""
    return ((1 << profile.size) - 1) << start


def compute_slices(profiles: Iterable[MigProfile]) -> int:
    """Return how many compute slices the GPU with these profiles has: those of its largest profile."""
    return max((profile.compute_slices for profile in profiles), default=0)


def starts_left(profiles: Sequence[MigProfile], profile: MigProfile, occupancy: Occupancy) -> tuple[int, ...]:
    """Return where one more instance of `profile` can be made."""
    if not _counts_allow(profiles, profile, occupancy):
        return ()
    return tuple(start for start in profile.starts if not place(profile, start) & occupancy.memory)


def room(profiles: Sequence[MigProfile], profile: MigProfile, occupancy: Occupancy) -> int:
    """Return how many more instances of `profile` alone fit."""
    if not _counts_allow(profiles, profile, occupancy):
        return 0
    places = 0
    end = 0
    for start in sorted(starts_left(profiles, profile, occupancy)):
        if start >= end:  # of intervals of one length, taking the first that is free is best
            places += 1
            end = start + profile.size
    by_compute = (compute_slices(profiles) - occupancy.compute) // profile.compute_slices
    by_count = profile.most - occupancy.profiles.count(profile.name)
    by_media = 1 if MEDIA_EXTENSIONS in profile.name else places
    return min(places, by_compute, by_count, by_media)


def _counts_allow(profiles: Sequence[MigProfile], profile: MigProfile, occupancy: Occupancy) -> bool:
    media_taken = any(MEDIA_EXTENSIONS in name for name in occupancy.profiles)
    return (
        occupancy.compute + profile.compute_slices <= compute_slices(profiles)
        and occupancy.profiles.count(profile.name) < profile.most
        and not (media_taken and MEDIA_EXTENSIONS in profile.name)
    )


def capacity(
    profiles: Sequence[MigProfile], occupancy: Occupancy, mix: Mapping[str, int] | None = None
) -> int:
    """Return what later requests can still have, in memory slices times the weight of each profile.

    `mix` gives weights of profiles by name; None: every profile alike, but for those with media extensions,
    whose places are those of their plain ones.
    """
    total = 0
    for profile in profiles:
        plain = MEDIA_EXTENSIONS not in profile.name
        weight = mix.get(profile.name, 0) if mix is not None else int(plain)
        if weight:
            total += weight * profile.size * room(profiles, profile, occupancy)
    return total
