"""Which node is best, by the score of its best free set."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp2026.scheduler_extender.cache import ClusterCache
from mcp2026.scheduler_extender.prioritizing import rank_nodes, ranks_to_priorities
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from tests.fakes.clusters import filled_cache, pod, topology, whole

PAIRS = "4xa100-pcie-nvlink-pairs"
"""NVLink bridges join 0 with 1 and 2 with 3."""


def priorities(cluster: ClusterCache, asked: int, memo: ScoreMemo | None = None) -> dict[str, int]:
    snapshot = cluster.snapshot()
    memo = ScoreMemo() if memo is None else memo
    ranking = rank_nodes(snapshot, tuple(snapshot.nodes), whole(asked), memo)
    return dict(zip(ranking.nodes, ranking.priority_of_each(), strict=True))


def test_a_node_with_a_free_linked_pair_beats_one_with_split_gpus() -> None:
    cluster = filled_cache(
        [
            topology("split", PAIRS, {1: "x/a", 3: "x/b"}),
            topology("linked", PAIRS, {0: "x/a", 1: "x/b"}),
        ]
    )
    assert priorities(cluster, 2) == {"split": 0, "linked": 10}


def test_a_faster_link_beats_a_slower_one_and_any_link_beats_none() -> None:
    cluster = filled_cache(
        [
            topology("no-nvlink", "4xl40s-pcie-2socket"),
            topology("bridged", PAIRS),
            topology("nvswitch", "hgx-h100-8gpu"),
        ]
    )
    scores = priorities(cluster, 2)
    assert scores["nvswitch"] == 10
    assert scores["nvswitch"] > scores["bridged"] > scores["no-nvlink"]


def test_a_single_gpu_goes_where_it_breaks_no_pair_and_not_to_the_emptiest_node() -> None:
    cluster = filled_cache(
        [
            topology("idle", PAIRS),
            topology("lone-gpu", PAIRS, {0: "x/a", 1: "x/a", 2: "x/b"}),
            topology("lone-gpu-beside-a-pair", PAIRS, {2: "x/b"}),
        ]
    )
    assert priorities(cluster, 1) == {"idle": 0, "lone-gpu": 10, "lone-gpu-beside-a-pair": 10}


def test_equal_nodes_score_equally_and_all_best() -> None:
    cluster = filled_cache([topology(name, PAIRS) for name in "abc"])
    assert priorities(cluster, 2) == {"a": 10, "b": 10, "c": 10}


def test_a_starting_pod_is_expected_to_take_what_the_device_plugin_would_give_it() -> None:
    half = "4xa100-pcie-half-bridged"  # only 0 and 1 are joined by NVLink
    cluster = filled_cache(
        [topology("pair-promised", half), topology("pair-free", half, {2: "x/a", 3: "x/a"})],
        pods=[pod("starting", 2, "pair-promised")],
    )
    assert priorities(cluster, 2) == {"pair-promised": 0, "pair-free": 10}


def test_a_node_without_room_or_topology_gets_nothing() -> None:
    cluster = filled_cache(
        [topology("fits", PAIRS), topology("full", PAIRS, dict.fromkeys(range(4), "x/a"))],
        bare_nodes=["bare"],
    )
    assert priorities(cluster, 2) == {"fits": 10, "full": 0, "bare": 0}


def test_where_no_node_has_room_none_is_preferred() -> None:
    assert priorities(filled_cache([topology("a", PAIRS)], bare_nodes=["b"]), 9) == {"a": 0, "b": 0}


def test_a_pod_without_gpus_is_not_drawn_anywhere() -> None:
    assert priorities(filled_cache([topology("a", PAIRS)], bare_nodes=["b"]), 0) == {"a": 0, "b": 0}


def test_nodes_of_one_kind_in_one_state_are_scored_once() -> None:
    memo = ScoreMemo()
    cluster = filled_cache([topology(f"n{number}", PAIRS) for number in range(50)])
    priorities(cluster, 2, memo)
    assert (memo.misses, memo.hits) == (1, 0)
    priorities(cluster, 2, memo)
    assert (memo.misses, memo.hits) == (1, 1)


def test_the_memo_keeps_no_more_than_its_limit_and_the_answers_stay_the_same() -> None:
    small, large = ScoreMemo(limit=2), ScoreMemo()
    cluster = filled_cache([topology(f"n{gpu}", "hgx-h100-8gpu", {gpu: "x/a"}) for gpu in range(8)])
    assert priorities(cluster, 2, small) == priorities(cluster, 2, large)
    assert len(small) == 2
    assert len(large) == 8


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        pytest.param([], [], id="no node"),
        pytest.param([(3,)], [10], id="one node"),
        pytest.param([(1,), (2,)], [0, 10], id="two classes are as far apart as can be"),
        pytest.param([(1,), (2,), (3,), (2,)], [0, 5, 10, 5], id="classes in between are spread"),
        pytest.param([(1, 9), (2, 0)], [0, 10], id="an earlier term decides before a later one"),
        pytest.param([(1,), ()], [10, 0], id="a node without room stays at 0"),
        pytest.param([(number,) for number in range(30)], None, id="more classes than priorities"),
    ],
)
def test_ranks_become_priorities(keys: list[tuple[int, ...]], expected: list[int] | None) -> None:
    found = ranks_to_priorities(keys)
    if expected is None:
        assert found[-1] == 10
        assert found.count(10) == 1
        assert found == sorted(found)
    else:
        assert found == expected


@given(st.lists(st.tuples(*[st.integers(-3, 3)] * 4)))
def test_priorities_follow_the_order_of_the_scores(keys: list[tuple[int, ...]]) -> None:
    found = ranks_to_priorities(keys)
    assert all(0 <= priority <= 10 for priority in found)
    for one, its in zip(keys, found, strict=True):
        for other, others in zip(keys, found, strict=True):
            assert (one > other) <= (its >= others)
            assert (one == other) <= (its == others)
    if keys:
        assert {key for key, priority in zip(keys, found, strict=True) if priority == 10} == {max(keys)}
