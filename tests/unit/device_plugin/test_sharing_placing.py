"""Where MIG instances of a wanted layout go."""

from itertools import combinations_with_replacement

import pytest

from mcp2026.device_plugin.sharing.placing import place_layout
from mcp2026.device_plugin.sharing.steps import ImpossibleSharingError
from mcp2026.topology.mig.geometry import MigInstance
from tests.unit.device_plugin.sharing_world import PROFILES

BY_NAME = {profile.name: profile for profile in PROFILES}


def instance(name: str, start: int) -> MigInstance:
    return MigInstance(f"MIG-{name}-{start}", name, start, BY_NAME[name].size, start, 0)


@pytest.mark.parametrize("wanted", list(combinations_with_replacement(sorted(BY_NAME), 3)))
def test_layouts_do_not_overlap_and_hold_what_is_wanted(wanted: tuple[str, ...]) -> None:
    compute = sum(BY_NAME[name].compute_slices for name in wanted)
    try:
        change = place_layout(PROFILES, (), frozenset(), wanted)
    except ImpossibleSharingError:
        assert compute > 7 or sum(BY_NAME[name].size for name in wanted) > 8 or wanted.count("3g.40gb") > 1
        return
    assert sorted(profile.name for profile, _ in change.create) == sorted(wanted)
    taken = 0
    for profile, start in change.create:
        assert start in profile.starts
        slices = ((1 << profile.size) - 1) << start
        assert not taken & slices
        taken |= slices


def test_what_is_there_stays_as_far_as_it_fits() -> None:
    there = (instance("1g.10gb", 0), instance("3g.40gb", 4))
    change = place_layout(PROFILES, there, frozenset(), ("3g.40gb", "2g.20gb"))
    assert change.destroy == (there[0],)
    assert [(profile.name, start) for profile, start in change.create] == [("2g.20gb", 2)]


def test_a_free_instance_goes_before_one_in_use() -> None:
    there = (instance("1g.10gb", 0), instance("1g.10gb", 3))
    change = place_layout(PROFILES, there, {there[0].uuid}, ("1g.10gb",))
    assert change.destroy == (there[1],)
    assert not change.create


def test_one_in_use_goes_only_when_no_plan_spares_it() -> None:
    there = (instance("1g.10gb", 2),)
    change = place_layout(PROFILES, there, {there[0].uuid}, ("7g.80gb",))
    assert change.destroy == there
