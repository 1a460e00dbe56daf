"""A served model is stopped on a real node: the kubelet ends, restarts and removes its containers."""

import gzip
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mcp2026.operator.observed import condition_of
from tests.e2e.state import state_of
from tools.cluster import Cluster
from tools.cluster.errors import ClusterError
from tools.demo.installation import Installation, provide_claim, provide_models, sample_model

pytestmark = pytest.mark.node

NAMESPACE, MODEL = "stopped-models", "ended"
PATIENCE = 240
REPLICAS = 2


@dataclass(frozen=True)
class Served:
    """A model with two pods, and the claim `logs` as a folder."""

    cluster: Cluster
    logs: Path

    def get(self, kind: str, name: str = MODEL) -> dict[str, Any]:
        return self.cluster.get("--namespace", NAMESPACE, kind, name)

    def wait_for(self, what: str, good: Any) -> dict[str, Any]:
        """Return the model once `good` holds of it."""

        def found() -> dict[str, Any] | None:
            model = self.get("inferencemodel")
            return model if "status" in model and good(model) else None

        try:
            model = self.cluster.wait_for(what, found, PATIENCE)
        except ClusterError as error:
            pytest.fail(f"{error}\n{state_of(self.cluster, NAMESPACE)}")
        assert model is not None
        return model


@pytest.fixture(scope="module")
def served(installation: Installation) -> Iterator[Served]:
    cluster = installation.cluster
    logs = cluster.folder / "stopped-logs"
    logs.mkdir()
    logs.chmod(0o777)
    cluster.kubectl("create", "namespace", NAMESPACE)
    provide_models(cluster, sample_model("mlp").parent, NAMESPACE)
    provide_claim(cluster, "logs", logs, NAMESPACE, writable=True)
    cluster.apply(
        {
            "apiVersion": "mcp2026.io/v1alpha1",
            "kind": "InferenceModel",
            "metadata": {"name": MODEL, "namespace": NAMESPACE},
            "spec": {
                "versions": [{"versionId": "v1", "uri": "pvc://models/mlp.onnx"}],
                "replicas": REPLICAS,
                "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
                "logArchive": {"folder": "pvc://logs/ended"},
            },
        }
    )
    yield Served(cluster, logs / "ended")
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=true")


def test_it_completes_by_the_exit_codes_of_its_containers_and_leaves_no_pod(served: Served) -> None:
    served.wait_for("Ready", lambda model: condition_of(model, "Ready").get("status") == "True")
    patch = json.dumps({"spec": {"stopped": True}})
    served.cluster.kubectl("--namespace", NAMESPACE, "patch", "im", MODEL, "--type=merge", "-p", patch)
    model = served.wait_for("Completed", lambda model: model["status"]["phase"] == "Completed")
    assert [(step["event"], step["to"]) for step in model["status"]["transitions"]] == [
        ("ResourceAllocated", "Running"),
        ("ExitCodeReported", "Succeeded"),
        ("DataSynced", "Completed"),
    ]
    servers = model["status"]["endedServers"]
    assert [(one["exitCode"], one["reason"], one["served"]) for one in servers] == [
        (0, "Stopped", True)
    ] * REPLICAS
    for server in servers:
        archive = (served.logs / f"{server['pod']}.log.gz").read_bytes()
        assert hashlib.sha256(archive).hexdigest() == server["archiveSha256"]
        assert b"says that the model is stopped" in gzip.decompress(archive)
    label = f"mcp2026.io/inference-model={MODEL}"

    def gone() -> bool:
        return not served.cluster.get("--namespace", NAMESPACE, "pods", "-l", label)["items"]

    served.cluster.wait_for("no pod", gone, PATIENCE)
