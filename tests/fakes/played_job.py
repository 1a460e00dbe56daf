"""The Job controller and the kubelet, played in memory: attempts, their ends, and what they leave behind."""

import copy
import json
from datetime import datetime, timedelta
from typing import Any

from mcp2026.operator.actions import Action, ApplyChild, UpdateStatus
from mcp2026.operator.manifests import Manifest
from mcp2026.operator.progress import status_document, timestamp
from tests.fakes.played_cluster import PlayedCluster, model

OUTPUT_SHA256, ARCHIVE_SHA256 = "ab" * 32, "cd" * 32
BATCH = {"input": "pvc://data/rows.npy", "output": "pvc://data/results.npy"}


def batch_model(name: str = "nightly", batch: dict[str, Any] | None = None, **spec: Any) -> Manifest:
    return model(name, mode="Batch", batch={**BATCH, **(batch or {})}, **spec)


def last_word(**changes: Any) -> str:
    """The termination message of a run that did all its rows."""
    said = {
        "exit_code": 0,
        "reason": "Completed",
        "message": "100 rows are done",
        "rows": 100,
        "rows_total": 100,
        "rows_resumed": 0,
        "sha256": OUTPUT_SHA256,
        "bytes": 528,
        "archive_sha256": ARCHIVE_SHA256,
        "archive_error": None,
    }
    return json.dumps({**said, **changes}) + "\n"


class PlayedJob(PlayedCluster):
    """A batch model's surroundings: every Job that is applied has a UID, and starts at once."""

    def __init__(self, resource: Manifest | None = None) -> None:
        super().__init__(resource or batch_model())
        self.jobs_made = 0

    @property
    def job(self) -> Manifest:
        return self.children["Job"]

    @property
    def phase(self) -> str:
        return str(self.resource["status"]["phase"])

    @property
    def batch(self) -> dict[str, Any]:
        found: dict[str, Any] = self.resource["status"]["batch"]
        return found

    def _apply(self, manifest: Manifest) -> None:
        old = self.children.get(manifest["kind"])
        super()._apply(manifest)
        if manifest["kind"] != "Job":
            return
        if old is not None:
            manifest["metadata"]["uid"] = old["metadata"]["uid"]
            return
        self.jobs_made += 1
        manifest["metadata"]["uid"] = f"uid-job-{self.jobs_made}"
        manifest["status"] = {"startTime": timestamp(self.now)}

    def carry_out(self, action: Action) -> None:
        """Do one thing that was decided."""
        match action:
            case ApplyChild(manifest):
                self._apply(copy.deepcopy(manifest))
            case UpdateStatus(status):
                self.resource = {**self.resource, "status": status_document(status)}

    def settle(self) -> None:
        """Reconcile until there is nothing left to do."""
        for _ in range(10):
            if not any(isinstance(action, ApplyChild | UpdateStatus) for action in self.reconcile()):
                return
        raise AssertionError("it does not come to rest")

    def start_attempt(self, *, scheduled: bool = True) -> str:
        """Let the Job make a pod."""
        name = f"nightly-{len(self.pods)}"
        self.pods[name] = {
            "metadata": {
                **copy.deepcopy(self.job["spec"]["template"]["metadata"]),
                "name": name,
                "namespace": "team-a",
                "uid": f"uid-{name}",
                "creationTimestamp": timestamp(self.now),
                "ownerReferences": [{"kind": "Job", "uid": self.job["metadata"]["uid"], "controller": True}],
            },
            "spec": {"nodeName": "node-1"} if scheduled else {},
            "status": {
                "phase": "Running" if scheduled else "Pending",
                "conditions": [{"type": "PodScheduled", "status": str(scheduled)}],
            },
        }
        self.job["status"]["active"] = 1
        return name

    def tell_progress(self, done: int, total: int = 100) -> None:
        """Let the present attempt report on its Lease."""
        name = list(self.pods)[-1]
        text = json.dumps({"rowsDone": done, "rowsTotal": total})
        metadata = {"name": name, "namespace": "team-a", "annotations": {"mcp2026.io/batch-progress": text}}
        self.leases[name] = {"metadata": metadata, "spec": {"holderIdentity": f"uid-{name}"}}

    def end_attempt(self, code: int = 0, message: str = "", reason: str = "") -> None:
        """Let the present attempt's container end; whether the Job goes on is not said yet."""
        pod = self.pods[list(self.pods)[-1]]
        terminated = {
            "exitCode": code,
            "reason": reason or ("Error" if code else "Completed"),
            "message": message,
            "finishedAt": timestamp(self.now),
        }
        pod["status"]["phase"] = "Failed" if code else "Succeeded"
        pod["status"]["containerStatuses"] = [{"name": "runtime", "state": {"terminated": terminated}}]
        status = self.job["status"]
        status["active"] = 0
        counted = "failed" if code else "succeeded"
        status[counted] = status.get(counted, 0) + 1

    def end_job(self, kind: str = "Complete", reason: str = "", message: str = "") -> None:
        """Let the Job end for good."""
        condition = {"type": kind, "status": "True", "reason": reason, "message": message}
        self.job["status"]["conditions"] = [condition]

    def collect_job(self) -> None:
        """Let the garbage collector take the Job, and its pods with it."""
        del self.children["Job"]
        self.pods.clear()
        self.leases.clear()

    def run(self) -> None:
        """Go from the first apply to Running."""
        self.settle()
        self.start_attempt()
        self.settle()

    def later(self, seconds: float) -> datetime:
        self.now += timedelta(seconds=seconds)
        return self.now
