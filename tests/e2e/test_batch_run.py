"""Data sets on a real node: the kubelet runs and ends the pods of Jobs, with the image that users get."""

import gzip
import hashlib
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mcp2026.operator.observed import condition_of
from tests.e2e.state import gpus_by_uuid, state_of
from tools.cluster import Cluster
from tools.cluster.cgroups import members
from tools.cluster.errors import ClusterError
from tools.cluster.record import ProcessIdentity
from tools.demo import installation as demo
from tools.demo.inference import TOLERANCE, run_directly
from tools.demo.installation import Installation, provide_claim, provide_models, sample_model

pytestmark = pytest.mark.node

NAMESPACE = "batch-runs"
PATIENCE = 240
ROWS, ROWS_OF_PART = 600, 4
"""Of the run that is killed: 150 executions of about 0.03 s."""
UNENDING = 200_000
"""Rows of the run that its deadline ends: over 20 minutes of executions."""
DEADLINE_S = 15


@dataclass(frozen=True)
class Runs:
    """Four runs that were applied at once, and the claim `data` as a folder."""

    cluster: Cluster
    data: Path
    models: Path

    def get(self, kind: str, name: str) -> dict[str, Any]:
        return self.cluster.get("--namespace", NAMESPACE, kind, name)

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get("inferencemodel", name).get("status", {})
        return found

    def wait_for_phase(self, name: str, phase: str) -> dict[str, Any]:
        def reached() -> dict[str, Any] | None:
            status = self.status(name)
            return status if status.get("phase") == phase else None

        try:
            return self.cluster.wait_for(f"{name} to be {phase}", reached, PATIENCE)
        except ClusterError as error:
            pytest.fail(f"{error}\n{state_of(self.cluster, NAMESPACE)}")

    def pods(self, name: str) -> list[dict[str, Any]]:
        """Return the pods of all attempts, the first one first."""
        label = f"mcp2026.io/inference-model={name}"
        found = self.cluster.get("--namespace", NAMESPACE, "pods", "-l", label)["items"]
        return sorted(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def expected(self, model: str, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        return run_directly(self.models / f"{model}.onnx", rows)


def resource(name: str, model: str, batch: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "mcp2026.io/v1alpha1",
        "kind": "InferenceModel",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "mode": "Batch",
            "versions": [{"versionId": "v1", "uri": f"pvc://models/{model}.onnx"}],
            "batch": batch,
            "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
            **spec,
        },
    }


def samples(count: int, width: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(count).standard_normal((count, width), np.float32)


@pytest.fixture(scope="module")
def runs(installation: Installation) -> Iterator[Runs]:
    cluster = installation.cluster
    data = cluster.folder / "data"
    data.mkdir()
    data.chmod(0o777)
    numbered = {"id": range(ROWS), "input": list(samples(ROWS, 16))}
    pq.write_table(pa.table(numbered), data / "numbered.parquet")
    np.save(data / "whole.npy", samples(1000, 64))
    np.save(data / "narrow.npy", samples(8, 15))
    np.save(data / "unending.npy", np.ones((UNENDING, 16), np.float32))
    models = [sample_model(name) for name in ("mlp", "slow")]
    cluster.kubectl("create", "namespace", NAMESPACE)
    provide_models(cluster, models[0].parent, NAMESPACE)
    provide_claim(cluster, "data", data, NAMESPACE, writable=True)

    def batch(source: str, output: str, **more: Any) -> dict[str, Any]:
        return {"input": f"pvc://data/{source}", "output": f"pvc://data/{output}", **more}

    cluster.apply(
        resource("whole", "mlp", batch("whole.npy", "whole.parquet"), gpu={"count": 1}),
        resource(
            "killed", "slow", batch("numbered.parquet", "killed.parquet", rowsPerPart=ROWS_OF_PART),
            batching={"maxBatchSize": ROWS_OF_PART},
        ),
        resource("narrow", "slow", batch("narrow.npy", "narrow-results.npy")),
        resource(
            "unending", "slow", batch("unending.npy", "unending-results.npy", rowsPerPart=ROWS_OF_PART,
                                      timeoutSeconds=DEADLINE_S),
            batching={"maxBatchSize": ROWS_OF_PART},
        ),
    )  # fmt: skip
    yield Runs(cluster, data, models[0].parent)
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=true")


def said(pod: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return the exit code of a pod's container, and what it left to say."""
    terminated = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    message = terminated.get("message", "")
    return terminated["exitCode"], json.loads(message) if message.startswith("{") else {}


def processes_of(cluster: Cluster, pod: dict[str, Any]) -> list[ProcessIdentity]:
    """Return the processes of a pod's one container, not that which holds the pod's namespaces."""
    (told,) = pod["status"].get("containerStatuses") or [{}]
    container = told.get("containerID", "").removeprefix("containerd://")
    if not container:
        return []
    (below,) = cluster.record.cgroups
    return [one for one in members(below) if container in Path(f"/proc/{one.pid}/cgroup").read_text()]


def rows_in_parts(output: Path) -> int:
    """Return how many rows have results that last; parts under other names are not whole yet."""
    folder = output.with_name(f"{output.name}.parts")
    names = [path.name for path in folder.glob("*-*") if path.name[:1].isdigit() and not path.suffix]
    return sum(int(name.split("-")[1]) for name in names)


def test_a_process_that_is_killed_is_followed_by_a_pod_that_does_the_rest(runs: Runs) -> None:
    runs.wait_for_phase("killed", "Running")
    output = runs.data / "killed.parquet"
    enough = 3 * ROWS_OF_PART
    runs.cluster.wait_for("three parts", lambda: rows_in_parts(output) >= enough, PATIENCE, 0.01)
    (process,) = runs.cluster.wait_for(
        "the kubelet to name the container", lambda: processes_of(runs.cluster, *runs.pods("killed"))
    )
    os.kill(process.pid, signal.SIGSTOP)
    done = rows_in_parts(output)
    os.kill(process.pid, signal.SIGKILL)
    assert 0 < done < ROWS

    status = runs.wait_for_phase("killed", "Completed")
    first, second = runs.pods("killed")
    assert said(first) == (137, {})
    code, last_word = said(second)
    assert (code, last_word["rows"], last_word["rows_resumed"]) == (0, ROWS, done)
    assert (status["batch"]["rowsDone"], status["batch"]["attempts"]) == (ROWS, 2)
    results = pq.read_table(output)
    assert results["id"].to_pylist() == list(range(ROWS))
    answers = np.array(results["output"].to_pylist())
    expected = runs.expected("slow", samples(ROWS, 16))
    np.testing.assert_allclose(answers, expected, rtol=TOLERANCE, atol=TOLERANCE)
    assert not output.with_name("killed.parquet.parts").exists()


def test_a_run_goes_from_pending_to_completed_with_the_results_of_onnxruntime(runs: Runs) -> None:
    status = runs.wait_for_phase("whole", "Completed")
    assert [(step["from"], step["event"], step["to"]) for step in status["transitions"]] == [
        ("Pending", "ResourceAllocated", "Running"),
        ("Running", "ExitCodeReported", "Succeeded"),
        ("Succeeded", "DataSynced", "Completed"),
    ]
    results = np.array(pq.read_table(runs.data / "whole.parquet")["output"].to_pylist())
    expected = runs.expected("mlp", samples(1000, 64))
    np.testing.assert_allclose(results, expected, rtol=TOLERANCE, atol=TOLERANCE)
    assert (status["batch"]["rowsDone"], status["batch"]["attempts"]) == (1000, 1)
    shown = runs.cluster.kubectl("--namespace", NAMESPACE, "wait", "im/whole", "--for=condition=Ready")
    assert "condition met" in shown


def test_the_status_has_the_digests_of_the_output_and_of_the_archived_log(runs: Runs) -> None:
    status = runs.wait_for_phase("whole", "Completed")
    for name, kind in (("whole.parquet", "RunEnded"), ("whole.parquet.log.gz", "DataSynced")):
        content = (runs.data / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() in condition_of({"status": status}, kind)["message"]
    log = gzip.decompress((runs.data / "whole.parquet.log.gz").read_bytes()).decode()
    assert "Completed: 1000 rows are done" in log


def test_a_pod_tells_its_progress_on_its_lease(runs: Runs) -> None:
    runs.wait_for_phase("killed", "Completed")
    pod = runs.pods("killed")[-1]
    lease = runs.get("lease", pod["metadata"]["name"])
    assert lease["spec"]["holderIdentity"] == pod["metadata"]["uid"]
    assert json.loads(lease["metadata"]["annotations"]["mcp2026.io/batch-progress"])["rowsTotal"] == ROWS


def test_a_run_is_placed_by_our_scheduler_and_gives_its_gpu_back(runs: Runs) -> None:
    runs.wait_for_phase("whole", "Completed")
    (pod,) = runs.pods("whole")
    assert pod["spec"]["schedulerName"] == "mcp2026-scheduler"

    def free() -> bool:
        holders = [gpu.get("heldBy", {}).get("pod") for gpu in gpus_by_uuid(runs.cluster).values()]
        return pod["metadata"]["name"] not in holders

    runs.cluster.wait_for("the GPU to be free", free)


def test_a_data_set_that_is_refused_is_not_tried_again(runs: Runs) -> None:
    status = runs.wait_for_phase("narrow", "Failed")
    (pod,) = runs.pods("narrow")
    code, last_word = said(pod)
    assert (code, last_word["reason"]) == (3, "InputRefused")
    assert condition_of(runs.get("job", "narrow"), "Failed")["reason"] == "PodFailurePolicy"
    ended = condition_of({"status": status}, "RunEnded")
    assert (ended["reason"], ended["message"]) == ("InputRefused", f"exit code 3: {last_word['message']}")
    assert status["batch"]["attempts"] == 1
    assert not (runs.data / "narrow-results.npy").exists()


def test_a_run_that_takes_too_long_is_ended(runs: Runs) -> None:
    status = runs.wait_for_phase("unending", "Failed")
    assert condition_of(runs.get("job", "unending"), "Failed")["reason"] == "DeadlineExceeded"
    ended = condition_of({"status": status}, "RunEnded")
    assert ended["reason"] == "Timeout"
    assert ended["message"].startswith("spec.batch.timeoutSeconds is over")
    began, over = (datetime.fromisoformat(step["time"]) for step in status["transitions"])
    assert (over - began).total_seconds() >= DEADLINE_S - 1  # times are whole seconds
    assert status["batch"]["attempts"] == 1
    assert not (runs.data / "unending-results.npy").exists()


def test_the_image_has_what_data_sets_need(runs: Runs) -> None:
    script = "import obstore.store, pyarrow.parquet, onnxruntime; print('there')"
    place = ("--namespace", demo.NAMESPACE, "deploy/mcp2026-operator")
    assert runs.cluster.kubectl("exec", *place, "--", "python3", "-c", script).strip() == "there"
