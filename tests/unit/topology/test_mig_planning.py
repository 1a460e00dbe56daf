"""MIG layouts: what fits, where it goes, and the shortest way there, beside a plain search of everything."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import product
from pathlib import Path
from random import Random

import pytest

from mcp2026.topology.errors import (
    InstancesInTheWayError,
    LayoutDoesNotFitError,
    MigPlanError,
    UnknownMigProfileError,
)
from mcp2026.topology.machine import machine_from_file
from mcp2026.topology.mig.capacity import Occupancy, capacity, room, starts_left
from mcp2026.topology.mig.geometry import MigInstance, MigProfile
from mcp2026.topology.mig.planner import plan_layout
from mcp2026.topology.mig.tables import A30, A100_40, A100_80, GEOMETRIES, H100_80, MigGeometry, geometry_of

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
Layout = frozenset[tuple[str, int]]


def profile(name: str, geometry: MigGeometry = H100_80) -> MigProfile:
    return next(profile for profile in geometry.profiles if profile.name == name)


def instance(name: str, start: int, geometry: MigGeometry = H100_80) -> MigInstance:
    kind = profile(name, geometry)
    return MigInstance(f"MIG-{name}-{start}", name, start, kind.size, start, 0, kind.memory_mib)


def occupied(*instances: tuple[str, int], geometry: MigGeometry = H100_80) -> Occupancy:
    taken = Occupancy()
    for name, start in instances:
        taken = taken.with_instance(profile(name, geometry), start)
    return taken


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=lambda geometry: geometry.kind)
def test_a_table_is_consistent(geometry: MigGeometry) -> None:
    names = [profile.name for profile in geometry.profiles]
    assert len(set(names)) == len(names)
    assert len({profile.profile_id for profile in geometry.profiles}) == len(names)
    for each in geometry.profiles:
        assert each.name.startswith(f"{each.compute_slices}g.")
        assert all(0 <= start <= geometry.memory_slices - each.size for start in each.starts)
        assert each.compute_slices <= geometry.compute_slices
        fit = room(geometry.profiles, each, Occupancy())
        assert fit == each.most, "the most that the driver tells is what the places and slices allow"


def test_placements_are_in_memory_slices_not_in_compute_widths() -> None:
    assert (profile("3g.40gb").size, profile("7g.80gb").size) == (4, 8)
    assert 3 not in starts_left(H100_80.profiles, profile("1g.10gb"), occupied(("3g.40gb", 0)))


def test_two_3g_take_all_memory_and_leave_a_compute_slice_that_nothing_can_use() -> None:
    taken = occupied(("3g.40gb", 0), ("3g.40gb", 4))
    assert taken.compute == 6
    assert all(room(H100_80.profiles, each, taken) == 0 for each in H100_80.profiles)


def test_compute_slices_run_out_before_memory_does() -> None:
    taken = occupied(("4g.40gb", 0), ("3g.40gb", 4))
    assert taken.compute == 7
    assert capacity(H100_80.profiles, taken) == 0
    sevens = occupied(*(("1g.10gb", start) for start in range(7)))
    assert room(H100_80.profiles, profile("1g.20gb"), sevens) == 0


@pytest.mark.parametrize(
    ("product_name", "memory", "kind"),
    [
        ("NVIDIA A100-SXM4-40GB", 40_960, "A100-40"),
        ("NVIDIA A100-SXM4-80GB", 81_920, "A100-80"),
        ("NVIDIA A100 80GB PCIe", 81_920, "A100-80"),
        ("NVIDIA A30", 24_576, "A30"),
        ("NVIDIA H100 80GB HBM3", 81_559, "H100-80"),
        ("NVIDIA H100 NVL", 95_830, None),
        ("NVIDIA H200", 143_771, "H200-141"),
        ("NVIDIA GH200 480GB", 97_871, "GH200-96"),
        ("NVIDIA B200", 183_359, "B200-180"),
        ("NVIDIA GB200", 189_471, None),
        ("Tesla T4", 15_360, None),
    ],
)
def test_the_table_of_a_product(product_name: str, memory: int, kind: str | None) -> None:
    found = geometry_of(product_name, memory)
    assert (found.kind if found else None) == kind


def test_each_fixture_that_can_do_mig_and_is_in_the_tables_is_found() -> None:
    found = {}
    for path in TOPOLOGIES.glob("*.yaml"):
        gpu = machine_from_file(path).gpus[0]
        geometry = geometry_of(gpu.product, gpu.memory_mib)
        if geometry:
            assert gpu.mig_capable
            found[path.stem] = geometry.kind
    assert found["hgx-h100-8gpu"] == "H100-80"
    assert found["4xa100-pcie-half-bridged"] == "A100-80"


def planned_start(
    taken: Sequence[tuple[str, int]], name: str, mix: Mapping[str, int] | None = None
) -> int | None:
    """Where one more goes beside those that are taken, all in use; None: it fits nowhere."""
    held = [instance(*each) for each in taken]
    wanted = [*(each.profile for each in held), name]
    try:
        plan = plan_layout(H100_80.profiles, held, [each.uuid for each in held], wanted, mix)
    except MigPlanError:
        return None
    (made,) = plan.create
    return made.start


@pytest.mark.parametrize(
    ("taken", "name", "start"),
    [
        pytest.param((), "1g.10gb", 6, id="the first small one goes to the end"),
        pytest.param((("1g.10gb", 6),), "1g.10gb", 5, id="the second beside it"),
        pytest.param((), "2g.20gb", 4, id="two slices where 4g stays possible"),
        pytest.param((), "3g.40gb", 4, id="3g where 4g stays possible"),
        pytest.param((("1g.10gb", 0),), "1g.10gb", 1, id="beside one at 0, not into the free half"),
        pytest.param((("1g.10gb", 0), ("1g.10gb", 1)), "1g.10gb", 3, id="a third one keeps 3g possible"),
        pytest.param((("4g.40gb", 0), ("3g.40gb", 4)), "1g.10gb", None, id="no compute slice is left"),
        pytest.param((("7g.80gb", 0),), "1g.10gb", None, id="the GPU is full"),
        pytest.param((("1g.10gb+me", 6),), "1g.10gb+me", None, id="media extensions are there once"),
    ],
)
def test_where_one_instance_goes(taken: tuple[tuple[str, int], ...], name: str, start: int | None) -> None:
    assert planned_start(taken, name) == start


def test_the_mix_of_later_requests_decides() -> None:
    assert planned_start((), "1g.10gb", {"3g.40gb": 1}) == 6
    assert planned_start((), "3g.40gb", {"4g.40gb": 1}) == 4


def test_slices_one_after_the_other_keep_3g_possible() -> None:
    """Complaint: slices scattered at 0, 1 and 5 leave five memory slices and no 3g."""
    made: list[tuple[str, int]] = []
    for _ in range(3):
        start = planned_start(made, "1g.10gb")
        assert start is not None
        made.append(("1g.10gb", start))
    taken = occupied(*made)
    assert starts_left(H100_80.profiles, profile("3g.40gb"), taken)
    assert starts_left(H100_80.profiles, profile("4g.40gb"), taken)
    scattered = occupied(("1g.10gb", 0), ("1g.10gb", 1), ("1g.10gb", 5))
    assert not starts_left(H100_80.profiles, profile("3g.40gb"), scattered)


SCATTERED = tuple(instance("1g.10gb", start) for start in (0, 1, 5))


def test_scattered_slices_are_planned_so_that_3g_fits() -> None:
    plan = plan_layout(H100_80.profiles, SCATTERED, (), ["1g.10gb"] * 3 + ["3g.40gb"])
    assert [gone.start for gone in plan.destroy] == [5]
    assert [str(made) for made in plan.create] == ["3g.40gb at 4", "1g.10gb at 3"]
    assert [kept.start for kept in plan.keep] == [0, 1]
    assert plan.changes == 3


def test_only_the_slice_that_is_in_the_way_is_named() -> None:
    in_use = [each.uuid for each in SCATTERED]
    with pytest.raises(InstancesInTheWayError) as refused:
        plan_layout(H100_80.profiles, SCATTERED, in_use, ["1g.10gb"] * 3 + ["3g.40gb"])
    assert refused.value.instances == ("1g.10gb at 5 (MIG-1g.10gb-5)",)
    assert str(refused.value) == "MIG layout: in use and in the way: 1g.10gb at 5 (MIG-1g.10gb-5)"


def test_an_instance_in_use_that_the_layout_does_not_have_is_in_the_way() -> None:
    held = instance("2g.20gb", 4)
    with pytest.raises(InstancesInTheWayError, match=r"2g\.20gb at 4"):
        plan_layout(H100_80.profiles, [held], [held.uuid], ["3g.40gb"])


@pytest.mark.parametrize("starts", [range(7), range(6, -1, -1)], ids=["in order", "backwards"])
def test_of_too_many_in_use_those_are_named_whose_end_makes_room(starts: Sequence[int]) -> None:
    seven = [instance("1g.10gb", start) for start in starts]
    with pytest.raises(InstancesInTheWayError) as refused:
        plan_layout(H100_80.profiles, seven, [each.uuid for each in seven], ["1g.10gb"] * 4 + ["3g.40gb"])
    assert [named.split()[2] for named in refused.value.instances] == ["4", "5", "6"]


def test_what_is_there_already_needs_no_change() -> None:
    there = [instance("3g.40gb", 0), instance("2g.20gb", 4)]
    plan = plan_layout(H100_80.profiles, there, [there[0].uuid], ["2g.20gb", "3g.40gb"])
    assert (plan.destroy, plan.create) == ((), ())
    assert set(plan.keep) == set(there)


def test_an_empty_layout_clears_the_gpu() -> None:
    plan = plan_layout(H100_80.profiles, SCATTERED, (), [])
    assert (set(plan.destroy), plan.create) == (set(SCATTERED), ())


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        (["4g.40gb"] * 2, "2 of 4g.40gb; allowed: at most 1"),
        (["4g.40gb", "3g.40gb", "1g.10gb"], "8 compute slices; allowed: at most 7"),
        (["3g.40gb", "3g.40gb", "1g.10gb"], "9 memory slices; allowed: at most 8"),
        (["1g.20gb", "1g.20gb", "1g.20gb", "1g.20gb", "1g.10gb"], "9 memory slices"),
    ],
)
def test_a_layout_for_no_gpu_is_refused_with_the_numbers(wanted: list[str], problem: str) -> None:
    with pytest.raises(LayoutDoesNotFitError) as refused:
        plan_layout(H100_80.profiles, (), (), wanted)
    assert problem in str(refused.value)


def test_two_with_media_extensions_are_refused() -> None:
    with pytest.raises(LayoutDoesNotFitError, match="one with media extensions"):
        plan_layout(A30.profiles, (), (), ["1g.6gb+me", "2g.12gb+me"])


def test_a_profile_of_another_gpu_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UnknownMigProfileError, match=r"3g\.20gb: .*allowed: .*3g\.40gb"):
        plan_layout(A100_80.profiles, (), (), ["3g.20gb"])


def test_seven_slices_and_the_balanced_layout_fit() -> None:
    assert len(plan_layout(A100_40.profiles, (), (), ["1g.5gb"] * 7).create) == 7
    balanced = plan_layout(A100_40.profiles, (), (), ["1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"])
    assert len(balanced.create) == 4


def _all_layouts(geometry: MigGeometry, wanted: Sequence[str]) -> set[Layout]:
    """Every way to put `wanted` on an empty GPU, found by trying all combinations of places."""
    profiles = [profile(name, geometry) for name in wanted]
    if sum(each.compute_slices for each in profiles) > geometry.compute_slices:
        return set()
    if any(wanted.count(each.name) > each.most for each in profiles):
        return set()
    if sum(each.name.endswith("+me") for each in profiles) > 1:
        return set()
    layouts = set()
    for starts in product(*(each.starts for each in profiles)):
        slices: list[int] = []
        for each, start in zip(profiles, starts, strict=True):
            slices += range(start, start + each.size)
        if len(set(slices)) == len(slices):
            layouts.add(frozenset(zip(wanted, starts, strict=True)))
    return layouts


def _fewest_changes(
    layouts: set[Layout], present: Sequence[MigInstance], in_use: Collection[str]
) -> int | None:
    there = {(each.profile, each.start) for each in present}
    held = {(each.profile, each.start) for each in present if each.uuid in in_use}
    return min((len(layout ^ there) for layout in layouts if held <= layout), default=None)


@pytest.mark.parametrize("part", range(4))
def test_plans_are_those_that_trying_everything_finds(part: int) -> None:
    random = Random(part)
    planned = 0
    for _ in range(500):
        geometry = random.choice([A30, A100_40, H100_80])
        names = [each.name for each in geometry.profiles]
        present: list[MigInstance] = []
        taken = Occupancy()
        for _ in range(random.randint(0, 5)):
            kind = profile(random.choice(names), geometry)
            starts = starts_left(geometry.profiles, kind, taken)
            if starts:
                start = random.choice(starts)
                taken = taken.with_instance(kind, start)
                present.append(instance(kind.name, start, geometry))
        in_use = [each.uuid for each in present if random.random() < 0.3]
        wanted = random.sample([each.profile for each in present], random.randint(0, len(present)))
        wanted += [random.choice(names) for _ in range(random.randint(0, 3))]
        wanted = wanted[:5]
        layouts = _all_layouts(geometry, wanted)
        fewest = _fewest_changes(layouts, present, in_use)
        if fewest is None:
            with pytest.raises(MigPlanError) as refused:
                plan_layout(geometry.profiles, present, in_use, wanted)
            assert isinstance(refused.value, InstancesInTheWayError) == bool(layouts)
            continue
        planned += 1
        plan = plan_layout(geometry.profiles, present, in_use, wanted)
        layout = {(each.profile, each.start) for each in plan.keep} | {
            (made.profile.name, made.start) for made in plan.create
        }
        assert frozenset(layout) in layouts
        assert Counter(name for name, _ in layout) == Counter(wanted)
        assert plan.changes == fewest
        assert not {each.uuid for each in plan.destroy} & set(in_use)
        assert sorted(each.uuid for each in (*plan.destroy, *plan.keep)) == sorted(
            each.uuid for each in present
        )
        roomiest = max(
            capacity(geometry.profiles, occupied(*other, geometry=geometry))
            for other in layouts
            if len(other ^ {(each.profile, each.start) for each in present}) == fewest
            and {(each.profile, each.start) for each in present if each.uuid in in_use} <= other
        )
        assert capacity(geometry.profiles, occupied(*layout, geometry=geometry)) == roomiest
    assert planned > 100
