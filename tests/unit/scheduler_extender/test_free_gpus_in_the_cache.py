"""Which GPUs are free, as events come in."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp2026.scheduler_extender.cache import NO_TOPOLOGY, ClusterCache
from mcp2026.scheduler_extender.cluster_events import (
    ClusterEvent,
    Gone,
    Kind,
    Listed,
    Observed,
    ObservedPod,
    ObservedTopology,
    Seen,
    observe,
)
from mcp2026.scheduler_extender.snapshot import NodeGpus
from tests.fakes.clusters import filled_cache, listed, node, pod, topology

FOUR = "4xa100-pcie-nvlink-pairs"


def gpus_of(cache: ClusterCache, name: str = "n") -> NodeGpus:
    gpus = cache.snapshot().nodes[name].gpus
    assert gpus is not None
    return gpus


def seen(kind: Kind, document: dict[str, Any]) -> Seen:
    return Seen(observe(kind, json.dumps(document).encode()))


@pytest.mark.parametrize(
    ("held", "unhealthy", "pods", "free", "available"),
    [
        pytest.param({}, [], [], (0, 1, 2, 3), 4, id="an idle node gives everything"),
        pytest.param({1: "default/a"}, [], [], (0, 2, 3), 3, id="a held GPU is not free"),
        pytest.param({}, [2], [], (0, 1, 3), 3, id="an unhealthy GPU is not free"),
        pytest.param({2: "default/a"}, [2], [], (0, 1, 3), 3, id="held and unhealthy counts once"),
        pytest.param(
            {}, [], [pod("a", 2, "n")], (0, 1, 2, 3), 2, id="a bound pod not yet shown as holder is deducted"
        ),
        pytest.param(
            {0: "default/a", 1: "default/a"},
            [],
            [pod("a", 2, "n")],
            (2, 3),
            2,
            id="a bound pod shown as holder is not deducted again",
        ),
        pytest.param(
            {0: "default/a"},
            [],
            [pod("a", 3, "n")],
            (1, 2, 3),
            1,
            id="of a pod that holds a part the rest is deducted",
        ),
        pytest.param({}, [], [pod("a", 2)], (0, 1, 2, 3), 4, id="a pod bound nowhere takes nothing"),
        pytest.param(
            {}, [], [pod("a", 2, "other")], (0, 1, 2, 3), 4, id="a pod elsewhere takes nothing here"
        ),
        pytest.param(
            {}, [], [pod("a", 2, "n", "Succeeded")], (0, 1, 2, 3), 4, id="an ended pod takes nothing"
        ),
        pytest.param({0: "x/gone"}, [], [], (1, 2, 3), 3, id="a GPU whose holder we do not know stays held"),
        pytest.param(
            {0: "other/a"},
            [],
            [pod("a", 1, "n")],
            (1, 2, 3),
            2,
            id="a holder of the same name in another namespace is another pod",
        ),
        pytest.param(
            {}, [], [pod("a", 9, "n")], (0, 1, 2, 3), 0, id="more promised than there is leaves none"
        ),
    ],
)
def test_free_gpus(
    held: dict[int, str],
    unhealthy: list[int],
    pods: list[dict[str, Any]],
    free: tuple[int, ...],
    available: int,
) -> None:
    gpus = gpus_of(filled_cache([topology("n", FOUR, held, unhealthy)], pods))
    assert (gpus.free, gpus.available) == (free, available)


def test_a_pod_s_life_takes_gpus_and_gives_them_back() -> None:
    cache = filled_cache([topology("n", FOUR)])
    steps = []
    for document in (pod("a", 2), pod("a", 2, "n"), pod("a", 2, "n", "Running"), pod("a", 2, "n", "Failed")):
        cache.apply(seen(Kind.PODS, document))
        steps.append(gpus_of(cache).available)
    assert steps == [4, 2, 2, 4]


def test_a_deleted_pod_gives_its_promise_back() -> None:
    cache = filled_cache([topology("n", FOUR)], [pod("a", 2, "n")])
    cache.apply(Gone(Kind.PODS, "default/a"))
    assert gpus_of(cache).available == 4


def test_a_pod_that_asks_for_no_gpu_is_nothing_to_assume() -> None:
    """kube-scheduler brings a pod to bind for the name of a resource, whatever the amount."""
    cache = filled_cache([topology("n", FOUR)])
    bound = observe(Kind.PODS, json.dumps(pod("a", 0, "n")).encode())
    assert isinstance(bound, ObservedPod)
    cache.assume(bound, until=60)
    assert cache.assumed("default/a") is None
    cache.apply(Seen(replace(bound, uid="another")))
    assert gpus_of(cache).available == 4


HELD_BY_A = {0: "default/a", 1: "default/a"}


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(Gone(Kind.PODS, "default/a"), id="deleted"),
        pytest.param(Listed(Kind.PODS, ()), id="missing from a new list"),
        pytest.param(seen(Kind.PODS, pod("a", 2, "n", "Succeeded")), id="succeeded"),
    ],
)
def test_a_holder_that_was_seen_to_end_is_none_although_the_topology_still_shows_it(
    end: ClusterEvent,
) -> None:
    cache = filled_cache([topology("n", FOUR, HELD_BY_A)], [pod("a", 2, "n")])
    assert gpus_of(cache).free == (2, 3)
    cache.apply(end)
    assert (gpus_of(cache).free, gpus_of(cache).available) == ((0, 1, 2, 3), 4)
    cache.apply(seen(Kind.GPU_TOPOLOGIES, topology("n", FOUR, {**HELD_BY_A, 2: "default/b"})))
    assert gpus_of(cache).free == (0, 1, 3)


def test_the_next_pod_is_deducted_while_the_topology_still_shows_the_one_before() -> None:
    cache = filled_cache([topology("n", FOUR, HELD_BY_A)], [pod("a", 2, "n")])
    cache.apply(Gone(Kind.PODS, "default/a"))
    cache.apply(seen(Kind.PODS, pod("b", 3, "n")))
    assert gpus_of(cache).available == 1
    cache.apply(seen(Kind.GPU_TOPOLOGIES, topology("n", FOUR, dict.fromkeys((0, 1, 2), "default/b"))))
    assert (gpus_of(cache).free, gpus_of(cache).available) == ((3,), 1)


def test_a_pod_of_the_same_name_is_a_holder_again() -> None:
    cache = filled_cache([topology("n", FOUR, HELD_BY_A)], [pod("a", 2, "n")])
    cache.apply(Gone(Kind.PODS, "default/a"))
    cache.apply(seen(Kind.PODS, pod("a", 2, "n")))
    assert (gpus_of(cache).free, gpus_of(cache).available) == ((2, 3), 2)


def test_a_holder_that_left_the_topology_and_comes_back_into_it_is_one() -> None:
    cache = filled_cache([topology("n", FOUR, HELD_BY_A)], [pod("a", 2, "n")])
    cache.apply(Gone(Kind.PODS, "default/a"))
    cache.apply(seen(Kind.GPU_TOPOLOGIES, topology("n", FOUR)))
    cache.apply(seen(Kind.GPU_TOPOLOGIES, topology("n", FOUR, HELD_BY_A)))
    assert gpus_of(cache).free == (2, 3)


def test_a_new_list_replaces_what_was_known() -> None:
    cache = filled_cache([topology("n", FOUR), topology("m", FOUR)], [pod("a", 2, "n")])
    cache.apply(listed(Kind.PODS, pod("b", 1, "n")))
    cache.apply(listed(Kind.NODES, node("n")))
    cache.apply(listed(Kind.GPU_TOPOLOGIES, topology("n", FOUR, {0: "default/b"})))
    assert set(cache.snapshot().nodes) == {"n"}
    assert (gpus_of(cache).free, gpus_of(cache).available) == ((1, 2, 3), 3)
    assert cache.sizes == {Kind.NODES: 1, Kind.PODS: 1, Kind.GPU_TOPOLOGIES: 1, Kind.BUDGETS: 0}


def test_a_snapshot_does_not_change_any_more() -> None:
    cache = filled_cache([topology("n", FOUR)])
    before = cache.snapshot()
    cache.apply(seen(Kind.PODS, pod("a", 2, "n")))
    cache.apply(seen(Kind.NODES, node("m")))
    assert set(before.nodes) == {"n"}
    assert before.nodes["n"].gpus is not None
    assert before.nodes["n"].gpus.available == 4
    assert cache.snapshot() is cache.snapshot()


def test_the_cache_says_what_it_still_waits_for() -> None:
    cache = ClusterCache()
    assert cache.waiting_for == tuple(Kind)
    cache.apply(Listed(Kind.PODS, ()))
    cache.apply(Listed(Kind.BUDGETS, ()))
    cache.apply(seen(Kind.NODES, node("n")))
    assert cache.waiting_for == (Kind.NODES, Kind.GPU_TOPOLOGIES)


def test_equal_machines_have_equal_fingerprints() -> None:
    cache = filled_cache([topology("n", FOUR), topology("m", FOUR), topology("o", "4xl40s-pcie-2socket")])
    assert gpus_of(cache, "n").fingerprint == gpus_of(cache, "m").fingerprint
    assert gpus_of(cache, "n").fingerprint != gpus_of(cache, "o").fingerprint


@pytest.mark.parametrize(
    ("status", "complaint"),
    [
        pytest.param({"gpus": [{"index": 0}]}, "uuid", id="a GPU lacks a field"),
        pytest.param({"gpus": "none"}, "gpus", id="GPUs that are text"),
        pytest.param(
            topology("n", FOUR)["status"] | {"pcieAncestors": [["SELF"]]},
            "pcieAncestors",
            id="a small matrix",
        ),
        pytest.param(
            topology("n", FOUR)["status"] | {"pcieAncestors": [["ELSEWHERE"] * 4] * 4},
            "ELSEWHERE",
            id="a PCIe ancestor that does not exist",
        ),
    ],
)
def test_a_topology_that_cannot_be_read_says_why(status: dict[str, Any], complaint: str) -> None:
    cache = filled_cache([{"metadata": {"name": "n"}, "status": status}])
    seen_node = cache.snapshot().nodes["n"]
    assert seen_node.gpus is None
    assert complaint in seen_node.problem


def test_a_topology_that_goes_leaves_a_node_without_one() -> None:
    cache = filled_cache([topology("n", FOUR)])
    cache.apply(Gone(Kind.GPU_TOPOLOGIES, "n"))
    assert cache.snapshot().nodes["n"].problem == NO_TOPOLOGY


NODES = ("n", "m")
PODS = ("a", "b", "c")
EVENTS = st.one_of(
    st.builds(node, st.sampled_from(NODES)).map(lambda document: seen(Kind.NODES, document)),
    st.builds(
        pod,
        st.sampled_from(PODS),
        st.integers(0, 3),
        st.sampled_from(["", *NODES]),
        st.sampled_from(["Pending", "Running", "Failed"]),
    ).map(lambda document: seen(Kind.PODS, document)),
    st.builds(
        topology,
        st.sampled_from(NODES),
        st.just(FOUR),
        st.dictionaries(st.integers(0, 3), st.sampled_from([f"default/{name}" for name in PODS])),
        st.sets(st.integers(0, 3)).map(tuple),
    ).map(lambda document: seen(Kind.GPU_TOPOLOGIES, document)),
    st.builds(Gone, st.just(Kind.NODES), st.sampled_from(NODES)),
    st.builds(Gone, st.just(Kind.PODS), st.sampled_from([f"default/{name}" for name in PODS])),
    st.builds(Gone, st.just(Kind.GPU_TOPOLOGIES), st.sampled_from(NODES)),
)


@given(st.lists(EVENTS, max_size=25))
def test_any_history_ends_as_a_fresh_list_of_what_is_left(events: list[ClusterEvent]) -> None:
    """It may know more: which holders have ended. Once the topologies know that too, it is the same."""
    followed = ClusterCache()
    left: dict[tuple[Kind, str], Seen] = {}
    for event in events:
        followed.apply(event)
        match event:
            case Seen(observed):
                left[_kind(event), observed.key] = event
            case Gone(kind, key):
                left.pop((kind, key), None)
    fresh = _listed_anew(left)
    for name, was in fresh.snapshot().nodes.items():
        if was.gpus is not None:
            ended = set(gpus_of(followed, name).free) - set(was.gpus.free)
            assert ended <= _held_by_the_dead(left, name)

    for (kind, name), event in list(left.items()):
        if kind is Kind.GPU_TOPOLOGIES:
            caught_up = Seen(_without(event.object, _held_by_the_dead(left, name)))
            left[kind, name] = caught_up
            followed.apply(caught_up)
    fresh = _listed_anew(left)
    assert followed.snapshot() == fresh.snapshot()
    assert followed.sizes == fresh.sizes


def _listed_anew(left: dict[tuple[Kind, str], Seen]) -> ClusterCache:
    fresh = ClusterCache()
    for kind in Kind:
        of_kind = (event.object for (of, _), event in left.items() if of is kind)
        fresh.apply(Listed(kind, tuple(of_kind)))
    return fresh


def _held_by_the_dead(left: dict[tuple[Kind, str], Seen], node_name: str) -> set[int]:
    """Return the GPUs of the node whose holders are no pods that run there with GPUs."""
    held: set[int] = set()
    shown = left[Kind.GPU_TOPOLOGIES, node_name].object
    assert isinstance(shown, ObservedTopology)
    for key, gpus in shown.holders.items():
        event = left.get((Kind.PODS, key))
        holder = event.object if event else None
        alive = isinstance(holder, ObservedPod) and holder.node == node_name and holder.gpus
        if not (alive and not holder.finished):
            held |= gpus
    return held


def _without(shown: Observed, gpus: set[int]) -> ObservedTopology:
    assert isinstance(shown, ObservedTopology)
    kept = {key: positions - gpus for key, positions in shown.holders.items() if positions - gpus}
    return replace(shown, holders=kept)


def _kind(event: Seen) -> Kind:
    return {
        "ObservedNode": Kind.NODES,
        "ObservedPod": Kind.PODS,
        "ObservedTopology": Kind.GPU_TOPOLOGIES,
    }[type(event.object).__name__]
