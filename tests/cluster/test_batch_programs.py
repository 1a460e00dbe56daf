"""A data set from kubectl apply to Completed: the real operator, the chart's rights, and the real program.

There is no kubelet. Its part is played: each attempt is a process with the pod's arguments, variables and
token, and its exit code and termination message become the pod's status.
"""

import gzip
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy
import pytest
import yaml

from bench.settling.installed_operator import installed_chart, running_operator
from bench.settling.played_node import PlayedNode
from mcp2026.api.names import MODELS_DIRECTORY
from mcp2026.operator.observed import condition_of
from tools.cluster.cluster import Cluster
from tools.models import generate

pytestmark = pytest.mark.control_plane

SYSTEM, NAMESPACE, MODEL = "batch-system", "batch", "nightly"
ROWS = 2_500
PATIENCE = 120


@dataclass(frozen=True)
class Attempt:
    """One pod, and the process that runs for it."""

    cluster: Cluster
    pod: dict[str, Any]
    process: "subprocess.Popen[bytes]"
    folder: Path

    def patch_status(self, status: dict[str, Any]) -> None:
        text = json.dumps({"status": status})
        self.cluster.kubectl(
            "-n", NAMESPACE, "patch", "pod", self.pod["metadata"]["name"], "--subresource=status",
            "--type=strategic", "-p", text,
        )  # fmt: skip

    def report_end(self) -> int:
        """Wait for the process, and write of its end what a kubelet writes."""
        code = self.process.wait(PATIENCE)
        code = 128 - code if code < 0 else code
        message = self.folder / "termination.json"
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        terminated = {
            "exitCode": code,
            "reason": "Error" if code else "Completed",
            "message": message.read_text() if message.exists() else "",
            "startedAt": now,
            "finishedAt": now,
        }
        container = {"name": "runtime", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
        status = {**container, "state": {"terminated": terminated}}
        self.patch_status({"phase": "Failed" if code else "Succeeded", "containerStatuses": [status]})
        return code


@dataclass(frozen=True)
class Batches:
    """The cluster, the claims as folders, and who mints the tokens of pods."""

    cluster: Cluster
    node: PlayedNode
    claims: Path
    log: Path

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.cluster.get("im", MODEL, "-n", NAMESPACE).get("status", {})
        return found

    def wait_for_phase(self, phase: str) -> dict[str, Any]:
        return self.cluster.wait_for(
            f"{MODEL} to be {phase}",
            lambda: found if (found := self.status()).get("phase") == phase else None,
            PATIENCE,
        )

    def start(self, known: set[str]) -> Attempt:
        """Bind the pod of the next attempt, and run its program."""

        def found() -> dict[str, Any] | None:
            pods = self.cluster.get("pods", "-n", NAMESPACE, "-l", f"mcp2026.io/inference-model={MODEL}")
            return next((pod for pod in pods["items"] if pod["metadata"]["name"] not in known), None)

        pod = self.cluster.wait_for("the next attempt's pod", found, PATIENCE)
        name = pod["metadata"]["name"]
        known.add(name)
        own = self.node.folder / name
        own.mkdir()
        (own / "kubeconfig").write_text(yaml.safe_dump(self.node.credentials(self.node.token(pod))))
        config = self.cluster.get("configmap", f"{MODEL}-serving", "-n", NAMESPACE)["data"]["serving.json"]
        (own / "serving.json").write_text(config.replace(MODELS_DIRECTORY, str(self.claims)))
        replaced = {
            "--serving-config": own / "serving.json",
            "--termination-message": own / "termination.json",
            "--log-file": own / "batch.log",
        }
        container = pod["spec"]["containers"][0]
        given = container["args"]
        line = [str(replaced.get(before, value)) for before, value in zip(["", *given], given, strict=False)]
        variables = {
            "MCP2026_POD_NAME": name,
            "MCP2026_POD_NAMESPACE": NAMESPACE,
            "MCP2026_POD_UID": pod["metadata"]["uid"],
        }
        assert set(variables) <= {variable["name"] for variable in container["env"]}
        assert container["command"] == ["mcp2026-batch"]
        with (own / "output").open("wb") as sink:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "mcp2026.runtime.dataset", *line),
                    *("--models-directory", str(self.claims)),
                ],
                env={**os.environ, **variables, "KUBECONFIG": str(own / "kubeconfig")},
                stdout=sink,
                stderr=sink,
            )
        attempt = Attempt(self.cluster, pod, process, own)
        bound = {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]}
        attempt.patch_status(bound)
        return attempt


@contextmanager
def slowed(process: "subprocess.Popen[bytes]", parts: Path) -> Iterator[None]:
    """Let a process run now and then once it has written a part, so that it can be seen at work.

    It is killed if the test fails.
    """
    over = threading.Event()

    def take_turns() -> None:
        while not parts.is_dir() and process.poll() is None:
            over.wait(0.02)
        while not over.is_set() and process.poll() is None:
            process.send_signal(signal.SIGSTOP)
            over.wait(0.38)
            process.send_signal(signal.SIGCONT)
            over.wait(0.02)

    turns = threading.Thread(target=take_turns)
    turns.start()
    try:
        yield
    except BaseException:
        process.kill()
        raise
    finally:
        over.set()
        turns.join()


@pytest.fixture
def batches(control_plane: Cluster, tmp_path: Path) -> Iterator[Batches]:
    claims = tmp_path / "claims"
    generate("mlp", claims / "models")
    (claims / "data").mkdir()
    numpy.save(claims / "data" / "rows.npy", numpy.ones((ROWS, 64), numpy.float32))
    control_plane.kubectl("create", "namespace", NAMESPACE)
    with (
        installed_chart(control_plane, SYSTEM),
        running_operator(control_plane, SYSTEM, NAMESPACE, tmp_path),
        PlayedNode(control_plane, NAMESPACE, claims, tmp_path) as node,
    ):
        yield Batches(control_plane, node, claims, tmp_path / "operator.log")
        control_plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def test_a_run_that_is_killed_goes_on_in_the_next_pod_and_completes(batches: Batches) -> None:
    resource = {
        "apiVersion": "mcp2026.io/v1alpha1",
        "kind": "InferenceModel",
        "metadata": {"name": MODEL},
        "spec": {
            "mode": "Batch",
            "versions": [{"versionId": "v1", "uri": "pvc://models/mlp.onnx"}],
            "batch": {
                "input": "pvc://data/rows.npy",
                "output": "pvc://data/results.npy",
                "rowsPerPart": 1,
            },
            "gpu": {"count": 1},  # placed by a scheduler that does not run here
        },
    }
    batches.cluster.kubectl("-n", NAMESPACE, "apply", "-f", "-", input=yaml.safe_dump(resource))
    known: set[str] = set()

    first = batches.start(known)
    with slowed(first.process, batches.claims / "data" / "results.npy.parts"):
        batches.wait_for_phase("Running")
        seen = batches.cluster.wait_for(
            "progress in the status", lambda: batches.status().get("batch", {}).get("rowsDone"), PATIENCE
        )
        first.process.kill()
    assert first.report_end() == 137
    assert 0 < seen < ROWS
    assert batches.status()["batch"]["rowsTotal"] == ROWS

    second = batches.start(known)
    assert second.report_end() == 0, (second.folder / "output").read_text()
    status = batches.wait_for_phase("Completed")
    assert (status["batch"]["rowsDone"], status["batch"]["attempts"]) == (ROWS, 2)
    said = json.loads((second.folder / "termination.json").read_text())
    assert said["rows_resumed"] >= seen
    output = batches.claims / "data" / "results.npy"
    assert len(numpy.load(output)) == ROWS
    assert hashlib.sha256(output.read_bytes()).hexdigest() in condition_of(
        {"status": status}, "RunEnded"
    )["message"]  # fmt: skip
    archive = batches.claims / "data" / "results.npy.log.gz"
    assert hashlib.sha256(archive.read_bytes()).hexdigest() in condition_of(
        {"status": status}, "DataSynced"
    )["message"]  # fmt: skip
    assert b"were done by an earlier run" in gzip.decompress(archive.read_bytes())
    assert "403" not in batches.log.read_text(), "the chart gives too few rights"
    lease = batches.cluster.get("lease", second.pod["metadata"]["name"], "-n", NAMESPACE)
    assert json.loads(lease["metadata"]["annotations"]["mcp2026.io/batch-progress"])["rowsTotal"] == ROWS
