"""`mcp2026 explain`: the words for a decision, and the errors when there is none."""

import http.server
import json
import threading
from collections.abc import Iterator

import msgspec
import pytest

from mcp2026.api.scheduling_context import QosClass
from mcp2026.cli.errors import CommandError
from mcp2026.cli.explain_command import explain
from mcp2026.cli.explain_text import explanation
from mcp2026.scheduler_extender.decision_log import Decision, DecisionLog, ranked_nodes
from mcp2026.scheduler_extender.filtering import Filtered, filter_nodes
from mcp2026.scheduler_extender.policy import LatencyModel, MeasuredLatency, Policy
from mcp2026.scheduler_extender.preferences import Preferences
from mcp2026.scheduler_extender.prioritizing import rank_nodes
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from tests.fakes.clusters import filled_cache, topology, whole

FOUR = "4xa100-pcie-nvlink-pairs"


def decided(gpus: int = 2) -> DecisionLog:
    names = ("full", "split", "linked", "bare")
    snapshot = filled_cache(
        [
            topology("full", FOUR, dict.fromkeys(range(4), "x/a")),
            topology("split", FOUR, {0: "x/a", 2: "x/b"}),
            topology("linked", FOUR, {0: "x/a", 1: "x/b"}),
        ],
        bare_nodes=["bare"],
    ).snapshot()
    log, memo = DecisionLog(), ScoreMemo()
    filtered = filter_nodes(snapshot, names, whole(gpus))
    log.filtered("ns/p", "u", whole(gpus), filtered, 1_800_000_000.0)
    classes = rank_nodes(snapshot, filtered.feasible, whole(gpus), memo)
    log.ranked("u", ranked_nodes(classes, whole(gpus), memo), 1_800_000_000.0)
    return log


def one(log: DecisionLog) -> Decision:
    (decision,) = log.latest()
    return decision


def test_the_reason_for_the_winner_is_the_first_term_that_differs() -> None:
    log = decided()
    log.bound("u", "linked", {"main": {"mcp2026.io/gpu": ("GPU-2", "GPU-3")}}, "", 1_800_000_001.0)
    text = explanation(one(log))
    assert "Pod ns/p asks for 2 GPUs. 1 attempt, the last at 2027-01-15 08:00:01 UTC." in text
    assert "Bound to linked with GPU-2, GPU-3 for main." in text
    assert (
        "linked won by weakest-link: 300 GB/s against 10 GB/s on split; every term before it is equal."
        in text
    )
    assert "needs 2 GPUs, 0 of 4 free (0,1,2,3 held)" in text
    assert "could help" in text
    assert "cannot help" in text


def test_terms_that_are_zero_everywhere_are_left_out_of_the_table() -> None:
    text = explanation(one(decided()))
    assert "weakest-link (GB/s)" in text
    assert "slo-shortfall" not in text


def test_a_pod_that_fits_nowhere_is_told_so_with_the_victims_that_were_proposed() -> None:
    log = decided(8)
    log.preempted("u", {"full": ("uid-a", "uid-b")}, 1_800_000_001.0)
    text = explanation(one(log))
    assert "No node fits." in text
    assert "full: uid-a, uid-b" in text


def test_a_failed_bind_is_told_with_its_reason() -> None:
    log = decided()
    log.bound("u", "linked", {}, "409: already bound", 1_800_000_001.0)
    assert "Not bound to linked: 409: already bound." in explanation(one(log))


class Answers(http.server.BaseHTTPRequestHandler):
    body = b"[]"
    status = 200

    def do_GET(self) -> None:
        type(self).asked = self.path  # type: ignore[attr-defined]  # what a test looks at
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def extender() -> Iterator[tuple[str, type[Answers]]]:
    handler = type("Handler", (Answers,), {})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", handler
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("pod", ["pod/p", "p", "pods/p"])
def test_the_extender_is_asked_about_the_pod(extender: tuple[str, type[Answers]], pod: str) -> None:
    url, handler = extender
    handler.body = msgspec.json.encode(decided().latest())
    assert explain(pod, "ns", url, as_json=False).startswith("Pod ns/p asks for 2 GPUs.")
    assert handler.asked == "/v1/decisions/ns/p"  # type: ignore[attr-defined]
    assert json.loads(explain(pod, "ns", url, as_json=True))["pod"] == "ns/p"


@pytest.mark.parametrize(
    ("pod", "status", "body", "complaint"),
    [
        ("pod/p", 200, b"[]", "knows nothing of ns/p.*mcp2026-scheduler"),
        ("pod/p", 200, b"<html>", "no scheduler extender of this version"),
        ("pod/p", 404, b"", "answers 404"),
        ("deployment/p", 200, b"[]", "allowed: pod/NAME"),
        ("", 200, b"[]", "allowed: pod/NAME"),
    ],
)
def test_what_cannot_be_explained_says_why(
    extender: tuple[str, type[Answers]], pod: str, status: int, body: bytes, complaint: str
) -> None:
    url, handler = extender
    handler.status, handler.body = status, body
    with pytest.raises(CommandError, match=complaint):
        explain(pod, "ns", url, as_json=False)


@pytest.mark.parametrize("url", ["https://x", "localhost:8888", "http://127.0.0.1:1"])
def test_an_extender_that_cannot_be_reached_is_named(url: str) -> None:
    with pytest.raises(CommandError, match=f"--extender {url}"):
        explain("p", "ns", url, as_json=False)


def test_a_promise_that_no_node_keeps_is_told_with_what_is_expected() -> None:
    document = topology("n", FOUR)
    product = document["status"]["gpus"][0]["product"]
    table = LatencyModel([MeasuredLatency("resnet", product, "", 0, 30_000)])
    preferences = Preferences(Policy("Pack", latency=table), QosClass.GUARANTEED, "resnet", 12_500)
    snapshot, log, memo = filled_cache([document]).snapshot(), DecisionLog(), ScoreMemo()
    filtered = filter_nodes(snapshot, ("n",), whole(1))
    log.filtered("ns/p", "u", whole(1), filtered, 1.0, preferences)
    ranking = rank_nodes(snapshot, ("n",), whole(1), memo, preferences)
    log.ranked("u", ranked_nodes(ranking, whole(1), memo, preferences), 1.0)
    text = explanation(one(log))
    assert "QoS class Guaranteed." in text
    assert (
        "Promised: a p95 latency of resnet of 12.5 ms. On the best nodes 30 ms is expected: it is broken on "
        "every node that fits." in text
    )
    assert "slo-shortfall (µs)" in text
    assert "-17500" in text
    assert "free-percent (%)" in text


def test_a_gang_is_told_in_place_of_a_ranking() -> None:
    log = DecisionLog()
    said = "gang g: 3 of 8 pods of 4 GPUs would fit"
    refused = Filtered((), {}, {"n": said})
    log.filtered("ns/p", "u", whole(4), refused, 1.0, gang=said)
    text = explanation(one(log))
    assert "Gang g: 3 of 8 pods of 4 GPUs would fit.\n" in text
    assert "cannot help" in text
