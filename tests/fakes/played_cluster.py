"""A cluster played in memory: it stores what is applied and moves Deployments and pods when it is told to."""

import copy
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from mcp2026.api.names import API_VERSION, INFERENCE_MODEL_KIND
from mcp2026.operator.actions import Action, AnnotatePod, ApplyChild, EmitEvent, UpdateStatus
from mcp2026.operator.canary.comparison import Comparison
from mcp2026.operator.manifests import Manifest
from mcp2026.operator.observed import Observed
from mcp2026.operator.progress import status_document
from mcp2026.operator.reconcile import reconcile
from mcp2026.operator.settings import PodSettings

SETTINGS = PodSettings(runtime_image="registry.example/mcp2026:1")
START = datetime(2026, 1, 1, tzinfo=UTC)


def model(name: str = "resnet50", **spec: Any) -> Manifest:
    versions = [{"versionId": "v1", "weight": 100, "uri": "pvc://models/resnet50.onnx"}]
    return {
        "apiVersion": API_VERSION,
        "kind": INFERENCE_MODEL_KIND,
        "metadata": {"name": name, "namespace": "team-a", "uid": f"uid-{name}", "generation": 1},
        "spec": {"versions": versions, **spec},
    }


class PlayedCluster:
    """One model's surroundings. Time passes by one second for each `reconcile`."""

    def __init__(self, resource: Manifest) -> None:
        self.resource = resource
        self.children: dict[str, Manifest] = {}
        self.pods: dict[str, Manifest] = {}
        self.leases: dict[str, Manifest] = {}
        self.dependencies: dict[str, Manifest | None] = {}
        self.cycle: tuple[str, ...] = ()
        self.comparison = Comparison()
        self.now = START
        self.told: list[EmitEvent] = []

    def observed(self) -> Observed:
        return copy.deepcopy(
            Observed(
                resource=self.resource,
                children=self.children,
                pods=tuple(self.pods.values()),
                leases=self.leases,
                dependencies=self.dependencies,
                cycle=self.cycle,
                comparison=self.comparison,
            )
        )

    def decide(self) -> list[Action]:
        return reconcile(self.observed(), self.now, SETTINGS)

    def reconcile(self) -> list[Action]:
        """Decide and carry out, once."""
        self.now += timedelta(seconds=1)
        actions = self.decide()
        for action in actions:
            self.perform(action)
        return actions

    def perform(self, action: Action) -> None:
        """Carry out one action."""
        match action:
            case ApplyChild(manifest):
                self._apply(copy.deepcopy(manifest))
            case AnnotatePod(pod, annotation, value):
                annotations = self.pods[pod["metadata"]["name"]]["metadata"]["annotations"]
                annotations |= {annotation: value}
                if value is None:
                    del annotations[annotation]
            case UpdateStatus(status):
                self.resource = {**self.resource, "status": status_document(status)}
            case EmitEvent():
                self.told.append(action)

    def _apply(self, manifest: Manifest) -> None:
        old = self.children.get(manifest["kind"])
        generation = old["metadata"].get("generation", 1) if old else 0
        changed = old is None or old.get("spec") != manifest.get("spec")
        manifest["metadata"]["generation"] = generation + changed
        if old is not None and "status" in old:
            manifest["status"] = old["status"]
        self.children[manifest["kind"]] = manifest

    def edit(self, **spec: Any) -> None:
        """Change the model as a user does."""
        self.resource["spec"].update(spec)
        self.resource["metadata"]["generation"] += 1

    @property
    def deployment(self) -> Manifest:
        return self.children["Deployment"]

    def play_pods(self, *, scheduled: bool = True, ready: bool = False, replace: bool = True) -> None:
        """Let the Deployment's controller make its pods; `replace`: those of older templates end."""
        if replace:
            self.pods.clear()
            self.leases.clear()
        template = self.deployment["spec"]["template"]
        suffix = template["metadata"]["annotations"]["mcp2026.io/manifest-digest"][:6]
        for position in range(self.deployment["spec"]["replicas"]):
            name = f"{self.resource['metadata']['name']}-{suffix}-{position}"
            metadata = {**copy.deepcopy(template["metadata"]), "name": name, "namespace": "team-a"}
            metadata["uid"] = f"uid-{name}"
            conditions = [
                {"type": "PodScheduled", "status": str(scheduled)},
                {"type": "Ready", "status": str(ready)},
            ]
            self.pods[name] = {"metadata": metadata, "status": {"conditions": conditions}}
            if ready:
                self.report(name)
        wanted = self.deployment["spec"]["replicas"]
        self.deployment["status"] = {
            "observedGeneration": self.deployment["metadata"]["generation"],
            "replicas": len(self.pods),
            "updatedReplicas": wanted,
            "readyReplicas": wanted if ready else 0,
            "availableReplicas": wanted if ready else 0,
        }

    def report(self, pod: str, live: int | None = None, failed: int | None = None, problem: str = "") -> None:
        """Let a pod say what it serves: what the ConfigMap says, if nothing else is given."""
        told = {
            "mcp2026.io/live-revision": str(live or self.revision),
            "mcp2026.io/failed-revision": None if failed is None else str(failed),
            "mcp2026.io/revision-problem": problem or None,
        }
        metadata = {
            "name": pod,
            "namespace": "team-a",
            "annotations": {name: text for name, text in told.items() if text is not None},
        }
        self.leases[pod] = {"metadata": metadata, "spec": {"holderIdentity": f"uid-{pod}"}}

    def follow(self) -> None:
        """Let every pod serve the newest revision, and the operator see it."""
        for pod in self.pods:
            self.report(pod)
        self.reconcile()

    @property
    def revision(self) -> int:
        """The revision in the ConfigMap."""
        return int(json.loads(self.children["ConfigMap"]["data"]["serving.json"])["revision"])

    def serve(self) -> None:
        """Go from the first apply to a model that is ready."""
        self.reconcile()
        self.play_pods(ready=True)
        self.reconcile()

    def condition(self, kind: str) -> dict[str, Any]:
        return next(entry for entry in self.resource["status"]["conditions"] if entry["type"] == kind)
