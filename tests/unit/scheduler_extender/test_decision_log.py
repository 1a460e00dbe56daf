"""What is kept of decisions: grouped, bounded, and enough to say why."""

import msgspec
import pytest

from mcp2026.api.gpu_devices import DeviceKind
from mcp2026.api.names import GPU_RESOURCE, GPU_SHARED_RESOURCE
from mcp2026.scheduler_extender.decision_log import (
    CLASSES_SHOWN,
    NAMES_SHOWN,
    DecisionLog,
    ranked_nodes,
)
from mcp2026.scheduler_extender.filtering import Filtered, filter_nodes
from mcp2026.scheduler_extender.prioritizing import rank_nodes
from mcp2026.scheduler_extender.request import Demand
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from tests.fakes.clusters import filled_cache, topology, whole

FOUR = "4xa100-pcie-nvlink-pairs"
CLUSTER = filled_cache(
    [
        *(topology(f"full-{number}", FOUR, dict.fromkeys(range(4), "x/a")) for number in range(9)),
        topology("split", FOUR, {0: "x/a", 2: "x/b"}),
        topology("linked", FOUR, {0: "x/a", 1: "x/b"}),
    ],
    bare_nodes=["bare"],
).snapshot()


def filtered(gpus: int) -> Filtered:
    return filter_nodes(CLUSTER, tuple(CLUSTER.nodes), whole(gpus))


def test_nodes_are_grouped_by_reason_with_a_count_and_a_few_names() -> None:
    log = DecisionLog()
    log.filtered("ns/p", "u", whole(2), filtered(2), 7.0)
    (decision,) = log.of_pod("ns/p")
    assert (decision.asked, decision.attempts, decision.fitting, decision.at) == (("2 GPUs",), 1, 2, 7.0)
    full, bare = decision.refused
    assert (full.reason, full.preemptible) == ("needs 2 GPUs, 0 of 4 free (0,1,2,3 held)", True)
    assert (full.group.count, len(full.group.nodes)) == (9, NAMES_SHOWN)
    assert (bare.group.nodes, bare.preemptible) == (("bare",), False)


def test_classes_of_nodes_are_told_with_their_terms_and_the_gpus_that_would_be_taken() -> None:
    memo = ScoreMemo()
    ranked = ranked_nodes(rank_nodes(CLUSTER, ("split", "linked"), whole(2), memo), whole(2), memo)
    linked, split = ranked
    assert (linked.group.nodes, linked.priority, linked.gpus) == (("linked",), 10, (2, 3))
    assert (split.group.nodes, split.priority, split.gpus) == (("split",), 0, (1, 3))
    weakest = {term.name: (term.value, term.unit) for term in linked.terms}["weakest-link"]
    assert weakest == (300, "GB/s")


def test_shares_are_explained_too() -> None:
    document = topology("n", FOUR)
    document["status"]["gpus"][1]["sharing"] = {"mode": "TimeSlice", "replicas": 4, "state": "Active"}
    snapshot = filled_cache([document]).snapshot()
    demands = (Demand(GPU_SHARED_RESOURCE, DeviceKind.SHARE, 1, (("main", 1),)),)
    (ranked,) = ranked_nodes(rank_nodes(snapshot, ("n",), demands, ScoreMemo()), demands, ScoreMemo())
    assert ranked.gpus == (1,)
    assert {term.name for term in ranked.terms} == {
        "slo-shortfall",
        "other-qos-on-gpus",
        "shares-of-one-gpu",
        "left-on-these-gpus",
        "other-qos-on-node",
        "free-percent",
    }


def test_no_more_classes_are_told_than_can_be_read() -> None:
    held = [{gpu: "x/a" for gpu in range(8) if number >> gpu & 1} for number in range(1, 100)]
    topologies = [topology(f"n{number}", "hgx-h100-8gpu", taken) for number, taken in enumerate(held)]
    snapshot = filled_cache(topologies).snapshot()
    memo = ScoreMemo()
    ranking = rank_nodes(snapshot, tuple(snapshot.nodes), whole(1), memo)
    shown = ranked_nodes(ranking, whole(1), memo)
    assert len(ranking.priorities) > CLASSES_SHOWN == len(shown)
    assert shown[0].priority == 10


def test_each_step_of_a_pod_adds_to_its_decision_and_a_new_attempt_begins_anew() -> None:
    log = DecisionLog()
    log.filtered("ns/p", "u", whole(2), filtered(2), 1.0)
    log.preempted("u", {"linked": ("a", "b")}, 2.0)
    log.bound("u", "linked", {"main": {GPU_RESOURCE: ("GPU-x",)}}, "", 3.0)
    (decision,) = log.latest()
    assert (decision.node, decision.victims, decision.at) == ("linked", {"linked": ("a", "b")}, 3.0)
    log.filtered("ns/p", "u", whole(2), filtered(2), 4.0)
    (decision,) = log.latest()
    assert (decision.attempts, decision.node, decision.victims) == (2, "", {})


def test_a_pod_that_filter_was_not_asked_about_is_not_kept() -> None:
    log = DecisionLog()
    log.bound("u", "linked", {}, "gone", 1.0)
    assert log.latest() == ()


def test_the_oldest_go_first() -> None:
    log = DecisionLog(limit=2)
    for name in "abca":
        log.filtered(f"ns/{name}", name, whole(1), filtered(1), 1.0)
    assert [decision.pod for decision in log.latest()] == ["ns/a", "ns/c"]


@pytest.mark.parametrize("gpus", [1, 8])
def test_a_decision_is_json_with_names_as_kubernetes_writes_them(gpus: int) -> None:
    log = DecisionLog()
    log.filtered("ns/p", "u", whole(gpus), filtered(gpus), 1.0)
    (document,) = msgspec.json.decode(msgspec.json.encode(log.latest()))
    assert {"pod", "asked", "fitting", "refused", "ranked", "victims", "node", "reserved"} <= set(document)
