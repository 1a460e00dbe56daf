"""Gangs: room for all members that are missing, or for none, and never past the deadline."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp2026.api.names import GANG_ANNOTATION, GANG_SIZE_ANNOTATION, GPU_MEMORY_RESOURCE, GPU_RESOURCE
from mcp2026.scheduler_extender.cache import ClusterCache
from mcp2026.scheduler_extender.cluster_events import Gone, Kind, ObservedPod, Seen, observe
from mcp2026.scheduler_extender.gang_planning import Planned, plan_gang
from mcp2026.scheduler_extender.gangs import Gangs, Planning, Verdict, decide
from mcp2026.scheduler_extender.preferences import NO_PREFERENCES
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from mcp2026.scheduler_extender.what_if import place_pods
from tests.fakes.clusters import filled_cache, pod, topology

PAIRS = "4xa100-pcie-nvlink-pairs"
DEADLINE_S = 60.0


def member(
    gang: str, number: int, size: object, gpus: int = 2, resource: str = GPU_RESOURCE, node: str = ""
) -> ObservedPod:
    document: dict[str, Any] = pod(f"{gang}-{number}", gpus, node)
    document["metadata"]["annotations"] = {GANG_ANNOTATION: gang, GANG_SIZE_ANNOTATION: str(size)}
    document["spec"]["containers"][0]["resources"] = {"requests": {resource: str(gpus)}}
    observed = observe(Kind.PODS, json.dumps(document).encode())
    assert isinstance(observed, ObservedPod)
    return observed


@dataclass
class Case:
    """What happens to gangs in the extender, without threads and sockets."""

    cache: ClusterCache
    now: float = 0.0
    memo: ScoreMemo = field(default_factory=ScoreMemo)

    def __post_init__(self) -> None:
        self.gangs = Gangs(self.cache)

    def plan(self, planning: Planning) -> Planned:
        return plan_gang(
            planning.snapshot,
            planning.node_names,
            planning.pod,
            planning.missing,
            self.memo,
            NO_PREFERENCES,
        )

    def filter(self, pod: ObservedPod, nodes: tuple[str, ...] | None = None) -> Verdict:
        self.gangs.asked_anew(pod.key, self.now)
        names = tuple(self.cache.snapshot().nodes) if nodes is None else nodes
        return decide(self.gangs, pod, names, self.plan, self.now, DEADLINE_S)

    def bind(self, pod: ObservedPod, node: str) -> ObservedPod | None:
        self.cache.expire(self.now)
        return self.gangs.take(pod, node, self.now + DEADLINE_S)

    def held(self, gang: str) -> list[ObservedPod]:
        return [each for each in self.cache.members(("default", gang)) if "#" in each.name]

    def bound(self, gang: str) -> list[ObservedPod]:
        return [each for each in self.cache.members(("default", gang)) if "#" not in each.name]

    def free(self) -> int:
        nodes = self.cache.snapshot().nodes.values()
        return sum(node.gpus.available for node in nodes if node.gpus is not None)


def cluster(nodes: int, held: Mapping[int, str] | None = None) -> Case:
    return Case(filled_cache([topology(f"n{place}", PAIRS, held or {}) for place in range(nodes)]))


def reason(verdict: Verdict) -> str:
    assert not verdict.filtered.feasible
    (said,) = set(verdict.filtered.unresolvable.values())
    assert said == verdict.said
    return said


def test_the_first_member_holds_room_for_all_and_each_is_bound_in_a_place_that_was_held() -> None:
    case = cluster(2)
    members = [member("g", number, 4) for number in range(4)]
    for each in members:
        verdict = case.filter(each)
        node = verdict.filtered.feasible[0]
        assert case.free() == 0
        taken = case.bind(each, node)
        assert taken is not None
        assert taken.node == node
    devices = [
        (each.node, name) for each in case.bound("g") for name in each.assignment["main"][GPU_RESOURCE]
    ]
    assert len(set(devices)) == 8
    assert case.held("g") == []


def test_members_are_sent_to_different_places_before_any_is_bound() -> None:
    case = cluster(2)
    members = [member("g", number, 4) for number in range(4)]
    sent = [case.filter(each).filtered.feasible for each in members]
    assert sorted(sent) == [("n0",), ("n0",), ("n1",), ("n1",)]
    assert [case.filter(each).filtered.feasible for each in members] == sent
    assert all(case.bind(each, *nodes) for each, nodes in zip(members, sent, strict=True))


def test_a_pod_that_was_made_anew_gets_the_place_of_the_one_before() -> None:
    case = cluster(2)
    for number in range(4):
        case.filter(member("g", number, 4))
    anew = replace(member("g", 0, 4), uid="another")
    (node,) = case.filter(anew).filtered.feasible
    assert case.bind(anew, node) is not None


def test_who_comes_for_a_member_that_was_deleted_takes_nobody_elses_place() -> None:
    case = cluster(2)
    sent = {number: case.filter(member("g", number, 4)).filtered.feasible for number in (0, 1, 2, 3, 0, 1, 2)}
    anew = replace(member("g", 3, 4), uid="another")
    assert case.filter(anew).filtered.feasible == sent[3]
    assert all(case.bind(member("g", number, 4), *sent[number]) for number in range(3))
    assert case.bind(anew, *sent[3])


def test_a_member_that_is_bound_twice_takes_one_place() -> None:
    case = cluster(1)
    first = member("g", 0, 2)
    (node,) = case.filter(first).filtered.feasible
    assert case.bind(first, node) == case.bind(first, node)
    assert len(case.held("g")) == 1
    case.cache.apply(Seen(case.bound("g")[0]))
    assert case.bind(first, node) is None


def test_members_get_linked_pairs() -> None:
    case = cluster(1)
    case.filter(member("g", 0, 2))
    gpus = case.cache.snapshot().nodes["n0"].pods
    assert {placed.gpus for placed in gpus} == {frozenset({0, 1}), frozenset({2, 3})}


@pytest.mark.parametrize(
    ("gang", "said"),
    [
        pytest.param(
            member("g", 0, 8, gpus=4),
            "gang g: 3 of 8 pods of 4 GPUs would fit; at most 3 if every other pod went",
            id="larger than the cluster",
        ),
        pytest.param(
            member("g", 0, "many"),
            "mcp2026.io/gang-size: 'many' is no size of a gang; allowed: a whole number from 1 to 1024",
            id="a size that is no number",
        ),
        pytest.param(
            member("g", 0, 1025),
            "mcp2026.io/gang-size: '1025' is no size of a gang; allowed: a whole number from 1 to 1024",
            id="a size that is too large",
        ),
        pytest.param(
            member("", 0, 2), "mcp2026.io/gang-size without mcp2026.io/gang; give both, or none", id="no name"
        ),
    ],
)
def test_a_gang_that_cannot_be_is_refused_with_what_to_do(gang: ObservedPod, said: str) -> None:
    case = cluster(3)
    assert reason(case.filter(gang)) == said
    assert case.free() == 12


def test_pods_in_the_way_are_told_from_a_cluster_that_is_too_small() -> None:
    case = cluster(2, {0: "x/a"})
    assert reason(case.filter(member("g", 0, 2, gpus=4))) == "gang g: 0 of 2 pods of 4 GPUs would fit"


def test_of_two_gangs_that_do_not_fit_together_one_holds_all_and_the_other_nothing() -> None:
    case = cluster(2)
    first = [member("a", number, 3) for number in range(3)]
    second = [member("b", number, 3) for number in range(3)]
    assert case.filter(first[0]).filtered.feasible
    case.now = 12.0
    assert reason(case.filter(second[0])) == (
        "gang b: 1 of 3 pods of 2 GPUs would fit; room is held for another gang, for 48 s at most"
    )
    assert (len(case.held("a")), case.held("b")) == (3, [])
    for each in first:
        node = case.filter(each).filtered.feasible[0]
        assert case.bind(each, node) is not None
    for number in range(3):
        case.cache.apply(Seen(case.bound("a")[number]))
    for each in case.bound("a"):
        case.cache.apply(Gone(Kind.PODS, each.key))
    assert case.filter(second[1]).filtered.feasible


def test_what_is_held_is_free_again_when_the_deadline_passes() -> None:
    case = cluster(2)
    case.filter(member("a", 0, 4))
    case.now = DEADLINE_S - 0.001
    assert reason(case.filter(member("b", 0, 4))).startswith("gang b: 0 of 4")
    case.now = DEADLINE_S
    assert case.filter(member("b", 0, 4)).filtered.feasible
    assert case.held("a") == []


def test_a_member_that_is_bound_after_the_deadline_is_planned_anew_with_the_rest() -> None:
    case = cluster(2)
    late = member("a", 0, 4)
    node = case.filter(late).filtered.feasible[0]
    case.now = DEADLINE_S
    assert case.bind(late, node) is None
    assert case.filter(late).filtered.feasible
    assert len(case.held("a")) == 4


def test_members_that_come_late_need_room_for_all_that_are_missing() -> None:
    case = cluster(2)
    first = member("a", 0, 4)
    case.bind(first, case.filter(first).filtered.feasible[0])
    case.cache.apply(Seen(case.bound("a")[0]))
    case.now = DEADLINE_S
    other = member("b", 0, 1, gpus=4)
    assert case.filter(other).filtered.feasible
    assert reason(case.filter(member("a", 1, 4))) == (
        "gang a: 1 are bound, 1 of 3 more pods of 2 GPUs would fit; "
        "room is held for another gang, for 60 s at most"
    )


def test_a_pod_too_many_is_refused() -> None:
    case = cluster(1)
    for number in range(2):
        each = member("g", number, 2)
        case.bind(each, case.filter(each).filtered.feasible[0])
    assert reason(case.filter(member("g", 2, 2))).startswith("gang g: all 2 of its pods are bound")


def test_a_replacement_takes_the_place_of_a_member_that_is_leaving() -> None:
    leaving = pod("g-0", 2, "n0")
    leaving["metadata"]["annotations"] = {GANG_ANNOTATION: "g", GANG_SIZE_ANNOTATION: "1"}
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    case = Case(filled_cache([topology("n0", PAIRS)], [leaving]))
    assert case.filter(member("g", 1, 1)).filtered.feasible == ("n0",)


def test_members_that_ask_for_different_things_are_refused() -> None:
    case = cluster(2)
    case.filter(member("g", 0, 2))
    said = reason(case.filter(member("g", 1, 2, gpus=1)))
    assert said.startswith("gang g: this pod asks for 1 GPU, the others for 2 GPUs")
    assert len(case.held("g")) == 2


def test_the_place_of_a_refused_binding_stays_with_the_gang() -> None:
    case = cluster(2)
    first = member("g", 0, 4)
    taken = case.bind(first, case.filter(first).filtered.feasible[0])
    assert taken is not None
    case.gangs.give_back(taken, case.now)
    assert (len(case.held("g")), case.bound("g"), case.free()) == (4, [], 0)
    assert case.filter(first).filtered.feasible


def test_a_member_that_is_asked_about_anew_was_not_bound() -> None:
    case = cluster(2)
    first = member("g", 0, 4)
    case.bind(first, case.filter(first).filtered.feasible[0])
    assert case.filter(first).filtered.feasible
    assert (len(case.held("g")), case.bound("g")) == (4, [])


def test_where_a_later_member_may_not_go_the_rest_is_planned_anew() -> None:
    case = cluster(3)
    first = member("g", 0, 2, gpus=4)
    assert case.filter(first, ("n0", "n1")).filtered.feasible == ("n0",)
    taken = case.bind(first, "n0")
    assert taken is not None
    verdict = case.filter(member("g", 1, 2, gpus=4), ("n2",))
    assert verdict.filtered.feasible == ("n2",)
    assert [each.node for each in case.held("g")] == ["n2"]


def test_what_changed_while_a_gang_was_planned_is_planned_again() -> None:
    case = cluster(2)
    planning = case.gangs.begin(member("g", 0, 4), ("n0", "n1"), 0.0)
    assert isinstance(planning, Planning)
    planned = case.plan(planning)
    quick = observe(Kind.PODS, json.dumps(pod("quick", 1, "n1")).encode())
    case.cache.apply(Seen(quick))
    assert not case.gangs.hold(planning, planned.places, DEADLINE_S)
    assert case.held("g") == []
    assert reason(decide(case.gangs, planning.pod, ("n0", "n1"), case.plan, 0.0, DEADLINE_S)).startswith(
        "gang g: 3 of 4 pods"
    )


def test_a_node_that_changes_between_two_portions_lets_all_that_is_held_go() -> None:
    case = cluster(2)
    planning = case.gangs.begin(member("g", 0, 4), ("n0", "n1"), 0.0)
    assert isinstance(planning, Planning)
    places = case.plan(planning).places
    assert case.gangs.hold(planning, places[:2], DEADLINE_S)
    assert len(case.held("g")) == 2
    case.cache.apply(Seen(observe(Kind.PODS, json.dumps(pod("quick", 1, "n1")).encode())))
    assert not case.gangs.hold(planning, places[2:], DEADLINE_S)
    assert (case.held("g"), case.free()) == ([], 7)


def test_members_that_wait_are_planned_once_until_something_changes() -> None:
    case = cluster(2)
    assert reason(case.filter(member("g", 0, 5))) == (
        "gang g: 4 of 5 pods of 2 GPUs would fit; at most 4 if every other pod went"
    )
    case.plan = None  # type: ignore[assignment, method-assign]  # it would be called
    assert reason(case.filter(member("g", 1, 5))).startswith("gang g: 4 of 5")
    anew = case.gangs.begin(member("g", 2, 5), ("n0",), case.now)
    assert isinstance(anew, Planning), "on other nodes"
    case.cache.apply(Seen(observe(Kind.PODS, json.dumps(pod("quick", 1, "n1")).encode())))
    assert isinstance(case.gangs.begin(member("g", 1, 5), ("n0", "n1"), case.now), Planning)


def test_gib_of_gpu_memory_are_held_too() -> None:
    document = topology("n", PAIRS)
    for gpu in document["status"]["gpus"][:2]:
        gpu["sharing"] = {"mode": "TimeSlice", "unit": "Memory", "state": "Active"}
    case = Case(filled_cache([document]))
    gib = document["status"]["gpus"][0]["memoryMiB"] // 1024
    half = gib // 2 - 1
    assert case.filter(member("g", 0, 4, half, GPU_MEMORY_RESOURCE)).filtered.feasible
    assert reason(case.filter(member("h", 0, 1, half, GPU_MEMORY_RESOURCE))).startswith("gang h: 0 of 1")


def test_what_if_places_gangs_as_the_extender_does() -> None:
    pods = [*(member("a", number, 3) for number in range(3)), member("b", 0, 2), member("a", 3, 3)]
    decisions = place_pods(cluster(2).cache, pods, 0.0)
    assert [bool(decision.node) for decision in decisions] == [True, True, True, False, False]
    assert decisions[0].gang == "gang a: room is held for 3 pods on 2 nodes, for 3600 s more"
    assert decisions[3].gang.startswith("gang b: 1 of 2 pods of 2 GPUs would fit")


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["filter", "bind", "refuse", "seen", "gone", "wait", "single"]),
        st.integers(0, 2),
        st.integers(0, 4),
        st.integers(0, 5),
    ),
    max_size=40,
)
GANGS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4)), min_size=3, max_size=3)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3), GANGS, STEPS)
def test_no_gang_is_ever_admitted_in_part(
    nodes: int, shapes: list[tuple[int, int]], steps: list[tuple[str, int, int, int]]
) -> None:
    case = cluster(nodes)
    admitted: dict[str, tuple[str, ...]] = {}
    deadlines: dict[str, float] = {}
    for action, which, number, choice in steps:
        size, gpus = shapes[which]
        gang = f"g{which}"
        each = member(gang, number % size, size, gpus)
        nodes_of_it = admitted.get(each.key, ())
        if action == "wait":
            case.now += choice * 7.0
        elif action == "filter" and not any(found.uid == each.uid for found in case.bound(gang)):
            held_before = {key: len(case.held(f"g{key}")) for key in range(3)}
            case.cache.expire(case.now)
            missing = size - len(case.bound(gang))
            verdict = case.filter(each)
            admitted[each.key] = verdict.filtered.feasible
            if verdict.filtered.feasible:
                if not held_before[which] or gang not in deadlines or deadlines[gang] <= case.now:
                    deadlines[gang] = case.now + DEADLINE_S
                assert len(case.held(gang)) == missing
            else:
                assert case.held(gang) == []
                assert _room(case, gpus) < missing  # a gang that fits is admitted
        elif action == "bind" and nodes_of_it:
            case.cache.expire(case.now)
            held, before = len(case.held(gang)), case.cache.assumed(each.key)
            taken = case.bind(each, nodes_of_it[choice % len(nodes_of_it)])
            if taken is not None and before is None:
                assert len(case.held(gang)) == held - 1
                assert held + len(case.bound(gang)) - 1 == size
        elif action == "refuse" and (assumed := case.cache.assumed(each.key)):
            case.gangs.give_back(assumed, case.now)
        elif action == "seen" and (assumed := case.cache.assumed(each.key)):
            case.cache.apply(Seen(assumed))
        elif action == "gone":
            case.cache.apply(Gone(Kind.PODS, each.key))
        elif action == "single":
            alone = observe(Kind.PODS, json.dumps(pod("alone", 1, f"n{choice % nodes}")).encode())
            case.cache.apply(Seen(alone))
        _no_gpu_is_sold_twice(case)
        case.cache.expire(case.now)
        for key in range(3):
            if case.held(f"g{key}"):
                assert deadlines[f"g{key}"] > case.now


def _room(case: Case, gpus: int) -> int:
    """Count by brute force how many pods of `gpus` GPUs the free GPUs hold."""
    nodes = case.cache.snapshot().nodes.values()
    return sum(node.gpus.available // gpus for node in nodes if node.gpus is not None)


def _no_gpu_is_sold_twice(case: Case) -> None:
    for node in case.cache.snapshot().nodes.values():
        taken = [gpu for placed in node.pods for gpu in placed.gpus]
        assert len(taken) == len(set(taken))
