"""The verbs as kube-scheduler calls them: real HTTP on a loopback port, over a cache that was filled."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from mcp2026.api.names import GPU_RESOURCE
from mcp2026.scheduler_extender.background import Background
from mcp2026.scheduler_extender.binding import Binder, BindingWriter
from mcp2026.scheduler_extender.cache import ClusterCache
from mcp2026.scheduler_extender.cluster_events import Kind
from mcp2026.scheduler_extender.errors import BindingUncertainError
from mcp2026.scheduler_extender.gangs import Gangs
from mcp2026.scheduler_extender.metrics import Metrics
from mcp2026.scheduler_extender.policy import DEFAULT_POLICY, Policy, PolicyInForce
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from mcp2026.scheduler_extender.server import MAX_BODY_BYTES, ExtenderServer
from tests.fakes.binding_writer import ApiServer
from tests.fakes.clusters import filled_cache, listed, node, pod, topology

PAIRS = "4xa100-pcie-nvlink-pairs"


def some_cluster() -> ClusterCache:
    return filled_cache(
        [
            topology("linked", PAIRS, {0: "x/a", 1: "x/a"}),
            topology("split", PAIRS, {1: "x/a", 3: "x/b"}),
            topology("busy", PAIRS, {0: "x/a", 1: "x/a", 3: "x/b"}),
        ],
        bare_nodes=["bare"],
    )


@asynccontextmanager
async def serving(
    cache: ClusterCache,
    problems: dict[str, str] | None = None,
    verbs: bool = True,
    writer: BindingWriter | None = None,
    choices: Background | None = None,
    policy: Policy = DEFAULT_POLICY,
) -> AsyncIterator[aiohttp.ClientSession]:
    memo = ScoreMemo()
    choices = choices or Background("choices")
    writer = writer or ApiServer()
    gangs = Gangs(cache)
    binder = Binder(cache, memo, writer, choices, monotonic, gangs)
    server = ExtenderServer(
        cache, memo, Metrics(cache, memo), problems or {}, choices, binder, gangs, PolicyInForce(policy)
    )
    runner = web.AppRunner(server.verbs_app() if verbs else server.health_app())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}") as session:
            yield session
    finally:
        await runner.cleanup()
        server.close()
        choices.close()


async def post(session: aiohttp.ClientSession, verb: str, body: Any) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with session.post(f"/v1/{verb}", data=data) as response:
        assert response.content_type == "application/json"
        return response.status, await response.json()


async def metrics_of(session: aiohttp.ClientSession) -> str:
    async with session.get("/metrics") as response:
        return await response.text()


def args(*names: str, gpus: int = 2) -> dict[str, Any]:
    return {"Pod": pod("p", gpus), "Nodes": None, "NodeNames": list(names)}


async def test_filter_names_the_nodes_that_fit_and_says_why_the_others_do_not() -> None:
    async with serving(some_cluster()) as session:
        status, answer = await post(session, "filter", args("bare", "busy", "linked", "nowhere", "split"))
    assert status == 200
    assert answer == {
        "Nodes": None,
        "NodeNames": ["linked", "split"],
        "FailedNodes": {
            "busy": "needs 2 GPUs, 1 of 4 free (0,1,3 held)",
            "nowhere": "the scheduler extender has not seen this node yet",
        },
        "FailedAndUnresolvableNodes": {"bare": "no GPUTopology for this node: is the device plugin running?"},
        "Error": "",
    }


@pytest.mark.parametrize("whole", [False, True])
async def test_filter_hands_on_the_best_nodes_where_the_policy_says_how_many(whole: bool) -> None:
    names = ["busy", "linked", "split"]
    asked = args(*names)
    if whole:
        asked |= {"NodeNames": None, "Nodes": {"items": [node(name) for name in names]}}
    async with serving(some_cluster(), policy=Policy(nodes_to_score=1)) as session:
        status, answer = await post(session, "filter", asked)
        ranked = await post(session, "prioritize", args("linked"))
        (decision,) = await (await session.get("/v1/decisions")).json()
    assert status == 200
    if whole:
        assert answer["Nodes"] == {"items": [node("linked")]}
    else:
        assert answer["NodeNames"] == ["linked"]
    assert list(answer["FailedNodes"]) == ["busy"]
    assert ranked == (200, [{"Host": "linked", "Score": 10}])
    assert decision["fitting"] == 2


async def test_filter_hands_whole_nodes_back_as_they_came() -> None:
    items = [node("busy"), node("linked")]
    async with serving(some_cluster()) as session:
        status, answer = await post(
            session, "filter", {"Pod": pod("p", 2), "Nodes": {"metadata": {}, "items": items}}
        )
    assert (status, answer["NodeNames"]) == (200, None)
    assert answer["Nodes"] == {"items": [node("linked")]}
    assert list(answer["FailedNodes"]) == ["busy"]


async def test_prioritize_prefers_the_linked_pair() -> None:
    async with serving(some_cluster()) as session:
        status, answer = await post(session, "prioritize", args("split", "linked"))
    assert status == 200
    assert answer == [{"Host": "split", "Score": 0}, {"Host": "linked", "Score": 10}]


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        pytest.param(b"", "the body", id="no body"),
        pytest.param(json.dumps(args("linked")).encode()[:-20], "the body", id="a body cut off"),
        pytest.param({"NodeNames": ["linked"]}, "Pod is missing", id="no pod"),
        pytest.param({"Pod": pod("p", 1)}, "nothing to choose from", id="no nodes"),
        pytest.param({"Pod": {"spec": []}, "NodeNames": []}, "Pod: ", id="a pod of another shape"),
    ],
)
async def test_a_malformed_request_is_a_400_and_the_next_one_is_served(
    verb: str, body: Any, complaint: str
) -> None:
    async with serving(some_cluster()) as session:
        status, answer = await post(session, verb, body)
        assert status == 400
        assert complaint in answer["Error"]
        assert (await post(session, verb, args("linked")))[0] == 200


async def test_a_pod_that_asks_for_half_a_gpu_is_told_so() -> None:
    broken = args("linked")
    broken["Pod"]["spec"]["containers"][0]["resources"] = {"limits": {"mcp2026.io/gpu": "500m"}}
    async with serving(some_cluster()) as session:
        status, answer = await post(session, "filter", broken)
        assert (status, answer["NodeNames"]) == (200, None)
        assert "'500m' is no amount of devices" in answer["Error"]
        assert (await post(session, "prioritize", broken))[0] == 400


async def test_ten_thousand_names_are_answered_each() -> None:
    names = [f"node-{number}" for number in range(10_000)]
    cache = some_cluster()
    cache.apply(listed(Kind.NODES, *(node(name) for name in names)))
    cache.apply(listed(Kind.GPU_TOPOLOGIES, *(topology(name, PAIRS) for name in names[:500])))
    async with serving(cache) as session:
        status, answer = await post(session, "filter", args(*names))
        assert status == 200
        assert answer["NodeNames"] == names[:500]
        assert list(answer["FailedAndUnresolvableNodes"]) == names[500:]
        status, ranked = await post(session, "prioritize", args(*names))
    assert status == 200
    assert {entry["Host"]: entry["Score"] for entry in ranked} == {
        name: 10 if place < 500 else 0 for place, name in enumerate(names)
    }


async def test_a_body_of_2_mib_is_served_and_one_over_the_limit_is_refused_with_advice() -> None:
    large = args("linked")
    large["Pod"]["metadata"]["annotations"] = {"note": "x" * 2 * 2**20}
    async with serving(some_cluster()) as session:
        status, answer = await post(session, "filter", large)
        assert (status, answer["NodeNames"]) == (200, ["linked"])
        status, answer = await post(session, "filter", b" " * (MAX_BODY_BYTES + 1))
        assert status == 413
        assert "nodeCacheCapable: true" in answer["Error"]


async def test_calls_at_the_same_time_get_their_own_answers() -> None:
    async with serving(some_cluster()) as session:
        answers = await asyncio.gather(
            *(post(session, "filter", args("linked", "split", "busy", gpus=1 + n % 4)) for n in range(40))
        )
    for number, (status, answer) in enumerate(answers):
        fitting = {1: ["linked", "split", "busy"], 2: ["linked", "split"]}.get(1 + number % 4, [])
        assert (status, answer["NodeNames"]) == (200, fitting)


async def test_filter_does_not_wait_while_other_verbs_choose() -> None:
    go_on = threading.Event()
    choices = Background("choices")
    async with serving(some_cluster(), choices=choices) as session:
        busy = asyncio.create_task(choices.call(go_on.wait))
        ranking = asyncio.create_task(post(session, "prioritize", args("linked", "split")))
        status, answer = await post(session, "filter", args("linked", "split"))
        assert (status, answer["NodeNames"]) == (200, ["linked", "split"])
        assert not ranking.done()
        go_on.set()
        await busy
        assert (await ranking)[0] == 200


async def test_the_question_that_follows_filter_finds_its_answer_made() -> None:
    def as_go_writes(*names: str) -> bytes:
        members = {"Pod": args()["Pod"], "Nodes": None, "NodeNames": names}
        return json.dumps(members, separators=(",", ":")).encode()

    go_on = threading.Event()
    choices = Background("choices")
    async with serving(some_cluster(), choices=choices) as session:
        status, answer = await post(session, "filter", as_go_writes("linked", "busy", "split"))
        assert (status, answer["NodeNames"]) == (200, ["linked", "split"])
        busy = asyncio.create_task(choices.call(go_on.wait))
        status, ranked = await post(session, "prioritize", as_go_writes("linked", "split"))
        assert (status, ranked) == (
            200,
            [{"Host": "linked", "Score": 10}, {"Host": "split", "Score": 0}],
        )
        other = asyncio.create_task(post(session, "prioritize", as_go_writes("split", "linked")))
        go_on.set()
        await busy
        assert (await other)[1] == ranked[::-1]


def victims(*uids: str) -> dict[str, Any]:
    return {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0}


async def test_preempt_names_the_pods_whose_going_frees_a_linked_pair() -> None:
    cache = filled_cache(
        [topology("n", PAIRS, {0: "default/a", 1: "default/b", 2: "default/a", 3: "default/c"})],
        [pod("a", 2, "n"), pod("b", 1, "n"), pod("c", 1, "n")],
        bare_nodes=["bare"],
    )
    asked = {"Pod": pod("p", 2), "NodeNameToMetaVictims": {"n": victims("uid-b", "uid-c"), "bare": victims()}}
    asked["Pod"]["spec"]["priority"] = 10
    async with serving(cache) as session:
        status, answer = await post(session, "preempt", asked)
    assert status == 200
    found = answer["NodeNameToMetaVictims"]
    assert set(found) == {"n"}
    assert {pod["UID"] for pod in found["n"]["Pods"]} == {"uid-a", "uid-b"}


async def test_bind_reserves_exact_gpus_and_the_next_question_knows() -> None:
    writer, cache = ApiServer(), filled_cache([topology("n", PAIRS)])
    async with serving(cache, writer=writer) as session:
        for name, gpus, error in (("a", 2, ""), ("b", 2, ""), ("c", 1, "n needs 1 GPU, 0 of 4 free")):
            writer.add(name, gpus)
            status, answer = await post(session, "bind", binding(name))
            assert status == 200
            assert answer["Error"].startswith(error) if error else answer == {"Error": ""}
        _, filtered = await post(session, "filter", args("n", gpus=1))
        assert list(filtered["FailedNodes"]) == ["n"]
    assert set(writer.bound) == {"a", "b"}


async def test_a_pod_that_filter_was_asked_about_is_bound_without_being_read_again() -> None:
    writer, cache = ApiServer(), filled_cache([topology("n", PAIRS)])
    async with serving(cache, writer=writer) as session:
        await post(session, "filter", args("n", gpus=2))
        assert await post(session, "bind", binding("p")) == (200, {"Error": ""})
    assert set(writer.bound) == {"p"}


async def test_a_pod_that_is_asked_about_anew_was_not_bound() -> None:
    writer, cache = ApiServer(), filled_cache([topology("n", PAIRS)])
    writer.failure = BindingUncertainError("no answer")
    async with serving(cache, writer=writer) as session:
        await post(session, "filter", args("n", gpus=4))
        _, answer = await post(session, "bind", binding("p"))
        assert answer == {"Error": "no answer"}
        _, filtered = await post(session, "filter", args("n", gpus=4))
    assert filtered["NodeNames"] == ["n"]


def binding(name: str) -> dict[str, str]:
    return {"PodName": name, "PodNamespace": "default", "PodUID": f"uid-{name}", "Node": "n"}


@pytest.mark.parametrize("verb", ["preempt", "bind"])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"Pod": {}}'])
async def test_broken_bodies_are_refused_and_change_nothing(verb: str, body: bytes) -> None:
    cache = some_cluster()
    before = cache.snapshot()
    async with serving(cache) as session:
        status, answer = await post(session, verb, body)
    assert status == 400
    assert answer["Error"]
    assert cache.snapshot() is before


async def test_before_the_cluster_was_read_nothing_is_decided_and_everyone_is_told_why() -> None:
    cache = ClusterCache()
    cache.apply(listed(Kind.NODES, node("linked")))
    reason = (
        "the scheduler extender has not yet read pods, gputopologies (404: not found: is the custom "
        "resource definition installed?), poddisruptionbudgets from the API server"
    )
    problems = {"gputopologies": "404: not found: is the custom resource definition installed?"}
    async with serving(cache, problems) as session:
        status, answer = await post(session, "filter", args("linked"))
        assert (status, answer["NodeNames"], answer["Error"]) == (200, None, reason)
        status, answer = await post(session, "prioritize", args("linked"))
        assert (status, answer) == (503, {"Error": reason})
        async with session.get("/readyz") as response:
            assert (response.status, await response.text()) == (503, f"{reason}\n")
        async with session.get("/healthz") as response:
            assert response.status == 200
        cache.apply(listed(Kind.PODS))
        cache.apply(listed(Kind.GPU_TOPOLOGIES, topology("linked", PAIRS)))
        cache.apply(listed(Kind.BUDGETS))
        async with session.get("/readyz") as response:
            assert response.status == 200
        assert (await post(session, "filter", args("linked")))[1]["NodeNames"] == ["linked"]


async def test_metrics_count_decisions_time_them_and_show_the_cache() -> None:
    async with serving(some_cluster()) as session:
        await post(session, "filter", args("linked"))
        await post(session, "filter", args("busy"))
        await post(session, "prioritize", args("linked", "split"))
        await post(session, "prioritize", args("linked", "split"))
        await post(session, "filter", b"{")
        lines = (await metrics_of(session)).splitlines()
    for line in (
        'mcp2026_extender_decisions_total{outcome="fits",verb="filter"} 1.0',
        'mcp2026_extender_decisions_total{outcome="nothing_fits",verb="filter"} 1.0',
        'mcp2026_extender_decisions_total{outcome="malformed",verb="filter"} 1.0',
        'mcp2026_extender_decisions_total{outcome="ranked",verb="prioritize"} 2.0',
        'mcp2026_extender_verb_seconds_count{verb="filter"} 3.0',
        'mcp2026_extender_scores_total{source="computed"} 2.0',
        'mcp2026_extender_cache_objects{kind="nodes"} 4.0',
        'mcp2026_extender_cache_objects{kind="gputopologies"} 3.0',
        'mcp2026_extender_synced{kind="pods"} 1.0',
    ):
        assert line in lines


async def test_decisions_can_be_asked_for_by_pod_where_the_verbs_are() -> None:
    async with serving(some_cluster()) as session:
        await post(session, "filter", args("linked", "split", "busy"))
        await post(session, "prioritize", args("linked", "split"))
        await post(session, "bind", binding("p") | {"Node": "linked"})
        async with session.get("/v1/decisions/default/p") as response:
            (decision,) = await response.json()
        async with session.get("/v1/decisions/default/other") as response:
            assert await response.json() == []
        async with session.get("/v1/decisions") as response:
            assert await response.json() == [decision]
    assert (decision["asked"], decision["fitting"], decision["node"]) == (["2 GPUs"], 2, "linked")
    assert [nodes["group"]["nodes"] for nodes in decision["ranked"]] == [["linked"], ["split"]]
    (uuids,) = decision["reserved"]["main"].values()
    assert len(uuids) == 2


async def test_the_page_and_the_map_that_it_draws_are_served_where_the_verbs_are() -> None:
    async with serving(some_cluster()) as session:
        async with session.get("/") as response:
            page = await response.text()
            assert response.content_type == "text/html"
            assert "default-src 'none'" in response.headers["Content-Security-Policy"]
        async with session.get("/v1/cluster") as response:
            nodes = {node["name"]: node for node in await response.json()}
    assert "v1/cluster" in page
    assert [gpu["state"] for gpu in nodes["linked"]["gpus"]] == ["held", "held", "free", "free"]
    assert "GPUTopology" in nodes["bare"]["problem"]


async def test_the_map_is_told_once_the_cluster_was_read() -> None:
    async with serving(ClusterCache()) as session, session.get("/v1/cluster") as response:
        assert response.status == 503


async def test_decisions_are_not_told_on_the_address_for_others() -> None:
    async with serving(some_cluster(), verbs=False) as session, session.get("/v1/decisions") as response:
        assert response.status == 404


async def test_the_address_for_others_serves_no_verbs() -> None:
    async with serving(some_cluster(), verbs=False) as session:
        async with session.post("/v1/filter", json=args("linked")) as response:
            assert response.status == 404
        async with session.get("/readyz") as response:
            assert response.status == 200


def gang_args(number: int, size: int) -> dict[str, Any]:
    document = pod(f"g-{number}", 2)
    document["metadata"]["annotations"] = {"mcp2026.io/gang": "g", "mcp2026.io/gang-size": str(size)}
    return {"Pod": document, "Nodes": None, "NodeNames": ["bare", "busy", "linked", "split"]}


async def test_a_gang_is_admitted_whole_and_each_member_bound_where_room_was_held() -> None:
    cache = some_cluster()
    async with serving(cache) as session:
        nodes = []
        for number in range(2):
            _, answer = await post(session, "filter", gang_args(number, 2))
            _, ranks = await post(session, "prioritize", args(*answer["NodeNames"]))
            assert len(ranks) == len(answer["NodeNames"])
            nodes.append(answer["NodeNames"][0])
            _, other = await post(session, "filter", args("linked", "split"))
            assert other["NodeNames"] == []
            bound = binding(f"g-{number}") | {"Node": nodes[-1]}
            assert await post(session, "bind", bound) == (200, {"Error": ""})
        async with session.get("/v1/decisions/default/g-0") as response:
            (decision,) = await response.json()
    assert sorted(nodes) == ["linked", "split"]
    assert decision["gang"] == "gang g: room is held for 2 pods on 2 nodes, for 60 s more"
    assert len(decision["reserved"]["main"][GPU_RESOURCE]) == 2


async def test_a_gang_that_does_not_fit_is_refused_everywhere_and_holds_nothing() -> None:
    async with serving(some_cluster()) as session:
        _, answer = await post(session, "filter", gang_args(0, 3))
        _, other = await post(session, "filter", args("linked", "split"))
    assert answer["NodeNames"] == []
    assert set(answer["FailedAndUnresolvableNodes"].values()) == {"gang g: 2 of 3 pods of 2 GPUs would fit"}
    assert other["NodeNames"] == ["linked", "split"]


async def test_a_member_that_is_bound_without_room_being_held_is_told_to_come_again() -> None:
    async with serving(some_cluster()) as session:
        await post(session, "filter", gang_args(0, 3))
        _, answer = await post(session, "bind", binding("g-0") | {"Node": "linked"})
    assert answer["Error"] == "linked: no room is held there for the pod's gang any more; it is planned anew"


async def test_a_pod_whose_binding_is_being_written_keeps_its_gpus_when_it_is_asked_about_again() -> None:
    class SlowServer(ApiServer):
        asked, may_answer = asyncio.Event(), asyncio.Event()

        async def bind(self, *_: Any) -> None:
            self.asked.set()
            await self.may_answer.wait()

    writer = SlowServer()
    async with serving(some_cluster(), writer=writer) as session:
        await post(session, "filter", args("linked"))
        bound = asyncio.create_task(post(session, "bind", binding("p") | {"Node": "linked"}))
        await writer.asked.wait()
        status, again = await post(session, "filter", args("linked"))
        other = args("linked")
        other["Pod"]["metadata"] |= {"name": "other", "uid": "uid-other"}
        _, of_other = await post(session, "filter", other)
        writer.may_answer.set()
        assert await bound == (200, {"Error": ""})
    assert (status, again["Error"]) == (
        200,
        "the pod is being bound to linked: the API server has not answered yet",
    )
    assert of_other["NodeNames"] == []
