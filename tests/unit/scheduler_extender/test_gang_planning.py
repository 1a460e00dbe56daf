"""The plan for a gang is that of placing its members one by one, each on the best of all nodes."""

import json
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp2026.api.names import GANG_ANNOTATION, GANG_SIZE_ANNOTATION, GPU_SHARED_RESOURCE
from mcp2026.api.scheduling_context import QosClass
from mcp2026.scheduler_extender.cache import ClusterCache
from mcp2026.scheduler_extender.choosing import assignment_for
from mcp2026.scheduler_extender.cluster_events import Kind, ObservedPod, observe
from mcp2026.scheduler_extender.filtering import filter_nodes
from mcp2026.scheduler_extender.gang_planning import PORTION, GangPlan, Place, plan_gang, without
from mcp2026.scheduler_extender.policy import Packing, Policy
from mcp2026.scheduler_extender.preferences import NO_PREFERENCES, Preferences
from mcp2026.scheduler_extender.prioritizing import rank_nodes
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from tests.fakes.clusters import filled_cache, pod, topology

PAIRS = "4xa100-pcie-nvlink-pairs"
MACHINES = (PAIRS, "dgx-1v-8xv100", "8xa100-pcie-nv12-pairs-all-sys")


def member(units: int, resource: str = "mcp2026.io/gpu") -> ObservedPod:
    document = pod("g-0", 0)
    document["metadata"]["annotations"] = {GANG_ANNOTATION: "g", GANG_SIZE_ANNOTATION: "9"}
    document["spec"]["containers"][0]["resources"] = {"requests": {resource: str(units)}}
    observed = observe(Kind.PODS, json.dumps(document).encode())
    assert isinstance(observed, ObservedPod)
    return observed


def one_by_one(cache: ClusterCache, pod: ObservedPod, count: int, preferences: Preferences) -> list[Place]:
    """Filter and rank all nodes anew for each member, once those before it have been bound."""
    memo, places = ScoreMemo(), []
    for number in range(count):
        snapshot = cache.snapshot()
        names = filter_nodes(snapshot, tuple(snapshot.nodes), pod.demands).feasible
        if not names:
            break
        ranking = rank_nodes(snapshot, names, pod.demands, memo, preferences)
        node = next(name for name, each in zip(names, ranking.priority_of_each(), strict=True) if each == 10)
        gpus = snapshot.nodes[node].gpus
        assert gpus is not None
        places.append(Place(node, assignment_for(gpus, pod.demands, memo, preferences)))
        cache.assume(replace(pod, name=f"g-{number}", qos=None).bound_to(node, places[-1].assignment), 1.0)
    return places


NODES = st.lists(
    st.tuples(st.sampled_from(MACHINES), st.sets(st.integers(0, 3)), st.booleans()), min_size=1, max_size=6
)


@settings(max_examples=60, deadline=None)
@given(NODES, st.sampled_from([1, 2, 4]), st.integers(1, 9), st.sampled_from([None, "Pack", "Spread"]))
def test_whole_gpus_go_as_if_members_were_placed_one_by_one(
    nodes: list[tuple[str, set[int], bool]], gpus: int, size: int, packing: Packing | None
) -> None:
    holders, topologies = [], []
    for place, (machine, held, guaranteed) in enumerate(nodes):
        name = f"n{place}"
        topologies.append(topology(name, machine, dict.fromkeys(held, f"default/on-{name}")))
        holders.append(holding(f"on-{name}", name, len(held), guaranteed=guaranteed))
    cache = filled_cache(topologies, holders)
    preferences = Preferences(Policy(packing=packing), qos=QosClass.BURSTABLE)
    snapshot = cache.snapshot()
    planned = plan_gang(snapshot, tuple(snapshot.nodes), member(gpus), size, ScoreMemo(), preferences)
    expected = one_by_one(cache, member(gpus), size, preferences)
    assert planned.found == len(expected)
    assert list(planned.places) == (expected if len(expected) == size else [])


def holding(name: str, node: str, gpus: int, *, guaranteed: bool) -> dict[str, object]:
    document = pod(name, gpus, node, "Running")
    amounts = {**document["spec"]["containers"][0]["resources"]["requests"], "cpu": "1", "memory": "1Gi"}
    resources = {"requests": amounts, "limits": amounts} if guaranteed else {"requests": amounts}
    document["spec"]["containers"][0]["resources"] = resources
    return document


@pytest.mark.parametrize("count", [3, 8, 9])
def test_shares_go_as_if_members_were_placed_one_by_one(count: int) -> None:
    documents = [topology("a", PAIRS), topology("b", PAIRS)]
    for document in documents:
        for gpu in document["status"]["gpus"][:2]:
            gpu["sharing"] = {"mode": "TimeSlice", "replicas": 4, "state": "Active"}
    cache = filled_cache(documents)
    asked = member(2, GPU_SHARED_RESOURCE)
    planned = plan_gang(cache.snapshot(), ("a", "b"), asked, count, ScoreMemo(), NO_PREFERENCES)
    expected = one_by_one(cache, asked, count, NO_PREFERENCES)
    assert planned.found == len(expected) == min(count, 8)
    assert list(planned.places) == (expected if count <= 8 else [])


def test_a_gang_without_room_is_told_how_many_there_is_room_for_and_could_be() -> None:
    cache = filled_cache([topology("a", PAIRS, {0: "x/y"}), topology("b", PAIRS)])
    planned = plan_gang(cache.snapshot(), ("a", "b"), member(2), 9, ScoreMemo(), NO_PREFERENCES)
    assert (planned.places, planned.found, planned.most) == ((), 3, 4)


def test_a_large_gang_is_planned_and_held_in_small_portions() -> None:
    cache = filled_cache([topology(f"n{number:03}", PAIRS) for number in range(100)])
    names = tuple(cache.snapshot().nodes)
    plan = GangPlan(cache.snapshot(), names, member(1), 400, ScoreMemo(), NO_PREFERENCES)
    advances, clock = 1, count().__next__
    while (planned := plan.advance(clock, 10)) is None:
        advances += 1
    assert advances > 40
    portions = list(planned.portions())
    assert sum(portions, ()) == tuple(sorted(planned.places, key=lambda place: names.index(place.node)))
    assert all(len(portion) < PORTION + 4 for portion in portions)
    nodes = [{place.node for place in portion} for portion in portions]
    assert sum(map(len, nodes)) == len(set().union(*nodes)) == 100


def test_what_a_member_took_is_gone() -> None:
    cache = filled_cache([topology("a", PAIRS)])
    gpus = cache.snapshot().nodes["a"].gpus
    assert gpus is not None
    asked = member(2)
    first = assignment_for(gpus, asked.demands, ScoreMemo())
    left = without(gpus, asked.demands, first, NO_PREFERENCES)
    assert left.available == 2
    assert assignment_for(left, asked.demands, ScoreMemo()) != first
