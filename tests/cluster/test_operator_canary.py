"""A canary with everything real but the kubelet: operator, API server, runtimes, requests.

Pods have addresses of their own, 127.0.41.n, where their runtimes listen on the pods' port.
"""

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
import pytest
import yaml

from bench.settling.installed_operator import installed_chart, running_operator
from bench.settling.played_node import PlayedNode, lacking
from mcp2026.api.names import REST_PORT
from mcp2026.operator.observed import condition_of
from tools.cluster.cluster import Cluster
from tools.models import generate
from tools.models.graph import Graph

pytestmark = [
    pytest.mark.control_plane,
    pytest.mark.skipif(bool(lacking()), reason=f"no process may have its own mounts here: {lacking()}"),
]

SYSTEM, NAMESPACE, MODEL = "canary-system", "canaries", "stepped"
PODS = ("127.0.41.1", "127.0.41.2")
STABLE, UNUSED = ("v1", "add"), ("v0", "add-hundred")
BODY = json.dumps({"input": [5.0] * 16, "shape": [1, 16]}).encode()
CALLERS = 2
"""On each pod."""


def brittle() -> onnx.ModelProto:
    """Build a table of one row that is read by the input: zeros, as in the warm-up, are all that works."""
    graph = Graph("brittle", seed=0)
    graph.input("input", ["N", 16])
    graph.output("output", ["N", 16])
    index = graph.node("Cast", ["input"], to=onnx.TensorProto.INT64)
    graph.node("Gather", [graph.constant("table", [1.0]), index], "output", axis=0)
    return graph.build()


@dataclass
class Answers:
    """What callers got, by version and status; and of each the first output."""

    counted: Counter[tuple[str, int]] = field(default_factory=Counter)
    outputs: dict[str, set[float]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, status: int, body: bytes) -> None:
        said = json.loads(body)
        version = said.get("version_id", "")
        with self.lock:
            self.counted[version, status] += 1
            if status == 200:
                self.outputs.setdefault(version, set()).add(said["output"][0])

    def of(self, version: str) -> int:
        return sum(count for (one, _), count in self.counted.items() if one == version)


def ask(address: str, answers: Answers, times: int, ended: threading.Event) -> None:
    """Send one request after another on one connection."""
    connection = http.client.HTTPConnection(address, REST_PORT, timeout=60)
    try:
        for _ in range(times):
            if ended.is_set():
                return
            connection.request("POST", "/v1/infer", BODY)
            response = connection.getresponse()
            answers.add(response.status, response.read())
    finally:
        connection.close()


@contextmanager
def traffic(times: int = 10**9) -> Iterator[Answers]:
    """Have all pods asked while the block runs; it ends when `times` is reached by each caller, too."""
    answers, ended = Answers(), threading.Event()
    with ThreadPoolExecutor(CALLERS * len(PODS)) as pool:
        asking = [
            pool.submit(ask, address, answers, times, ended) for address in PODS for _ in range(CALLERS)
        ]
        try:
            yield answers
        finally:
            ended.set()
    for one in asking:
        one.result()


@dataclass(frozen=True)
class Stepped:
    """A model whose two pods are real processes."""

    cluster: Cluster
    node: PlayedNode
    log: Path

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        return self.cluster.kubectl("-n", NAMESPACE, *arguments, input=text)

    def apply(self, canary: tuple[str, str] | None = None, **plan: Any) -> None:
        files = dict([STABLE, UNUSED, *([canary] if canary else [])])
        resource = {
            "apiVersion": "mcp2026.io/v1alpha1",
            "kind": "InferenceModel",
            "metadata": {"name": MODEL},
            "spec": {
                "versions": [
                    {
                        "versionId": version,
                        "uri": f"pvc://models/{file}.onnx",
                        "weight": 100 * (version == "v1"),
                    }
                    for version, file in files.items()
                ],
                "replicas": len(PODS),
                "gpu": {"count": 1},  # placed by a scheduler that does not run here
                **({"canary": {"version": canary[0], **plan}} if canary else {}),
            },
        }
        self.kubectl("apply", "-f", "-", text=yaml.safe_dump(resource))

    @property
    def model(self) -> dict[str, Any]:
        return self.cluster.get("im", MODEL, "-n", NAMESPACE)

    def wait_for_canary(self, what: str, good: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return `status.canary` once `good` holds of it, with its weights live on all pods."""

        def found() -> dict[str, Any] | None:
            model = self.model
            settled = condition_of(model, "TrafficSettled")
            live = settled.get("status") == "True"
            current = settled.get("observedGeneration") == model["metadata"]["generation"]
            canary: dict[str, Any] = model["status"].get("canary") or {}
            return canary if live and current and canary and good(canary) else None

        canary = self.cluster.wait_for(what, found, 120)
        assert canary is not None
        return canary

    def events(self, *reasons: str) -> list[str]:
        """Return reason and message of events of these reasons, the oldest first."""
        items = self.cluster.get("events", "-n", NAMESPACE)["items"]
        told = [item for item in items if item["reason"] in reasons]
        told.sort(key=lambda item: int(item["metadata"]["resourceVersion"]))
        return [f"{item['reason']}: {item['message']}" for item in told]


@pytest.fixture(scope="module")
def stepped(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stepped]:
    folder = tmp_path_factory.mktemp("canaries")
    claims = folder / "claims"
    for name in ("add", "add-hundred", "slow"):
        generate(name, claims / "models")
    onnx.save(brittle(), claims / "models" / "brittle.onnx")
    control_plane.kubectl("create", "namespace", NAMESPACE)
    with (
        installed_chart(control_plane, SYSTEM),
        running_operator(control_plane, SYSTEM, NAMESPACE, folder),
        PlayedNode(control_plane, NAMESPACE, claims, folder) as node,
    ):
        made = Stepped(control_plane, node, folder / "operator.log")
        made.apply()
        pods = dict(zip(PODS, node.pods(MODEL, len(PODS)), strict=True))
        for address, pod in pods.items():
            node.start(pod, address, REST_PORT)
        control_plane.wait_for("all to be ready", lambda: all(p.is_ready for p in node.running.values()))
        for address, pod in pods.items():
            node.tell_ready(pod, podIP=address, podIPs=[{"ip": address}])
        yield made
        control_plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def test_a_good_canary_is_promoted_through_all_steps(stepped: Stepped) -> None:
    generous = {"minimumRequests": 20, "latencyRatio": 100}  # the machine may be busy
    with traffic() as answers:
        stepped.apply(("v2", "add"), steps=[10, 50, 100], stepSeconds=1, rollback=generous)
        canary = stepped.wait_for_canary("an end", lambda found: found["outcome"] != "Progressing")
    assert canary["outcome"] == "Promoted", canary["message"]
    assert {status for _, status in answers.counted} == {200}
    assert answers.of("v1") > 0
    assert answers.of("v2") > 0
    assert answers.of("v0") == 0
    assert stepped.model["status"]["versions"] == "v1=0,v0=0,v2=100"
    assert stepped.events("CanaryStep", "CanaryPromoted", "CanaryRolledBack") == [
        "CanaryStep: version v2 gets 10 percent (step 1 of 3)",
        "CanaryStep: version v2 gets 50 percent (step 2 of 3)",
        "CanaryStep: version v2 gets 100 percent (step 3 of 3)",
        "CanaryPromoted: version v2 has 100 percent, as planned",
    ]
    with traffic(50) as after:
        pass
    assert set(after.counted) <= {("v2", 200)}


BAD = [("v3", "brittle", "requests failed; allowed: "), ("v4", "slow", " ms; allowed: ")]


@pytest.mark.parametrize(("version", "file", "words"), BAD, ids=["it fails", "it is slow"])
def test_a_bad_canary_is_rolled_back_in_its_first_step(
    stepped: Stepped, version: str, file: str, words: str
) -> None:
    with traffic() as answers:
        stepped.apply((version, file), steps=[20, 100], stepSeconds=600, rollback={"minimumRequests": 50})
        canary = stepped.wait_for_canary("a rollback", lambda found: found["outcome"] == "RolledBack")
    assert words in canary["message"]
    assert canary["step"] == 0
    assert stepped.model["status"]["versions"] == f"v1=100,v0=0,{version}=0"
    failed = sum(count for (_, status), count in answers.counted.items() if status != 200)
    assert answers.of(version) + failed >= 50
    assert answers.of("v0") == 0
    assert stepped.events("CanaryRolledBack")[-1] == (
        f"CanaryRolledBack: version {version} gets nothing: {canary['message']}"
    )
    with traffic(200) as after:
        pass
    assert set(after.counted) <= {("v1", 200)}


def test_a_canary_that_no_pod_can_load_is_withdrawn_by_itself(stepped: Stepped) -> None:
    with traffic() as answers:
        stepped.apply(("v6", "missing"), steps=[20, 100], stepSeconds=600)
        canary = stepped.wait_for_canary("a rollback", lambda found: found["outcome"] == "RolledBack")
    assert canary["withdrawn"] is True
    assert canary["message"].startswith("20 percent were not live on every pod within 30 s: ")
    assert "missing.onnx" in canary["message"]
    assert set(answers.counted) == {("v1", 200)}
    assert condition_of(stepped.model, "RolloutBlocked")["status"] == "False"


def test_the_split_is_exact_and_a_version_without_weight_gets_nothing(stepped: Stepped) -> None:
    stepped.apply(("v5", "add"), steps=[23], stepSeconds=604_800)
    stepped.wait_for_canary("the step to begin", lambda found: bool(found["since"]))
    requests = 10_000
    answers, never = Answers(), threading.Event()
    callers = [address for address in PODS for _ in range(CALLERS)]
    with ThreadPoolExecutor(len(callers)) as pool:
        list(pool.map(lambda address: ask(address, answers, requests // len(callers), never), callers))
    assert answers.counted.total() == requests
    assert abs(answers.of("v5") / requests - 0.23) <= 0.01
    assert answers.of("v0") == 0
    assert answers.of("v1") + answers.of("v5") == requests


def test_without_a_plan_the_standing_is_removed_and_nothing_more_is_written(stepped: Stepped) -> None:
    stepped.apply()

    def at_rest() -> bool:
        model = stepped.model
        live = condition_of(model, "TrafficSettled")
        observed = live["observedGeneration"] == model["metadata"]["generation"]
        return bool(live["status"] == "True" and observed and "canary" not in model["status"])

    stepped.cluster.wait_for("the weights of the spec to be live, and no canary in the status", at_rest)
    before = stepped.model
    assert before["status"]["versions"] == "v1=100,v0=0"
    stepped.kubectl("annotate", "im", MODEL, "test=looked-at")
    time.sleep(2)  # the operator has heard of it, and writes nothing
    managed = stepped.model["metadata"]["generation"], stepped.model["status"]
    assert managed == (before["metadata"]["generation"], before["status"])


def test_the_way_from_operator_to_pods_left_no_error(stepped: Stepped) -> None:
    log = stepped.log.read_text()
    assert "Traceback" not in log
    assert "cannot be read" not in log
    assert "not measured" not in json.dumps(stepped.model["status"])
