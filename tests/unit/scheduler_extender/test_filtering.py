"""Which nodes fit, and the words for those that do not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp2026.scheduler_extender.cache import NO_TOPOLOGY
from mcp2026.scheduler_extender.cluster_events import Seen, observe_topology
from mcp2026.scheduler_extender.filtering import RefusalMemo, filter_nodes
from mcp2026.scheduler_extender.snapshot import ClusterSnapshot
from tests.fakes.clusters import filled_cache, pod, topology, whole

FOUR = "4xa100-pcie-nvlink-pairs"

CLUSTER = filled_cache(
    [
        topology("idle", FOUR),
        topology("busy", FOUR, {0: "x/a", 1: "x/a", 3: "x/b"}),
        topology("sick", FOUR, {}, [1, 2, 3]),
        topology("mixed", FOUR, {0: "x/a"}, [2]),
        topology("held-and-sick", FOUR, {0: "x/a", 2: "x/a"}, [2]),
        topology("starting", FOUR),
        topology("full", FOUR, dict.fromkeys(range(4), "x/a")),
        topology("one", "1xt4-edge"),
        {"metadata": {"name": "empty"}, "status": {}},
        {"metadata": {"name": "broken"}, "status": {"gpus": [{"index": 0}]}},
    ],
    pods=[pod("coming", 3, "starting")],
    bare_nodes=["bare"],
).snapshot()


@pytest.mark.parametrize(
    ("node", "asked", "reason"),
    [
        pytest.param("busy", 2, "needs 2 GPUs, 1 of 4 free (0,1,3 held)", id="GPUs are held"),
        pytest.param("full", 1, "needs 1 GPU, 0 of 4 free (0,1,2,3 held)", id="all are held"),
        pytest.param("mixed", 3, "needs 3 GPUs, 2 of 4 free (0 held, 2 unhealthy)", id="held and unhealthy"),
        pytest.param(
            "held-and-sick", 3, "needs 3 GPUs, 2 of 4 free (0,2 held)", id="an unhealthy GPU in use is held"
        ),
        pytest.param(
            "starting",
            2,
            "needs 2 GPUs, 1 of 4 free (3 promised to pods that are starting)",
            id="a pod that is starting takes them",
        ),
        pytest.param("unheard-of", 1, "the scheduler extender has not seen this node yet", id="unknown node"),
    ],
)
def test_a_node_that_could_fit_later_says_what_is_in_the_way(node: str, asked: int, reason: str) -> None:
    assert filter_nodes(CLUSTER, (node,), whole(asked)).failed == {node: reason}


@pytest.mark.parametrize(
    ("node", "asked", "reason"),
    [
        pytest.param("idle", 8, "has 4 GPUs, 8 asked", id="the machine is too small"),
        pytest.param("one", 2, "has 1 GPU, 2 asked", id="one GPU is told in the singular"),
        pytest.param("empty", 1, "has 0 GPUs, 1 asked", id="the device plugin found none"),
        pytest.param("sick", 2, "has 1 healthy GPU, 2 asked (1,2,3 unhealthy)", id="too few are healthy"),
        pytest.param("bare", 1, NO_TOPOLOGY, id="no topology"),
    ],
)
def test_a_node_that_no_preemption_can_free_is_told_apart(node: str, asked: int, reason: str) -> None:
    filtered = filter_nodes(CLUSTER, (node,), whole(asked))
    assert filtered.unresolvable == {node: reason}
    assert filtered.failed == {}


def test_an_unreadable_topology_is_told_as_such() -> None:
    assert "cannot be read" in filter_nodes(CLUSTER, ("broken",), whole(1)).unresolvable["broken"]


@pytest.mark.parametrize(
    ("asked", "fitting"),
    [
        pytest.param(0, tuple(CLUSTER.nodes), id="a pod without GPUs fits anywhere, whatever is known"),
        pytest.param(1, ("idle", "busy", "sick", "mixed", "held-and-sick", "starting", "one"), id="one GPU"),
        pytest.param(2, ("idle", "mixed", "held-and-sick"), id="two GPUs"),
        pytest.param(4, ("idle",), id="four GPUs"),
        pytest.param(5, (), id="five GPUs"),
    ],
)
def test_nodes_that_fit_keep_their_order(asked: int, fitting: tuple[str, ...]) -> None:
    assert filter_nodes(CLUSTER, tuple(CLUSTER.nodes), whole(asked)).feasible == fitting


HOLDERS = st.dictionaries(st.integers(0, 3), st.sampled_from(["default/p0", "default/p1", "x/other"]))
STATES = st.tuples(HOLDERS, st.sets(st.integers(0, 3)), st.lists(st.integers(0, 4), max_size=3))


@st.composite
def clusters(draw: st.DrawFn) -> ClusterSnapshot:
    states = draw(st.lists(STATES, max_size=5))
    topologies = [
        topology(f"n{place}", FOUR, held, tuple(sick)) for place, (held, sick, _) in enumerate(states)
    ]
    pods = [
        pod(f"p{number}", asked, f"n{place}")
        for place, (_, _, bound) in enumerate(states)
        for number, asked in enumerate(bound)
    ]
    return filled_cache(
        topologies, pods, draw(st.lists(st.sampled_from(["b0", "b1"]), unique=True))
    ).snapshot()


ASKED_ABOUT = st.lists(st.sampled_from([*(f"n{place}" for place in range(5)), "b0", "b1"]), unique=True)


@given(clusters(), ASKED_ABOUT, st.integers(0, 6))
def test_every_node_asked_about_is_answered_exactly_once(
    snapshot: ClusterSnapshot, names: list[str], asked: int
) -> None:
    filtered = filter_nodes(snapshot, tuple(names), whole(asked))
    assert sorted([*filtered.feasible, *filtered.failed, *filtered.unresolvable]) == sorted(names)
    assert filtered == filter_nodes(snapshot, tuple(names), whole(asked))


@given(clusters(), st.integers(1, 6))
def test_no_node_is_said_to_fit_with_fewer_free_gpus_than_asked(
    snapshot: ClusterSnapshot, asked: int
) -> None:
    filtered = filter_nodes(snapshot, tuple(snapshot.nodes), whole(asked))
    for name in filtered.feasible:
        gpus = snapshot.nodes[name].gpus
        assert gpus is not None
        untouched = set(range(4)) - gpus.held - gpus.unhealthy
        assert len(untouched) - sum(gpus.promised) >= asked


@given(clusters(), st.integers(1, 5))
def test_asking_for_more_never_makes_a_node_fit(snapshot: ClusterSnapshot, asked: int) -> None:
    names = tuple(snapshot.nodes)
    more = set(filter_nodes(snapshot, names, whole(asked + 1)).feasible)
    assert more <= set(filter_nodes(snapshot, names, whole(asked)).feasible)


def test_what_is_remembered_of_nodes_is_said_of_those_alone_that_are_still_alike() -> None:
    cache, memo = filled_cache([topology("a", FOUR), topology("b", FOUR)]), RefusalMemo()
    assert filter_nodes(cache.snapshot(), ("a", "b"), whole(2), memo).feasible == ("a", "b")
    cache.apply(Seen(observe_topology(topology("a", FOUR, {0: "x/a", 1: "x/a", 2: "x/b"}))))
    for asked in (whole(2), whole(1), whole(2)):
        snapshot = cache.snapshot()
        assert filter_nodes(snapshot, ("a", "b"), asked, memo) == filter_nodes(snapshot, ("a", "b"), asked)
    assert filter_nodes(cache.snapshot(), ("a", "b"), whole(2), memo).feasible == ("b",)


def test_nodes_that_differ_in_what_could_fit_alone_are_answered_apart() -> None:
    """A GPU that is held hides that it is unhealthy: no pod that goes makes room for four there."""
    held = {0: "x/a", 2: "x/a"}
    cluster = filled_cache([topology("sick", FOUR, held, [2]), topology("healthy", FOUR, held)]).snapshot()
    filtered = filter_nodes(cluster, ("sick", "healthy"), whole(4), RefusalMemo())
    assert (list(filtered.unresolvable), list(filtered.failed)) == (["sick"], ["healthy"])
