"""Models that wait for each other: what a cycle is, and what is said and done about it."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp2026.operator.actions import ApplyChild
from mcp2026.operator.dependencies import cycle_through, waiting_on
from tests.fakes.played_cluster import PlayedCluster, model

GRAPHS = [
    pytest.param({}, "a", (), id="nothing"),
    pytest.param({"a": ["b"], "b": []}, "a", (), id="a chain"),
    pytest.param({"a": ["b", "c"], "b": ["d"], "c": ["d"]}, "a", (), id="two ways to one model"),
    pytest.param({"a": ["b"], "b": ["a"]}, "a", ("a", "b", "a"), id="two that wait for each other"),
    pytest.param({"a": ["b"], "b": ["c"], "c": ["a"]}, "b", ("b", "c", "a", "b"), id="three in a ring"),
    pytest.param(
        {"a": ["b"], "b": ["c"], "c": ["b"]}, "a", (), id="it waits for a cycle and is no part of it"
    ),
    pytest.param(
        {"a": ["b", "d"], "b": ["c"], "c": ["a"], "d": ["a"]}, "a", ("a", "d", "a"), id="the shortest of two"
    ),
    pytest.param({"a": ["a"]}, "a", ("a", "a"), id="itself, which the API server refuses"),
]


@pytest.mark.parametrize(("graph", "name", "cycle"), GRAPHS)
def test_a_cycle_is_named_in_its_order(
    graph: dict[str, list[str]], name: str, cycle: tuple[str, ...]
) -> None:
    assert cycle_through(name, graph) == cycle


NAMES = st.sampled_from("abcdef")


@given(st.dictionaries(NAMES, st.lists(NAMES, max_size=4)))
def test_a_cycle_is_a_way_along_the_graph_and_none_is_missed(graph: dict[str, list[str]]) -> None:
    for name in "abcdef":
        cycle = cycle_through(name, graph)
        for start, end in itertools.pairwise(cycle):
            assert end in graph[start]
        assert bool(cycle) == (name in waiting_on(name, graph))
        assert cycle[:1] == cycle[-1:]


def test_all_that_wait_directly_or_not_are_found() -> None:
    graph = {"a": ["b"], "b": ["c"], "c": ["a"], "far": ["a"], "farther": ["far"], "apart": ["x"]}
    assert waiting_on("c", graph) == {"a", "b", "c", "far", "farther"}


CYCLE = ("resnet50", "tokenizer", "resnet50")
WORDS = "dependsOn leads back here: resnet50 → tokenizer → resnet50"


def test_a_model_in_a_cycle_gets_nothing_and_says_why_until_the_cycle_is_broken() -> None:
    cluster = PlayedCluster(model(dependsOn=["tokenizer"]))
    cluster.dependencies, cluster.cycle = {"tokenizer": None}, CYCLE
    assert not any(isinstance(action, ApplyChild) for action in cluster.reconcile())
    assert cluster.resource["status"]["phase"] == "Pending"
    for kind in ("Ready", "ResourcesAllocated", "TrafficSettled"):
        assert cluster.condition(kind)["status"] == "False"
        assert cluster.condition(kind)["reason"] == "DependencyCycle"
        assert cluster.condition(kind)["message"].startswith(f"{WORDS}; none of them can start")
    assert cluster.condition("RolloutBlocked")["status"] == "True"
    assert [(event.type, event.reason) for event in cluster.told] == [("Warning", "DependencyCycle")]
    assert cluster.reconcile() == []
    cluster.cycle = ()
    cluster.reconcile()
    assert cluster.condition("Ready")["reason"] == "WaitingForDependencies"
    assert cluster.condition("RolloutBlocked")["status"] == "False"


def test_a_cycle_that_is_made_later_takes_nothing_away_and_is_told() -> None:
    cluster = PlayedCluster(model())
    cluster.serve()
    cluster.edit(dependsOn=["tokenizer"])
    cluster.dependencies, cluster.cycle = {"tokenizer": None}, CYCLE
    cluster.reconcile()
    assert cluster.condition("Ready")["status"] == "True"
    blocked = cluster.condition("RolloutBlocked")
    assert (blocked["status"], blocked["reason"]) == ("True", "DependencyCycle")
    assert blocked["message"].startswith(f"{WORDS}; what runs serves on")
    cluster.edit(batching={"maxBatchSize": 16})
    cluster.reconcile()
    assert cluster.revision == 2
