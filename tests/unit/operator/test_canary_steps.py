"""A model's way through its canary: steps, promotion, rollback, told and written once."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from mcp2026.operator.actions import ApplyChild, RequeueAfter, UpdateStatus
from mcp2026.operator.canary.comparison import LOOK_SECONDS
from mcp2026.operator.canary.counts import Counts
from mcp2026.operator.canary.looking import look_at
from mcp2026.operator.canary.measurements import Measurements
from mcp2026.operator.manifests import Manifest
from mcp2026.operator.observed import Observed
from tests.fakes.played_cluster import PlayedCluster, model

KEY = ("team-a", "resnet50")
VERSIONS = [
    {"versionId": "v1", "weight": 100, "uri": "pvc://models/1.onnx"},
    {"versionId": "v2", "weight": 0, "uri": "pvc://models/2.onnx"},
]
PLAN = {"version": "v2", "steps": [10, 50, 100], "stepSeconds": 10, "rollback": {"minimumRequests": 20}}


class CanaryCluster(PlayedCluster):
    """Pods that count requests, and an operator that looks at them."""

    def __init__(self, resource: Manifest) -> None:
        super().__init__(resource)
        self.measurements = Measurements()
        self.counted: dict[str, dict[str, Counts]] = {}

    def observed(self) -> Observed:
        observed = super().observed()
        look = look_at(observed)
        if look is None:
            self.measurements.forget(KEY)
            return observed
        if self.measurements.begin_look(KEY, look.step, self.now.timestamp()):
            answers = {pod: dict(self.counted.get(pod.name, {})) for pod in look.urls}
            self.measurements.take(KEY, look.step, answers)
        self.comparison = self.measurements.comparison(KEY, look.step, self.now.timestamp())
        return super().observed()

    def serve_requests(self, count: int, failing: str = "", slow: str = "") -> None:
        """Let each pod answer `count` requests, split by the weights that it has."""
        for pod in self.pods:
            counted = self.counted.setdefault(pod, {})
            for version_id, weight in self.weights.items():
                requests = count * weight // 100
                errors = requests if version_id == failing else 0
                bucket = 1.0 if version_id == slow else 0.01
                more = Counts(requests, errors, {bucket: requests - errors})
                counted[version_id] = counted.get(version_id, Counts()) + more

    @property
    def serving_config(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.children["ConfigMap"]["data"]["serving.json"])
        return document

    @property
    def weights(self) -> dict[str, int]:
        return {version["versionId"]: version["weight"] for version in self.serving_config["versions"]}

    @property
    def canary(self) -> dict[str, Any]:
        found: dict[str, Any] = self.resource["status"]["canary"]
        return found

    def told_of(self, *reasons: str) -> list[str]:
        return [f"{event.reason}: {event.message}" for event in self.told if event.reason in reasons]


@pytest.fixture
def cluster() -> CanaryCluster:
    cluster = CanaryCluster(model(versions=VERSIONS, canary=PLAN, replicas=2))
    cluster.serve()
    for pod in cluster.pods.values():
        pod["status"]["podIP"] = "10.0.0.1"
    return cluster


def play(cluster: CanaryCluster, seconds: int, requests: int = 100, **how: str) -> list[dict[str, int]]:
    """Let time pass, with traffic in each second; return the weights that were seen, in order."""
    seen: list[dict[str, int]] = []
    for _ in range(seconds):
        cluster.serve_requests(requests, **how)
        cluster.reconcile()
        for pod in cluster.pods:
            cluster.report(pod)
        if not seen or seen[-1] != cluster.weights:
            seen.append(cluster.weights)
    return seen


def test_a_good_canary_takes_all_steps_and_is_promoted(cluster: CanaryCluster) -> None:
    assert play(cluster, 60) == [{"v1": 90, "v2": 10}, {"v1": 50, "v2": 50}, {"v1": 0, "v2": 100}]
    assert cluster.canary["outcome"] == "Promoted"
    assert cluster.resource["status"]["versions"] == "v1=0,v2=100"
    assert cluster.told_of("CanaryStep", "CanaryPromoted", "CanaryRolledBack") == [
        "CanaryStep: version v2 gets 10 percent (step 1 of 3)",
        "CanaryStep: version v2 gets 50 percent (step 2 of 3)",
        "CanaryStep: version v2 gets 100 percent (step 3 of 3)",
        "CanaryPromoted: version v2 has 100 percent, as planned",
    ]
    assert cluster.serving_config["revision"] == 3
    assert [cluster.reconcile() for _ in range(5)] == [[]] * 5


@pytest.mark.parametrize(
    ("how", "words"),
    [({"failing": "v2"}, "percent of 20 requests failed"), ({"slow": "v2"}, "p95 of 20 requests is")],
    ids=["fails", "slow"],
)
def test_a_bad_canary_gets_nothing_as_soon_as_its_minimum_is_seen(
    cluster: CanaryCluster, how: dict[str, str], words: str
) -> None:
    cluster.reconcile()  # the weights of the first step are live: counting starts
    cluster.reconcile()
    cluster.serve_requests(90, **how)  # 9 of v2 in each pod
    for _ in range(6):
        cluster.reconcile()
    assert cluster.weights == {"v1": 90, "v2": 10}
    cluster.serve_requests(10, **how)
    for _ in range(6):
        cluster.reconcile()
    assert cluster.canary["outcome"] == "RolledBack"
    assert cluster.weights == {"v1": 100, "v2": 0}
    assert cluster.resource["status"]["versions"] == "v1=100,v2=0"
    (told,) = [event for event in cluster.told if event.reason == "CanaryRolledBack"]
    assert told.type == "Warning"
    assert told.message.startswith("version v2 gets nothing: ")
    assert words in told.message == f"version v2 gets nothing: {cluster.canary['message']}"
    cluster.follow()
    assert play(cluster, 30) == [{"v1": 100, "v2": 0}]
    assert [cluster.reconcile() for _ in range(5)] == [[]] * 5


def test_the_rollback_is_a_revision_of_the_reconcile_after_it(cluster: CanaryCluster) -> None:
    play(cluster, 3)
    for _ in range(20):
        if cluster.canary["outcome"] == "RolledBack":
            break
        cluster.serve_requests(1_000, failing="v2")
        cluster.reconcile()
    assert cluster.weights == {"v1": 90, "v2": 10}
    actions = cluster.reconcile()
    assert [action.manifest["kind"] for action in actions if isinstance(action, ApplyChild)] == ["ConfigMap"]
    assert cluster.weights == {"v1": 100, "v2": 0}


def test_without_traffic_a_step_stays_and_nothing_is_written(cluster: CanaryCluster) -> None:
    play(cluster, 5, requests=0)
    message = cluster.canary["message"]
    assert message == "waits for 20 requests to judge 10 percent by; 0 percent of them were seen"
    seen = [cluster.reconcile() for _ in range(100)]
    assert all([isinstance(action, RequeueAfter) for action in actions] == [True] for actions in seen)
    asked = [action.seconds for (action,) in seen if isinstance(action, RequeueAfter)]
    assert asked == [asked[place % 5] for place in range(100)]
    assert sorted(asked[:5]) == [1, 2, 3, 4, LOOK_SECONDS]


def test_while_time_passes_and_requests_come_the_status_is_written_rarely(cluster: CanaryCluster) -> None:
    cluster.edit(canary={**PLAN, "stepSeconds": 1_000, "rollback": {"minimumRequests": 1_000}})
    writes = 0
    for _ in range(500):
        cluster.serve_requests(20)
        writes += sum(isinstance(action, UpdateStatus) for action in cluster.reconcile())
    assert cluster.canary["message"].startswith("10 percent until 2026-01-01T00:16:4")
    assert writes <= 13  # the edit, the start, each tenth of the minimum, the wait for time


def test_a_step_starts_when_all_pods_serve_its_weights(cluster: CanaryCluster) -> None:
    lagging = next(iter(cluster.pods))
    for _ in range(40):
        if cluster.canary["step"] == 1:
            break
        cluster.serve_requests(100)
        cluster.reconcile()
    for _ in range(30):
        cluster.serve_requests(100)
        cluster.reconcile()
        for pod in cluster.pods:
            if pod != lagging:
                cluster.report(pod)
    assert (cluster.canary["step"], cluster.canary["since"]) == (1, "")
    assert cluster.canary["message"] == "the weights are not live on every pod yet"
    cluster.report(lagging)
    cluster.reconcile()
    assert cluster.canary["since"]


def test_a_pod_that_does_not_answer_is_named(cluster: CanaryCluster) -> None:
    play(cluster, 8)
    silent, other = sorted(cluster.pods)
    observed = cluster.observed()
    look = look_at(observed)
    assert look is not None
    answers = {pod: None if pod.name == silent else dict(cluster.counted[other]) for pod in look.urls}
    cluster.measurements.take(KEY, look.step, answers)
    cluster.reconcile()
    assert cluster.canary["message"].endswith(f"; not measured: pod {silent}")


ENDS: list[tuple[str, Callable[[CanaryCluster], Any], dict[str, int]]] = [
    ("the plan is taken out", lambda c: c.resource["spec"].pop("canary"), {"v1": 100, "v2": 0}),
    (
        "it is made the rule",
        lambda c: c.resource["spec"].update(
            canary=None, versions=[{**VERSIONS[0], "weight": 0}, {**VERSIONS[1], "weight": 100}]
        ),
        {"v1": 0, "v2": 100},
    ),
]


@pytest.mark.parametrize(("change", "weights"), [row[1:] for row in ENDS], ids=[row[0] for row in ENDS])
def test_without_a_canary_the_weights_of_the_spec_hold(
    cluster: CanaryCluster, change: Callable[[CanaryCluster], Any], weights: dict[str, int]
) -> None:
    play(cluster, 60)
    change(cluster)
    cluster.edit()
    assert play(cluster, 5)[-1] == weights
    assert not cluster.resource["status"].get("canary")
    assert [cluster.reconcile() for _ in range(5)] == [[]] * 5


def test_another_plan_begins_anew_after_a_rollback(cluster: CanaryCluster) -> None:
    play(cluster, 30, failing="v2")
    assert cluster.canary["outcome"] == "RolledBack"
    cluster.edit(canary={**PLAN, "rollback": {"minimumRequests": 20, "errorRatePercent": 100}})
    assert play(cluster, 60, failing="v2")[0] == {"v1": 90, "v2": 10}
    assert cluster.canary["outcome"] == "Promoted"


LABELS = [
    ("two versions", VERSIONS, {"v1": ["stable"], "v2": ["canary"]}),
    (
        "three versions",
        [*VERSIONS, {"versionId": "v0", "weight": 0, "uri": "pvc://models/0.onnx"}],
        {"v1": [], "v2": ["canary"], "v0": []},
    ),
    (
        "labels of the user's own",
        [{**VERSIONS[0], "labels": ["old", "safe"]}, VERSIONS[1]],
        {"v1": ["old", "safe"], "v2": []},
    ),
    (
        "a version whose id is such a word",
        [{**VERSIONS[0], "versionId": "canary"}, VERSIONS[1]],
        {"canary": ["stable"], "v2": []},
    ),
]


@pytest.mark.parametrize(("versions", "wanted"), [row[1:] for row in LABELS], ids=[row[0] for row in LABELS])
def test_versions_get_labels(versions: list[dict[str, Any]], wanted: dict[str, list[str]]) -> None:
    cluster = CanaryCluster(model(versions=versions, canary=PLAN))
    cluster.reconcile()
    found = {version["versionId"]: version["labels"] for version in cluster.serving_config["versions"]}
    assert found == wanted


def test_without_a_canary_versions_have_the_labels_that_they_are_given() -> None:
    cluster = CanaryCluster(
        model(versions=[{**VERSIONS[0], "labels": ["safe"]}, VERSIONS[1]], allowIncompatible=True)
    )
    cluster.reconcile()
    assert [version["labels"] for version in cluster.serving_config["versions"]] == [["safe"], []]
    assert cluster.serving_config["allowIncompatible"] is True


def test_pods_are_asked_only_while_a_step_is_in_progress(cluster: CanaryCluster) -> None:
    play(cluster, 3)
    look = look_at(cluster.observed())
    assert look is not None
    assert list(look.urls.values()) == ["http://10.0.0.1:8080/metrics"] * 2
    unready, leaving = cluster.pods.values()
    unready["status"]["conditions"][1]["status"] = "False"
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    look = look_at(cluster.observed())
    assert look is not None
    assert look.urls == {}
    cluster.resource["spec"].pop("canary")
    assert look_at(cluster.observed()) is None


def test_an_address_of_version_6_is_written_as_a_url_has_it(cluster: CanaryCluster) -> None:
    play(cluster, 3)
    for pod in cluster.pods.values():
        pod["status"]["podIP"] = "fd00::7"
    look = look_at(cluster.observed())
    assert look is not None
    assert set(look.urls.values()) == {"http://[fd00::7]:8080/metrics"}
