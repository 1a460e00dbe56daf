"""Batch models on a real control plane: its Job controller counts attempts, its API server guards the life.

There is no kubelet: pods get their status by hand, as a kubelet would write it.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.test_crds import install_crds
from tests.cluster.test_operator import Operator, start
from tests.fakes.played_job import BATCH, last_word
from tests.loopback import free_port
from tools.cluster.cluster import Cluster
from tools.cluster.errors import ClusterError

pytestmark = pytest.mark.control_plane

NAMESPACE = "batch-job-tests"
PATIENCE = 60


@pytest.fixture(scope="module")
def operator(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    install_crds(control_plane)
    control_plane.kubectl("create", "namespace", NAMESPACE)
    log = tmp_path_factory.mktemp("operator") / "log"
    port = free_port()
    running = Operator(
        control_plane, start(control_plane, log, port, namespace=NAMESPACE), port, log, NAMESPACE
    )
    try:
        yield running
    finally:
        running.process.terminate()
        assert running.process.wait(30) == 0, log.read_text()[-3000:]
        control_plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def apply(operator: Operator, name: str, batch: dict[str, Any] | None = None, **spec: Any) -> None:
    """Apply a run that asks for a GPU: its scheduler does not run here, so that we bind its pods."""
    resource = {
        "apiVersion": "mcp2026.io/v1alpha1",
        "kind": "InferenceModel",
        "metadata": {"name": name},
        "spec": {
            "mode": "Batch",
            "versions": [{"versionId": "v1", "uri": "pvc://models/a.onnx"}],
            "batch": {**BATCH, **(batch or {})},
            "gpu": {"count": 1},
            **spec,
        },
    }
    operator.kubectl("apply", "-f", "-", text=yaml.safe_dump(resource))


def pod(operator: Operator, model: str, known: tuple[str, ...] = ()) -> str:
    """Return the name of the pod of the present attempt."""

    def found() -> str | None:
        return next(
            (
                one["metadata"]["name"]
                for one in operator.pods(model)
                if one["metadata"]["name"] not in known and "deletionTimestamp" not in one["metadata"]
            ),
            None,
        )

    return operator.cluster.wait_for(f"a pod of {model}", found, PATIENCE)


def bind(operator: Operator, name: str) -> None:
    status = {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]}
    patch(operator, name, status)


def end(operator: Operator, name: str, code: int, message: str) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    terminated = {
        "exitCode": code,
        "reason": "Error" if code else "Completed",
        "message": message,
        "startedAt": now,
        "finishedAt": now,
    }
    container = {
        "name": "runtime",
        "image": "registry.example/mcp2026:1",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"terminated": terminated},
    }
    patch(operator, name, {"phase": "Failed" if code else "Succeeded", "containerStatuses": [container]})


def patch(operator: Operator, name: str, status: dict[str, Any]) -> None:
    text = json.dumps({"status": status})
    operator.kubectl("patch", "pod", name, "--subresource=status", "--type=strategic", "-p", text)


def wait_for_phase(operator: Operator, name: str, phase: str) -> dict[str, Any]:
    def found() -> dict[str, Any] | None:
        status = operator.get("im", name).get("status", {})
        return status if status.get("phase") == phase else None

    return operator.cluster.wait_for(f"{name} to be {phase}", found, PATIENCE)


def test_a_run_completes_and_its_job_is_kept_for_an_hour(operator: Operator) -> None:
    apply(operator, "whole", {"timeoutSeconds": 3600})
    attempt = pod(operator, "whole")
    assert operator.condition("whole", "Ready")["status"] == "False"
    bind(operator, attempt)
    wait_for_phase(operator, "whole", "Running")
    operator.cluster.wait_for(
        "the deadline",
        lambda: operator.get("job", "whole")["spec"].get("activeDeadlineSeconds", 0) >= 3600,
        PATIENCE,
    )
    end(operator, attempt, 0, last_word())
    status = wait_for_phase(operator, "whole", "Completed")
    assert [step["event"] for step in status["transitions"]] == [
        "ResourceAllocated",
        "ExitCodeReported",
        "DataSynced",
    ]
    assert (status["batch"]["rowsDone"], status["batch"]["rowsTotal"]) == (100, 100)
    assert operator.condition("whole", "Ready")["status"] == "True"
    operator.cluster.wait_for(
        "the time to live",
        lambda: operator.get("job", "whole")["spec"].get("ttlSecondsAfterFinished") == 3600,
        PATIENCE,
    )


def test_at_rest_no_job_is_written(operator: Operator) -> None:
    apply(operator, "still")
    bind(operator, pod(operator, "still"))
    wait_for_phase(operator, "still", "Running")
    before = operator.get("job", "still")["metadata"]["generation"]
    lines = operator.log.read_text().count("applied Job batch-job-tests/still")
    assert lines == 1
    age = operator.get("im", "still")["metadata"]["resourceVersion"]
    apply(operator, "after-still")
    pod(operator, "after-still")
    assert operator.get("job", "still")["metadata"]["generation"] == before
    assert operator.log.read_text().count("applied Job batch-job-tests/still") == lines
    assert operator.get("im", "still")["metadata"]["resourceVersion"] == age


def test_a_data_set_that_is_refused_is_not_tried_again(operator: Operator) -> None:
    apply(operator, "refused")
    attempt = pod(operator, "refused")
    bind(operator, attempt)
    said = last_word(exit_code=3, reason="InputRefused", message="row 7: 3 values", rows=0, sha256=None)
    wait_for_phase(operator, "refused", "Running")
    end(operator, attempt, 3, said)
    wait_for_phase(operator, "refused", "Failed")
    assert len(operator.pods("refused")) == 1
    condition = operator.condition("refused", "RunEnded")
    assert (condition["reason"], condition["message"]) == ("InputRefused", "exit code 3: row 7: 3 values")
    events = operator.kubectl(
        "get", "events", "--field-selector=involvedObject.name=refused,type=Warning", "-o",
        "jsonpath={.items[*].reason}",
    )  # fmt: skip
    assert "InputRefused" in events.split()


def test_a_job_that_is_deleted_by_hand_goes_on_in_a_new_one(operator: Operator) -> None:
    apply(operator, "robbed-run")
    first = pod(operator, "robbed-run")
    bind(operator, first)
    wait_for_phase(operator, "robbed-run", "Running")
    operator.kubectl("delete", "job", "robbed-run", "--wait=false")
    second = pod(operator, "robbed-run", (first,))
    bind(operator, second)
    end(operator, second, 0, last_word(rows_resumed=40))
    wait_for_phase(operator, "robbed-run", "Completed")


def test_evidence_that_went_with_the_pod_is_made_again(operator: Operator) -> None:
    apply(operator, "forgotten")
    first = pod(operator, "forgotten")
    bind(operator, first)
    wait_for_phase(operator, "forgotten", "Running")
    operator.process.terminate()
    assert operator.process.wait(30) == 0
    try:
        end(operator, first, 0, last_word())
        operator.kubectl("wait", "--for=condition=Complete", "job/forgotten", "--timeout=60s")
        operator.kubectl("delete", "pod", first, "--grace-period=0", "--force")
    finally:
        operator.process = start(
            operator.cluster, Path(operator.log), operator.liveness_port, namespace=NAMESPACE
        )
    second = pod(operator, "forgotten", (first,))
    bind(operator, second)
    end(operator, second, 0, last_word(rows_resumed=100))
    wait_for_phase(operator, "forgotten", "Completed")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mode": "Serve", "batch": None}, "spec.mode: cannot change"),
        ({"batch": {"output": "pvc://data/other.npy"}}, "a run cannot change"),
        ({"batching": {"maxBatchSize": 64}}, "a run cannot change"),
        ({"priorityClassName": "mcp-gpu-high"}, "a run cannot change"),
        ({"replicas": 2}, "with mode Batch: one version, 1 replica"),
    ],
    ids=["mode", "output", "batch size", "priority class", "replicas"],
)
def test_a_run_cannot_be_changed(operator: Operator, change: dict[str, Any], said: str) -> None:
    apply(operator, "fixed")
    with pytest.raises(ClusterError, match=said):
        operator.patch_spec("fixed", **change)
    operator.patch_spec("fixed", dependsOn=["other"])


def test_a_served_model_cannot_become_a_run(operator: Operator) -> None:
    operator.apply("stays")
    with pytest.raises(ClusterError, match="mode: cannot change"):
        operator.patch_spec("stays", mode="Batch", batch=BATCH)
