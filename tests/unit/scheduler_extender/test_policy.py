"""The bands beside links: a latency that was promised, QoS classes kept apart, nodes filled or spread."""

import json
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp2026.api.gpu_devices import DeviceKind
from mcp2026.api.names import GPU_MEMORY_RESOURCE, GPU_SHARED_RESOURCE, MODEL_LABEL
from mcp2026.api.scheduling_context import QosClass
from mcp2026.scheduler_extender.cache import ClusterCache
from mcp2026.scheduler_extender.choosing import best_key, choose_parts
from mcp2026.scheduler_extender.cluster_events import Kind, ObservedPod, observe
from mcp2026.scheduler_extender.decision_log import ranked_nodes
from mcp2026.scheduler_extender.parts_placement import Parts, place_parts
from mcp2026.scheduler_extender.policy import LatencyModel, MeasuredLatency, Packing, Policy
from mcp2026.scheduler_extender.preferences import Preferences
from mcp2026.scheduler_extender.prioritizing import rank_nodes
from mcp2026.scheduler_extender.promises import promised_latency_us
from mcp2026.scheduler_extender.request import Demand
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from mcp2026.scheduler_extender.snapshot import NodeGpus, Tenants
from mcp2026.topology.demand import DemandMix
from mcp2026.topology.score import Circumstances, score_gpu_set
from tests.fakes.clusters import filled_cache, pod, topology, whole

PAIRS = "4xa100-pcie-nvlink-pairs"
GUARANTEED, BURSTABLE = QosClass.GUARANTEED, QosClass.BURSTABLE
AMOUNTS = {
    GUARANTEED: {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
    BURSTABLE: {"requests": {"cpu": "1"}, "limits": {}},
}
SHARE = (Demand(GPU_SHARED_RESOURCE, DeviceKind.SHARE, 1, (("main", 1),)),)


def with_qos(document: dict[str, Any], qos: QosClass) -> dict[str, Any]:
    resources = document["spec"]["containers"][0]["resources"]
    for which, amounts in AMOUNTS[qos].items():
        resources[which] = {**resources.get(which, {}), **amounts}
    return document


def priorities(
    cluster: ClusterCache, demands: tuple[Demand, ...], preferences: Preferences
) -> dict[str, int]:
    snapshot = cluster.snapshot()
    ranking = rank_nodes(snapshot, tuple(snapshot.nodes), demands, ScoreMemo(), preferences)
    return dict(zip(ranking.nodes, ranking.priority_of_each(), strict=True))


def neighbours(machine: str = PAIRS) -> ClusterCache:
    """Node `steady` has a Guaranteed pod, `bursty` a Burstable one, on the same GPU."""
    return filled_cache(
        [topology(name, machine, {3: f"default/{name}"}) for name in ("steady", "bursty")],
        [
            with_qos(pod("steady", 1, "steady", "Running"), GUARANTEED),
            with_qos(pod("bursty", 1, "bursty", "Running"), BURSTABLE),
        ],
    )


@pytest.mark.parametrize(
    ("qos", "policy", "expected"),
    [
        pytest.param(GUARANTEED, Policy(), {"steady": 10, "bursty": 0}, id="guaranteed beside guaranteed"),
        pytest.param(BURSTABLE, Policy(), {"steady": 0, "bursty": 10}, id="burstable beside burstable"),
        pytest.param(QosClass.BEST_EFFORT, Policy(), {"steady": 0, "bursty": 10}, id="best effort too"),
        pytest.param(None, Policy(), {"steady": 10, "bursty": 10}, id="an unknown class is neutral"),
        pytest.param(
            GUARANTEED, Policy(guaranteed_apart=False), {"steady": 10, "bursty": 10}, id="not kept apart"
        ),
    ],
)
def test_guaranteed_pods_are_kept_apart_on_nodes(
    qos: QosClass | None, policy: Policy, expected: dict[str, int]
) -> None:
    assert priorities(neighbours(), whole(1), Preferences(policy, qos)) == expected


def test_a_better_link_goes_before_calm_neighbours() -> None:
    cluster = filled_cache(
        [
            topology("split", PAIRS, {1: "default/a", 3: "default/a"}),
            topology("linked", PAIRS, {2: "default/b", 3: "default/b"}),
        ],
        [with_qos(pod("a", 2, "split"), GUARANTEED), with_qos(pod("b", 2, "linked"), BURSTABLE)],
    )
    assert priorities(cluster, whole(2), Preferences(qos=GUARANTEED)) == {"split": 0, "linked": 10}


@pytest.mark.parametrize(
    ("packing", "expected"),
    [
        pytest.param(None, {"emptier": 10, "fuller": 10}, id="left to kube-scheduler"),
        pytest.param("Pack", {"emptier": 0, "fuller": 10}, id="the fullest"),
        pytest.param("Spread", {"emptier": 10, "fuller": 0}, id="the emptiest"),
    ],
)
def test_nodes_that_are_equal_otherwise_are_filled_or_spread(
    packing: Packing | None, expected: dict[str, int]
) -> None:
    cluster = filled_cache(
        [
            topology("emptier", PAIRS, {2: "x/b"}),
            topology("fuller", PAIRS, {0: "x/a", 1: "x/a", 2: "x/b"}),
        ]
    )
    assert priorities(cluster, whole(1), Preferences(Policy(packing))) == expected


def test_spreading_never_breaks_what_later_requests_need() -> None:
    cluster = filled_cache([topology("idle", PAIRS), topology("half", PAIRS, {2: "x/a", 3: "x/a"})])
    assert priorities(cluster, whole(2), Preferences(Policy("Spread"))) == {"idle": 0, "half": 10}


def test_the_mix_of_later_requests_decides_which_gpu_is_spared() -> None:
    cluster = filled_cache([topology("idle", PAIRS), topology("lone", PAIRS, {1: "x/a"})])
    singles = Policy(mix=DemandMix.of({1: 100}))
    assert priorities(cluster, whole(1), Preferences()) == {"idle": 0, "lone": 10}
    expected = rank_nodes(
        cluster.snapshot(), ("idle", "lone"), whole(1), ScoreMemo(), Preferences(singles)
    ).best(1)[0]
    (shown, *_) = ranked_nodes(
        rank_nodes(cluster.snapshot(), expected.nodes, whole(1), ScoreMemo(), Preferences(singles)),
        whole(1),
        ScoreMemo(),
        Preferences(singles),
    )
    assert next(term.value for term in shown.terms if term.name == "future-loss") == 0


# ---- latency ----

A100, L40S = "NVIDIA A100-PCIE-40GB", "NVIDIA L40S"
TABLE = LatencyModel(
    [
        MeasuredLatency("resnet", A100, "", 0, 8_000),
        MeasuredLatency("resnet", A100, "", 2, 20_000),
        MeasuredLatency("resnet", L40S, "", 0, 30_000),
        MeasuredLatency("resnet", "", "1g.10gb", 0, 50_000),
        MeasuredLatency("resnet", A100, "1g.10gb", 0, 60_000),
    ]
)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        pytest.param(("resnet", A100, "", 0), 8_000, id="as measured"),
        pytest.param(("resnet", A100, "", 1), 8_000, id="between two rows: the one below"),
        pytest.param(("resnet", A100, "", 5), 20_000, id="above all rows: the last"),
        pytest.param(("resnet", A100, "1g.10gb", 0), 60_000, id="a profile on a product"),
        pytest.param(("resnet", L40S, "1g.10gb", 3), 50_000, id="a profile on any product"),
        pytest.param(("resnet", "H100", "", 0), None, id="another product"),
        pytest.param(("bert", A100, "", 0), None, id="another model"),
    ],
)
def test_a_latency_is_predicted_from_what_was_measured(
    place: tuple[str, str, str, int], expected: int | None
) -> None:
    assert TABLE.predicted_us(*place) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("25", 25_000),
        ("2.5", 2_500),
        (" 7 ", 7_000),
        ("0", None),
        ("-3", None),
        ("25ms", None),
        ("nan", None),
        ("1e3", None),
        ("", None),
        ("999999", None),
    ],
)
def test_a_promise_is_a_number_of_milliseconds(value: str, expected: int | None) -> None:
    assert promised_latency_us({"mcp2026.io/slo-latency-p95-ms": value}) == expected


def product_cluster() -> ClusterCache:
    slow, fast, unknown = (topology(name, PAIRS) for name in ("slow", "fast", "unknown"))
    for document, product in ((slow, L40S), (fast, A100), (unknown, "H100")):
        for gpu in document["status"]["gpus"]:
            gpu["product"] = product
    return filled_cache([slow, fast, unknown])


@pytest.mark.parametrize(
    ("slo_ms", "model", "expected"),
    [
        pytest.param(10, "resnet", {"slow": 0, "fast": 10, "unknown": 10}, id="what breaks it is last"),
        pytest.param(5, "resnet", {"slow": 0, "fast": 5, "unknown": 10}, id="by how much it breaks it"),
        pytest.param(40, "resnet", {"slow": 10, "fast": 10, "unknown": 10}, id="kept is kept"),
        pytest.param(10, "bert", {"slow": 10, "fast": 10, "unknown": 10}, id="a model nobody measured"),
        pytest.param(None, "resnet", {"slow": 10, "fast": 10, "unknown": 10}, id="no promise"),
    ],
)
def test_a_node_that_breaks_the_promise_is_ranked_last_and_not_refused(
    slo_ms: int | None, model: str, expected: dict[str, int]
) -> None:
    preferences = Preferences(Policy(latency=TABLE), None, model, None if slo_ms is None else slo_ms * 1000)
    assert priorities(product_cluster(), whole(1), preferences) == expected


def test_a_broken_promise_is_in_the_explanation() -> None:
    preferences = Preferences(Policy(latency=TABLE), None, "resnet", 10_000)
    snapshot = product_cluster().snapshot()
    memo = ScoreMemo()
    shown = ranked_nodes(
        rank_nodes(snapshot, ("slow", "fast"), whole(1), memo, preferences), whole(1), memo, preferences
    )
    assert [(nodes.group.nodes, nodes.predicted_p95_ms) for nodes in shown] == [
        (("fast",), 8.0),
        (("slow",), 30.0),
    ]
    assert [nodes.terms[0].value for nodes in shown] == [0, -20_000]


def shared(*tenants: Tenants, free: int = 3) -> NodeGpus:
    """A node whose four GPUs are sold in four shares each."""
    snapshot = filled_cache([topology("n", PAIRS)]).snapshot()
    gpus = snapshot.nodes["n"].gpus
    assert gpus is not None
    parts = tuple(
        Parts(position, 4, free, tuple(f"{position}::{each}" for each in range(free)))
        for position in range(4)
    )
    return NodeGpus(
        gpus.graph,
        gpus.fingerprint,
        gpus.indices,
        gpus.uuids,
        not_whole=frozenset(range(4)),
        parts={GPU_SHARED_RESOURCE: parts},
        products=(A100,) * 4,
        tenants=tenants,
    )


def test_a_share_comes_from_a_gpu_without_pods_of_the_other_kind() -> None:
    gpus = shared(Tenants(0, 1), Tenants(2, 0), Tenants(0, 2), Tenants(1, 1))
    assert dict(choose_parts(gpus, SHARE[0], Preferences(qos=GUARANTEED)).units) == {1: 1}
    assert dict(choose_parts(gpus, SHARE[0], Preferences(qos=BURSTABLE)).units) == {0: 1}
    assert dict(
        choose_parts(gpus, SHARE[0], Preferences(Policy(guaranteed_apart=False), GUARANTEED)).units
    ) == {0: 1}


def test_a_promise_goes_before_the_qos_class_on_shared_gpus() -> None:
    gpus = shared(Tenants(2, 0), Tenants(0, 1), Tenants(3, 0), Tenants(2, 2))
    promised = Preferences(Policy(latency=TABLE), GUARANTEED, "resnet", 10_000)
    choice = choose_parts(gpus, SHARE[0], promised)
    assert dict(choice.units) == {1: 1}
    assert choice.terms[:2] == (("slo-shortfall", 0), ("other-qos-on-gpus", -1))


def test_the_cache_counts_who_is_on_a_shared_gpu() -> None:
    document = topology("n", PAIRS)
    for gpu in document["status"]["gpus"]:
        gpu["sharing"] = {"mode": "TimeSlice", "replicas": 4, "state": "Active"}
    gpu = document["status"]["gpus"][2]
    gpu["allocations"] = [
        {
            "resource": GPU_SHARED_RESOURCE,
            "devices": [f"{gpu['uuid']}::0"],
            "units": 1,
            "namespace": "default",
            "pod": "bursty",
            "container": "main",
        }
    ]
    bursty = pod("bursty", 0, "n", "Running")
    bursty["spec"]["containers"][0]["resources"] = {"limits": {GPU_SHARED_RESOURCE: "1"}}
    cluster = filled_cache([document], [with_qos(bursty, BURSTABLE)])
    gpus = cluster.snapshot().nodes["n"].gpus
    assert gpus is not None
    assert gpus.tenants == (Tenants(), Tenants(), Tenants(0, 1), Tenants())
    assert cluster.snapshot().others.counts == {"n": 1}


def test_what_a_pod_asks_for_beside_gpus_is_read_from_it() -> None:
    document = with_qos(pod("p", 1), GUARANTEED)
    document["metadata"] |= {
        "labels": {MODEL_LABEL: "resnet"},
        "annotations": {"mcp2026.io/slo-latency-p95-ms": "12.5"},
    }
    observed = observe(Kind.PODS, json.dumps(document).encode())
    assert isinstance(observed, ObservedPod)
    preferences = Preferences.of(observed, Policy())
    assert (preferences.qos, preferences.model, preferences.slo_us) == (GUARANTEED, "resnet", 12_500)


# ---- against an exhaustive reference ----

NODES = st.lists(
    st.tuples(
        st.sampled_from([PAIRS, "4xa100-pcie-half-bridged", "4xl40s-pcie-2socket"]),
        st.sets(st.integers(0, 3)),
        st.sampled_from([A100, L40S, "H100"]),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=6,
)
POLICIES = st.builds(
    Policy,
    st.sampled_from([None, "Pack", "Spread"]),
    st.sampled_from([DemandMix.of({1: 40, 2: 30, 4: 20, 8: 10}), DemandMix.of({1: 50, 2: 50})]),
    st.booleans(),
    st.just(TABLE),
)


@settings(max_examples=60, deadline=None)
@given(
    NODES,
    POLICIES,
    st.sampled_from([None, GUARANTEED, BURSTABLE]),
    st.sampled_from([None, 5_000, 10_000]),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_nodes_are_ranked_as_by_trying_all_sets(
    nodes: list[tuple[str, set[int], str, int]],
    policy: Policy,
    qos: QosClass | None,
    slo_us: int | None,
    asked: int,
    random: Any,
) -> None:
    documents, pods = [], []
    for place, (machine, held, product, bursty) in enumerate(nodes):
        document = topology(f"n{place}", machine, dict.fromkeys(held, "x/unknown"))
        for gpu in document["status"]["gpus"]:
            gpu["product"] = product
        documents.append(document)
        for number in range(min(bursty, 4 - len(held))):
            gpu_of_it = sorted(set(range(4)) - held)[number]
            document["status"]["gpus"][gpu_of_it]["heldBy"] = {
                "namespace": "default",
                "pod": f"b{place}-{number}",
                "container": "main",
            }
            pods.append(with_qos(pod(f"b{place}-{number}", 1, f"n{place}", "Running"), BURSTABLE))
    snapshot = filled_cache(documents, pods).snapshot()
    preferences = Preferences(policy, qos, "resnet", slo_us)

    def reference(name: str) -> tuple[int, ...]:
        gpus = snapshot.nodes[name].gpus
        assert gpus is not None
        if len(gpus.free) < asked:
            return ()
        p95 = TABLE.predicted_us("resnet", gpus.products[0], "", 0)
        short = 0 if slo_us is None or p95 is None else min(0, slo_us - p95)
        circumstances = Circumstances(headroom_us=(short,) * 4, mix=policy.mix)
        best = max(
            score_gpu_set(gpus.graph, chosen, gpus.free, circumstances).key
            for chosen in combinations(gpus.free, asked)
        )
        apart = policy.guaranteed_apart and qos is not None
        others = (snapshot.others.counts.get(name, 0) if qos is GUARANTEED else 0) if apart else 0
        percent = 100 * len(gpus.free) // 4
        packed = {None: 0, "Pack": -percent, "Spread": percent}[policy.packing]
        return (*best, -others, packed)

    names = list(snapshot.nodes)
    ranking = rank_nodes(snapshot, tuple(names), whole(asked), ScoreMemo(), preferences)
    found = dict(zip(ranking.nodes, ranking.priority_of_each(), strict=True))
    keys = {name: reference(name) for name in names}
    for one in names:
        for other in names:
            if keys[one] and keys[other]:
                assert (keys[one] >= keys[other]) or found[one] <= found[other]
                assert (keys[one] != keys[other]) or found[one] == found[other]
    if any(keys.values()):
        best = max(keys.values())
        assert {name for name in names if found[name] == 10} == {name for name in names if keys[name] == best}
    random.shuffle(names)
    again = rank_nodes(snapshot, tuple(names), whole(asked), ScoreMemo(), preferences)
    assert dict(zip(again.nodes, again.priority_of_each(), strict=True)) == found


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=4),
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=4, max_size=4),
    st.sampled_from([DeviceKind.MEMORY, DeviceKind.SHARE]),
)
def test_what_speaks_against_gpus_never_takes_the_last_place_away(
    free: list[int], asked: list[int], against: list[tuple[int, int]], kind: DeviceKind
) -> None:
    resource = {DeviceKind.MEMORY: GPU_MEMORY_RESOURCE, DeviceKind.SHARE: GPU_SHARED_RESOURCE}[kind]
    parts = [Parts(place, 6, count, together=kind is DeviceKind.MEMORY) for place, count in enumerate(free)]
    demand = Demand(resource, kind, sum(asked), tuple((f"c{n}", units) for n, units in enumerate(asked)))
    plain = place_parts(demand, parts)
    avoiding = place_parts(demand, parts, dict(enumerate(against)))
    assert (plain is None) == (avoiding is None)
    if avoiding is not None:
        for place, count in enumerate(free):
            assert sum(mine.get(place, 0) for mine in avoiding.values()) <= count
        assert {name: sum(mine.values()) for name, mine in avoiding.items()} == dict(demand.containers)


def test_a_promise_that_every_gpu_keeps_is_scored_as_none() -> None:
    memo = ScoreMemo()
    snapshot = product_cluster().snapshot()
    for node in snapshot.nodes.values():
        assert node.gpus is not None
        best_key(node.gpus, whole(2), memo, Preferences(Policy(latency=TABLE), None, "resnet", 90_000))
        best_key(node.gpus, whole(2), memo)
    assert memo.misses == 1
