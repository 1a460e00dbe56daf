"""Weights, versions and limits reach running servers: the real operator, the chart's rights, real runtimes.

There is no kubelet. Its part is played: each pod's process has the pod's arguments, variables and token.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from bench.settling.installed_operator import installed_chart, running_operator
from bench.settling.played_node import PlayedNode, lacking
from mcp2026.operator.observed import condition_of
from tests.loopback import http_get
from tools.cluster.cluster import Cluster
from tools.cluster.errors import ClusterError
from tools.models import generate

pytestmark = [
    pytest.mark.control_plane,
    pytest.mark.skipif(bool(lacking()), reason=f"no process may have its own mounts here: {lacking()}"),
]

SYSTEM, NAMESPACE, MODEL = "revisions-system", "revisions", "followed"
ACCOUNT = f"{MODEL}-mcp2026-runtime"
V1, V2 = "pvc://models/add.onnx", "pvc://models/add-hundred.onnx"


@dataclass(frozen=True)
class Followed:
    """A model whose two pods are real processes."""

    cluster: Cluster
    node: PlayedNode
    log: Path

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        return self.cluster.kubectl("-n", NAMESPACE, *arguments, input=text)

    def get(self, kind: str, name: str = MODEL) -> dict[str, Any]:
        return self.cluster.get(kind, name, "-n", NAMESPACE)

    def apply(self, versions: dict[str, tuple[str, int]], **spec: Any) -> None:
        resource = {
            "apiVersion": "mcp2026.io/v1alpha1",
            "kind": "InferenceModel",
            "metadata": {"name": MODEL},
            "spec": {
                "versions": [
                    {"versionId": version, "uri": uri, "weight": weight}
                    for version, (uri, weight) in versions.items()
                ],
                "replicas": 2,
                "gpu": {"count": 1},  # placed by a scheduler that does not run here
                **spec,
            },
        }
        self.kubectl("apply", "-f", "-", text=yaml.safe_dump(resource))

    def settled(self, status: str, reason: str) -> tuple[int, str]:
        """Return revision and message, once TrafficSettled speaks of the newest generation and says this."""

        def said() -> tuple[int, str] | None:
            model = self.get("im")
            condition = condition_of(model, "TrafficSettled")
            newest = condition.get("observedGeneration") == model["metadata"]["generation"]
            if newest and (condition["status"], condition["reason"]) == (status, reason):
                return model["status"]["traffic"]["revision"], condition["message"]
            return None

        found = self.cluster.wait_for(f"TrafficSettled to be {status}, {reason}", said)
        assert found is not None
        return found

    def identity(self) -> Any:
        """Return what must stay: the pods, the processes in them, and the Deployment's generation."""
        pods = {
            pod["metadata"]["uid"]: sum(
                container["restartCount"] for container in pod["status"].get("containerStatuses", [])
            )
            for pod in self.node.pods(MODEL, 2)
        }
        processes = {name: pod.process.poll() for name, pod in self.node.running.items()}
        return pods, processes, self.get("deployment")["metadata"]["generation"]

    def described(self) -> list[dict[str, Any]]:
        """Return what each server says that it serves."""
        answers = [http_get(pod.port, "/v1/models") for pod in self.node.running.values()]
        return [json.loads(body)["models"][0] for _, body in answers]


@pytest.fixture(scope="module")
def followed(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Followed]:
    folder = tmp_path_factory.mktemp("revisions")
    claims = folder / "claims"
    for name in ("add", "add-hundred"):
        generate(name, claims / "models")
    control_plane.kubectl("create", "namespace", NAMESPACE)
    with (
        installed_chart(control_plane, SYSTEM),
        running_operator(control_plane, SYSTEM, NAMESPACE, folder),
        PlayedNode(control_plane, NAMESPACE, claims, folder) as node,
    ):
        made = Followed(control_plane, node, folder / "operator.log")
        made.apply({"v1": (V1, 100)})
        for pod in node.pods(MODEL, 2):
            node.start(pod)
        control_plane.wait_for("both to be ready", lambda: all(p.is_ready for p in node.running.values()))
        for pod in node.pods(MODEL, 2):
            node.tell_ready(pod)
        assert made.settled("True", "RevisionLive") == (1, "revision 1 is live on 2 of 2 pods")
        yield made
        control_plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


CHANGES: list[tuple[str, dict[str, tuple[str, int]], dict[str, Any], Callable[[dict[str, Any]], bool]]] = [
    (
        "a version is added",
        {"v1": (V1, 90), "v2": (V2, 10)},
        {},
        lambda said: [(v["version_id"], v["weight"]) for v in said["versions"]] == [("v1", 90), ("v2", 10)],
    ),
    (
        "weights change",
        {"v1": (V1, 0), "v2": (V2, 100)},
        {},
        lambda said: [v["weight"] for v in said["versions"]] == [0, 100],
    ),
    (
        "batching changes",
        {"v1": (V1, 0), "v2": (V2, 100)},
        {"batching": {"maxBatchSize": 4}},
        lambda said: said["max_batch_size"] == 4,
    ),
    (
        "tenants and limits of time change, and a version is removed",
        {"v2": (V2, 100)},
        {"qos": {"tenants": [{"tenantId": "acme", "weight": 3}], "queue": {"maxTimeoutMs": 500}}},
        lambda said: [v["version_id"] for v in said["versions"]] == ["v2"],
    ),
]


@pytest.mark.parametrize(
    ("versions", "spec", "serves"), [row[1:] for row in CHANGES], ids=[row[0] for row in CHANGES]
)
def test_a_change_is_live_on_all_pods_without_a_new_pod_or_a_restart(
    followed: Followed,
    versions: dict[str, tuple[str, int]],
    spec: dict[str, Any],
    serves: Callable[[dict[str, Any]], bool],
) -> None:
    before = followed.identity()
    known = followed.get("im")["status"]["traffic"]["revision"]
    followed.apply(versions, **spec)
    revision, message = followed.settled("True", "RevisionLive")
    assert (revision, message) == (known + 1, f"revision {known + 1} is live on 2 of 2 pods")
    assert followed.get("im")["status"]["traffic"] == {"revision": revision, "liveOn": 2, "of": 2}
    for said in followed.described():
        assert said["revision"] == revision
        assert serves(said)
    assert followed.identity() == before


def test_a_version_that_cannot_be_loaded_is_told_while_the_old_one_serves(followed: Followed) -> None:
    before = followed.identity()
    serving = followed.described()
    followed.apply({"v2": (V2, 50), "v3": ("pvc://models/missing.onnx", 50)})
    _, message = followed.settled("False", "RevisionRefused")
    assert "missing.onnx" in message
    conditions = {one["type"]: one for one in followed.get("im")["status"]["conditions"]}
    assert conditions["Ready"]["status"] == "True"
    assert conditions["RolloutBlocked"]["reason"] == "RevisionRefused"
    assert followed.described() == serving
    followed.apply({"v2": (V2, 100)})
    followed.settled("True", "RevisionLive")
    assert followed.identity() == before


def test_numbers_grow_when_status_and_config_map_are_lost(followed: Followed) -> None:
    before = followed.identity()
    known = followed.get("im")["status"]["traffic"]["revision"]
    followed.kubectl("delete", "configmap", f"{MODEL}-serving")

    def grown() -> bool:
        traffic = followed.get("im")["status"]["traffic"]
        return bool(traffic["revision"] > known and traffic["liveOn"] == 2)

    followed.cluster.wait_for("a larger revision on both pods", grown)
    assert followed.identity() == before


ALLOWED = [
    f"watch configmaps/{MODEL}-serving",
    f"get configmaps/{MODEL}-serving",
    "create leases.coordination.k8s.io",
    "patch leases.coordination.k8s.io",
]
REFUSED = [
    "get configmaps/kube-root-ca.crt",
    "watch configmaps",
    "list configmaps",
    f"list configmaps/{MODEL}-serving",
    f"patch configmaps/{MODEL}-serving",
    "get leases.coordination.k8s.io",
    "list leases.coordination.k8s.io",
    "update leases.coordination.k8s.io",
    "delete leases.coordination.k8s.io",
    "get pods",
    "patch pods",
    "get secrets",
    "get inferencemodels.mcp2026.io",
    "patch inferencemodels.mcp2026.io/status",
    "create pods",
    "create serviceaccounts/token",
]


def test_the_account_of_the_pods_may_do_its_work_and_no_more(followed: Followed) -> None:
    who = f"--as=system:serviceaccount:{NAMESPACE}:{ACCOUNT}"

    def may(right: str) -> bool:
        verb, what = right.split()
        sub = [f"--subresource={what.partition('/')[2]}"] if what.endswith(("/status", "/token")) else []
        named = what.partition("/")[0] if sub else what
        try:
            return followed.kubectl("auth", "can-i", verb, named, *sub, who).strip() == "yes"
        except ClusterError:  # "no" is an exit code of 1
            return False

    assert [right for right in ALLOWED if not may(right)] == []
    assert [right for right in REFUSED if may(right)] == []


@contextmanager
def bearer_of(followed: Followed, token: str) -> Iterator[Any]:
    """Give a client that has nothing but `token`."""
    from kubernetes import config

    with config.new_client_from_config_dict(followed.node.credentials(token)) as api:  # type: ignore[no-untyped-call]
        yield api


def refusal(call: Callable[..., Any], *arguments: Any) -> str:
    """Return what the API server says when it refuses a call."""
    with pytest.raises(client.ApiException) as refused:
        call(*arguments)
    assert refused.value.status == 403
    return str(json.loads(str(refused.value.body))["message"])


POLICY = "a pod of a model may write one Lease"
RBAC = "is forbidden: User"


def test_a_pod_reads_its_own_config_map_and_writes_its_own_lease_alone(followed: Followed) -> None:
    one, other = (pod["metadata"]["name"] for pod in followed.node.pods(MODEL, 2))
    change = {"metadata": {"annotations": {"test": "written"}}}
    new = {"metadata": {"name": "of-nobody"}, "spec": {}}
    with bearer_of(followed, followed.node.token(followed.get("pod", one))) as api:
        core, coordination = client.CoreV1Api(api), client.CoordinationV1Api(api)
        assert core.read_namespaced_config_map(f"{MODEL}-serving", NAMESPACE).data
        assert RBAC in refusal(core.read_namespaced_config_map, "kube-root-ca.crt", NAMESPACE)
        assert RBAC in refusal(core.list_namespaced_config_map, NAMESPACE)
        assert coordination.patch_namespaced_lease(one, NAMESPACE, change)
        assert POLICY in refusal(coordination.patch_namespaced_lease, other, NAMESPACE, change)
        assert POLICY in refusal(coordination.create_namespaced_lease, NAMESPACE, new)
        assert RBAC in refusal(coordination.read_namespaced_lease, other, NAMESPACE)
        assert RBAC in refusal(coordination.delete_namespaced_lease, one, NAMESPACE)


def test_a_token_that_no_pod_holds_writes_no_lease(followed: Followed) -> None:
    new = {"metadata": {"name": "of-nobody"}, "spec": {}}
    with bearer_of(followed, followed.kubectl("create", "token", ACCOUNT).strip()) as api:
        assert POLICY in refusal(client.CoordinationV1Api(api).create_namespaced_lease, NAMESPACE, new)


def test_others_write_leases_as_before(followed: Followed) -> None:
    followed.kubectl("create", "-f", "-", text=LEASE_OF_SOMEBODY_ELSE)


LEASE_OF_SOMEBODY_ELSE = """
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: of-somebody-else}
spec: {}
"""


def test_the_operator_had_all_rights_that_it_needed(followed: Followed) -> None:
    log = followed.log.read_text()
    assert "orbidden" not in log
    assert "Traceback" not in log
