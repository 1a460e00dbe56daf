"""The victims that preempt answers with: room for the pod, nobody as important, budgets kept if possible."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp2026.api.names import (
    GANG_ANNOTATION,
    GANG_SIZE_ANNOTATION,
    GPU_MEMORY_RESOURCE,
    GPU_RESOURCE,
    GPU_SHARED_RESOURCE,
)
from mcp2026.scheduler_extender.budgets import budgets_broken, is_protected, selects
from mcp2026.scheduler_extender.cluster_events import ObservedBudget, ObservedPod
from mcp2026.scheduler_extender.kube_objects import (
    LabelSelector,
    Metadata,
    Pod,
    PodSpec,
    SelectorRequirement,
)
from mcp2026.scheduler_extender.preempting import preempt
from mcp2026.scheduler_extender.request import Demand, demands_of
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from mcp2026.scheduler_extender.wire import MetaVictims, PreemptionArgs, ProposedVictims
from tests.fakes.clusters import filled_cache, pod, topology, whole

FOUR = "4xa100-pcie-nvlink-pairs"
"""NVLink bridges join 0 with 1 and 2 with 3."""


def holder(name: str, resource: str, units: int, priority: int = 0, **labels: str) -> dict[str, Any]:
    document = pod(name, 0, "n", "Running")
    document["metadata"]["labels"] = labels
    document["spec"]["priority"] = priority
    (container,) = document["spec"]["containers"]
    container["resources"] = {"limits": {resource: str(units), "cpu": "1", "memory": "1Gi"}}
    return document


def budget(name: str, allowed: int, **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "default", "name": name},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": allowed},
    }


def asked(
    document: dict[str, Any],
    pods: list[dict[str, Any]],
    demands: tuple[Demand, ...],
    proposed: tuple[str, ...] = (),
    budgets: tuple[dict[str, Any], ...] = (),
    priority: int = 100,
) -> MetaVictims | None:
    snapshot = filled_cache([document], pods, budgets=budgets).snapshot()
    args = PreemptionArgs(Pod(), PodSpec(priority=priority), {"n": ProposedVictims(proposed, 0)})
    return preempt(snapshot, args, demands, ScoreMemo()).get("n")


def uids(victims: MetaVictims | None) -> set[str] | None:
    return None if victims is None else {victim.uid for victim in victims.pods}


def test_for_a_member_of_a_gang_nobody_goes() -> None:
    snapshot = filled_cache([topology("n", FOUR, HELD)], holders()).snapshot()
    for annotations, expected in (({GANG_ANNOTATION: "g", GANG_SIZE_ANNOTATION: "2"}, set()), ({}, {"n"})):
        asking = Pod(metadata=Metadata(annotations=annotations))
        args = PreemptionArgs(asking, PodSpec(priority=100), {"n": ProposedVictims(("uid-a",), 0)})
        assert set(preempt(snapshot, args, whole(2), ScoreMemo())) == expected


HELD = {0: "default/a", 1: "default/b", 2: "default/a", 3: "default/c"}
"""a holds one GPU of each pair."""


def holders(a: int = 0, b: int = 0, c: int = 0) -> list[dict[str, Any]]:
    return [
        holder("a", GPU_RESOURCE, 2, a, app="a"),
        holder("b", GPU_RESOURCE, 1, b, app="b"),
        holder("c", GPU_RESOURCE, 1, c, app="c"),
    ]


@pytest.mark.parametrize(
    ("pods", "gpus", "budgets", "victims", "broken"),
    [
        pytest.param(holders(), 1, (), {"uid-b"}, 0, id="one pod for one GPU"),
        pytest.param(holders(), 2, (), {"uid-a", "uid-b"}, 0, id="two pods for a linked pair"),
        pytest.param(
            holders(a=5), 2, (), {"uid-b", "uid-c"}, 0, id="a link does not cost a more important pod"
        ),
        pytest.param(holders(b=100), 2, (), {"uid-a", "uid-c"}, 0, id="an equal priority is kept"),
        pytest.param(holders(a=100, b=101), 2, (), None, 0, id="too few may go"),
        pytest.param(holders(), 1, (budget("x", 0, app="b"),), {"uid-c"}, 0, id="a budget is kept"),
        pytest.param(
            holders(),
            4,
            (budget("x", 0, app="b"),),
            {"uid-a", "uid-b", "uid-c"},
            1,
            id="a budget is broken where nothing else helps, and counted",
        ),
        pytest.param(holders(), 5, (), None, 0, id="more than the machine has"),
    ],
)
def test_whole_gpus(
    pods: list[dict[str, Any]],
    gpus: int,
    budgets: tuple[dict[str, Any], ...],
    victims: set[str] | None,
    broken: int,
) -> None:
    found = asked(topology("n", FOUR, HELD), pods, whole(gpus), budgets=budgets)
    assert uids(found) == victims
    assert found is None or found.num_pdb_violations == broken


def test_a_pod_that_is_leaving_is_not_evicted_again_and_its_gpus_count() -> None:
    pods = holders()
    pods[0]["metadata"]["deletionTimestamp"] = "2026-11-30T12:00:00Z"
    assert uids(asked(topology("n", FOUR, HELD), pods, whole(2))) == set()


def test_unhealthy_gpus_are_not_worth_an_eviction() -> None:
    document = topology("n", FOUR, HELD, unhealthy=[1])
    assert uids(asked(document, holders(), whole(1))) == {"uid-c"}


def test_an_empty_proposal_is_filled_and_one_for_cpu_is_kept() -> None:
    assert uids(asked(topology("n", FOUR, HELD), holders(), whole(1), ("uid-web",))) == {"uid-b", "uid-web"}


def test_a_node_that_is_not_known_is_left_out() -> None:
    snapshot = filled_cache([]).snapshot()
    args = PreemptionArgs(Pod(), PodSpec(), {"n": ProposedVictims(("x",), 0)})
    assert preempt(snapshot, args, whole(1), ScoreMemo()) == {}


def test_a_pod_without_gpus_has_the_victims_of_the_scheduler() -> None:
    victims = asked(topology("n", FOUR, HELD), holders(), (), ("x", "y"))
    assert uids(victims) == {"x", "y"}


def shared_gpu(resource: str, mode: str, unit: str, *taken: tuple[str, int]) -> dict[str, Any]:
    document = topology("n", "1xt4-edge")
    (gpu,) = document["status"]["gpus"]
    gpu["sharing"] = {
        "mode": mode,
        "unit": unit,
        "replicas": 4 if unit == "Replica" else None,
        "state": "Active",
    }
    gpu["allocations"] = [
        {"resource": resource, "units": units, "namespace": "default", "pod": name, "container": "main"}
        for name, units in taken
    ]
    return document


def demand(resource: str, units: int) -> tuple[Demand, ...]:
    document = holder("x", resource, units)
    return demands_of(msgspec.convert(document["spec"], PodSpec))


@pytest.mark.parametrize(
    ("priorities", "units", "victims"),
    [
        ({"a": 0, "b": 0, "c": 0}, 8, {"uid-b"}),
        ({"a": 0, "b": 50, "c": 0}, 8, {"uid-a", "uid-c"}),
        ({"a": 0, "b": 50, "c": 0}, 14, {"uid-a", "uid-b", "uid-c"}),
        ({"a": 0, "b": 100, "c": 0}, 14, None),
    ],
)
def test_memory_is_freed_from_the_least_important(
    priorities: dict[str, int], units: int, victims: set[str] | None
) -> None:
    taken = {"a": 4, "b": 7, "c": 3}
    document = shared_gpu(GPU_MEMORY_RESOURCE, "MPS", "Memory", *taken.items())
    pods = [holder(name, GPU_MEMORY_RESOURCE, taken[name], priority) for name, priority in priorities.items()]
    assert uids(asked(document, pods, demand(GPU_MEMORY_RESOURCE, units))) == victims


def test_shares_are_freed_by_as_few_as_needed() -> None:
    document = shared_gpu(GPU_SHARED_RESOURCE, "TimeSlice", "Replica", ("a", 1), ("b", 3))
    pods = [holder("a", GPU_SHARED_RESOURCE, 1), holder("b", GPU_SHARED_RESOURCE, 3, 1)]
    assert uids(asked(document, pods, demand(GPU_SHARED_RESOURCE, 1))) == {"uid-a"}
    assert uids(asked(document, pods, demand(GPU_SHARED_RESOURCE, 3))) == {"uid-b"}


@given(
    held=st.lists(st.integers(-1, 4), min_size=4, max_size=4),
    priorities=st.lists(st.integers(0, 3), min_size=5, max_size=5),
    size=st.integers(1, 4),
    priority=st.integers(0, 4),
    allowed=st.integers(0, 2),
)
def test_when_the_victims_have_gone_the_pod_fits_and_each_of_them_had_to(
    held: list[int], priorities: list[int], size: int, priority: int, allowed: int
) -> None:
    owners = {gpu: f"default/{who}" for gpu, who in enumerate(held) if who >= 0}
    pods = [
        holder(str(who), GPU_RESOURCE, held.count(who), priorities[who], half=str(who % 2))
        for who in sorted(set(held) - {-1})
    ]
    budgets = (budget("even", allowed, half="0"),)
    victims = asked(topology("n", FOUR, owners), pods, whole(size), budgets=budgets, priority=priority)
    may_go = {f"uid-{who}" for who in set(held) - {-1} if priorities[who] < priority}

    def room(gone: set[str]) -> int:
        return sum(1 for who in held if who == -1 or f"uid-{who}" in gone)

    if victims is None:
        assert room(may_go) < size
        return
    going = uids(victims) or set()
    assert going <= may_go
    assert room(going) >= size
    if room(set()) >= size:
        assert going == set()
    worst = max((priorities[int(uid.removeprefix("uid-"))] for uid in going), default=-1)
    kept_budget = {uid for uid in may_go if int(uid.removeprefix("uid-")) % 2 or allowed}
    if going and victims.num_pdb_violations == 0 and going <= kept_budget:
        less_important = {uid for uid in kept_budget if priorities[int(uid.removeprefix("uid-"))] < worst}
        assert room(less_important) < size


@pytest.mark.parametrize(
    ("selector", "labels", "means"),
    [
        (LabelSelector(), {"a": "1"}, True),
        (LabelSelector(match_labels={"a": "1"}), {"a": "1", "b": "2"}, True),
        (LabelSelector(match_labels={"a": "1"}), {"a": "2"}, False),
        (LabelSelector(match_expressions=(SelectorRequirement("a", "In", ("1", "2")),)), {"a": "2"}, True),
        (LabelSelector(match_expressions=(SelectorRequirement("a", "NotIn", ("1",)),)), {}, True),
        (LabelSelector(match_expressions=(SelectorRequirement("a", "NotIn", ("1",)),)), {"a": "1"}, False),
        (LabelSelector(match_expressions=(SelectorRequirement("a", "Exists"),)), {"a": ""}, True),
        (LabelSelector(match_expressions=(SelectorRequirement("a", "DoesNotExist"),)), {"b": ""}, True),
        (LabelSelector(match_expressions=(SelectorRequirement("a", "New"),)), {"a": ""}, False),
    ],
)
def test_selectors_mean_what_they_mean_in_kubernetes(
    selector: LabelSelector, labels: dict[str, str], means: bool
) -> None:
    assert selects(selector, labels) is means


def observed(name: str, namespace: str = "ns") -> ObservedPod:
    return ObservedPod(namespace, name, f"uid-{name}", "n", labels={"app": "x"})


@pytest.mark.parametrize(
    ("allowed", "going", "broken"),
    [(2, (), 0), (1, (), 1), (0, (), 2), (0, ("a",), 1), (0, ("a", "b"), 0)],
)
def test_each_eviction_uses_up_a_disruption(allowed: int, going: tuple[str, ...], broken: int) -> None:
    protecting = ObservedBudget(
        "ns", "b", LabelSelector(match_labels={"app": "x"}), allowed, frozenset(going)
    )
    assert budgets_broken([observed("a"), observed("b")], [protecting]) == broken


def test_a_budget_protects_in_its_own_namespace_alone_and_without_a_selector_nothing() -> None:
    protecting = ObservedBudget("ns", "b", LabelSelector(), 0)
    assert is_protected(observed("a"), [protecting])
    assert not is_protected(observed("a", "other"), [protecting])
    assert not is_protected(observed("a"), [ObservedBudget("ns", "b", None, 0)])
