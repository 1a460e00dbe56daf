"""A served model is stopped: real operator, API server, controllers and runtimes. The kubelet is played."""

import gzip
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.settling.installed_operator import installed_chart, running_operator
from bench.settling.played_node import PlayedNode, lacking
from mcp2026.operator.observed import condition_of
from tools.cluster.cluster import Cluster
from tools.cluster.errors import ClusterError
from tools.models import generate

pytestmark = [
    pytest.mark.control_plane,
    pytest.mark.skipif(bool(lacking()), reason=f"no process may have its own mounts here: {lacking()}"),
]

SYSTEM, NAMESPACE, MODEL = "stopping-system", "stopping", "ended"
EXIT_SECONDS = 60


@dataclass(frozen=True)
class Stopped:
    """A model whose two pods are real processes."""

    cluster: Cluster
    node: PlayedNode
    folder: Path

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        return self.cluster.kubectl("-n", NAMESPACE, *arguments, input=text)

    def get(self, kind: str, name: str = MODEL) -> dict[str, Any]:
        return self.cluster.get(kind, name, "-n", NAMESPACE)

    def apply(self, name: str = MODEL, **spec: Any) -> None:
        resource = {
            "apiVersion": "mcp2026.io/v1alpha1",
            "kind": "InferenceModel",
            "metadata": {"name": name},
            "spec": {
                "versions": [{"versionId": "v1", "uri": "pvc://models/add.onnx"}],
                "replicas": 2,
                "gpu": {"count": 1},  # placed by a scheduler that does not run here
                "logArchive": {"folder": f"pvc://logs/{name}"},
                **spec,
            },
        }
        self.kubectl("apply", "-f", "-", text=yaml.safe_dump(resource))

    def phase(self, phase: str) -> dict[str, Any]:
        """Return the model once it has this phase."""

        def found() -> dict[str, Any] | None:
            model = self.get("im")
            return model if model.get("status", {}).get("phase") == phase else None

        model = self.cluster.wait_for(f"phase {phase}", found)
        assert model is not None
        return model

    def tell_ended(self, pod: dict[str, Any], *, restarted: bool) -> None:
        """Give the pod the status of a container that ended, and that was started again or will be."""
        name = pod["metadata"]["name"]
        code = self.node.running[name].process.wait(EXIT_SECONDS)
        message = (self.folder / name / "termination").read_text()
        ended = {"terminated": {"exitCode": code, "reason": "Completed", "message": message}}
        container: dict[str, Any] = {
            "name": "runtime",
            "image": "registry.example/mcp2026:1",
            "imageID": "",
            "ready": False,
            "restartCount": int(restarted),
            **(
                {"state": {"running": {"startedAt": None}}, "lastState": ended}
                if restarted
                else {"state": ended}
            ),
        }
        conditions = [
            {"type": "PodScheduled", "status": "True"},
            {"type": "Ready", "status": "False"},
            {"type": "ContainersReady", "status": "False"},
        ]
        self.node.tell_ready(pod, conditions=conditions, containerStatuses=[container])


@pytest.fixture(scope="module")
def stopped(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stopped]:
    folder = tmp_path_factory.mktemp("stopping")
    claims = folder / "claims"
    generate("add", claims / "models")
    (claims / "logs").mkdir()
    control_plane.kubectl("create", "namespace", NAMESPACE)
    with (
        installed_chart(control_plane, SYSTEM),
        PlayedNode(control_plane, NAMESPACE, claims, folder) as node,
    ):
        yield Stopped(control_plane, node, folder)
        control_plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def test_it_ends_by_what_its_servers_report_though_the_operator_dies_meanwhile(stopped: Stopped) -> None:
    cluster, node = stopped.cluster, stopped.node
    with running_operator(cluster, SYSTEM, NAMESPACE, stopped.folder):
        stopped.apply()
        pods = node.pods(MODEL, 2)
        for pod in pods:
            node.start(pod)
        cluster.wait_for("both to be ready", lambda: all(one.is_ready for one in node.running.values()))
        running = {"name": "runtime", "state": {"running": {"startedAt": None}}, "ready": True}
        status = {**running, "image": "i", "imageID": "", "restartCount": 0}
        for pod in pods:
            node.tell_ready(pod, containerStatuses=[status])
        stopped.phase("Running")
        stopped.kubectl("patch", "im", MODEL, "--type=merge", "-p", '{"spec":{"stopped":true}}')
        for one in node.running.values():
            assert one.process.wait(EXIT_SECONDS) == 0, one.log.read_text()[-3_000:]
        assert stopped.get("deployment")["spec"]["paused"] is True
        assert stopped.get("im")["status"]["phase"] == "Running"
        stopped.tell_ended(pods[0], restarted=True)
        cluster.wait_for("the first", lambda: len(stopped.get("im")["status"].get("endedServers", [])) == 1)
    stopped.tell_ended(pods[1], restarted=False)
    with running_operator(cluster, SYSTEM, NAMESPACE, stopped.folder):
        model = stopped.phase("Completed")
        cluster.wait_for("no pod", lambda: stopped.get("deployment")["spec"]["replicas"] == 0)
        cluster.wait_for("their end", lambda: not cluster.get("pods", "-n", NAMESPACE)["items"])
        steps = [(step["event"], step["to"]) for step in model["status"]["transitions"]]
        assert steps == [
            ("ResourceAllocated", "Running"),
            ("ExitCodeReported", "Succeeded"),
            ("DataSynced", "Completed"),
        ]
        message = condition_of(model, "DataSynced")["message"]
        for pod in pods:
            name = pod["metadata"]["name"]
            archive = (node.claims / "logs" / MODEL / f"{name}.log.gz").read_bytes()
            assert f"{name}.log.gz sha256 {hashlib.sha256(archive).hexdigest()}" in message
            assert b"says that the model is stopped" in gzip.decompress(archive)
        assert {server["pod"] for server in model["status"]["endedServers"]} == {
            pod["metadata"]["name"] for pod in pods
        }


def test_stopped_cannot_be_taken_back_and_the_place_of_logs_cannot_change_with_it(stopped: Stopped) -> None:
    stopped.apply("refused", replicas=0)

    def patch(**spec: Any) -> None:
        stopped.kubectl("patch", "im", "refused", "--type=merge", "-p", json.dumps({"spec": spec}))

    with pytest.raises(ClusterError, match=r"spec\.logArchive: cannot change"):
        patch(stopped=True, logArchive={"folder": "pvc://logs/other"})
    patch(stopped=True)
    with pytest.raises(ClusterError, match=r"spec\.stopped: cannot be taken back"):
        patch(stopped=False)
    with pytest.raises(ClusterError, match=r"spec\.logArchive: cannot change"):
        patch(logArchive=None)
    with pytest.raises(ClusterError, match="mode Batch"):
        stopped.apply(
            "batch",
            mode="Batch",
            replicas=1,
            stopped=True,
            batch={"input": "pvc://d/a.npy", "output": "pvc://d/b.npy"},
        )
