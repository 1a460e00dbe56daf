"""A played cluster in which a model is stopped: its Deployment's controller looks on, and servers end."""

import copy
import json
from typing import Any

from tests.fakes.played_cluster import PlayedCluster

DIGEST = "ab" * 32


class StoppingCluster(PlayedCluster):
    """Pods that serve, and end by their revision."""

    @property
    def servers_are_told(self) -> bool:
        """Whether the ConfigMap says stopped."""
        return bool(json.loads(self.children["ConfigMap"]["data"]["serving.json"]).get("stopped", False))

    @property
    def phase(self) -> str:
        return str(self.resource["status"]["phase"])

    @property
    def servers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.resource["status"]["endedServers"]
        return found

    def see_deployment(self) -> None:
        """Let the Deployment's controller see the newest spec."""
        self.deployment.setdefault("status", {})
        self.deployment["status"]["observedGeneration"] = self.deployment["metadata"]["generation"]

    def run(self) -> None:
        """Let the containers of all pods run."""
        for pod in self.pods.values():
            pod["status"]["containerStatuses"] = [{"name": "runtime", "state": {"running": {}}}]

    def stop(self) -> None:
        """Stop a model that serves, up to where its servers are told."""
        self.edit(stopped=True)
        self.reconcile()
        self.see_deployment()
        self.reconcile()

    def end(
        self,
        pod: str,
        code: int = 0,
        *,
        restarted: bool = True,
        said: dict[str, Any] | None = None,
        **more: Any,
    ) -> None:
        """Let a server end with a report; `restarted`: another one waits in its place already."""
        report = {
            "exit_code": code,
            "reason": "Stopped" if code == 0 else "DrainIncomplete",
            "message": "",
            "revision": self.revision,
            "served": True,
            "drained": 2,
            "archive_sha256": DIGEST,
            **more,
        }
        message = json.dumps(report if said is None else said)
        ended = {"terminated": {"exitCode": code, "message": message}}
        state: dict[str, Any] = (
            {"state": {"running": {}}, "lastState": ended, "restartCount": 1}
            if restarted
            else {"state": ended}
        )
        self.pods[pod]["status"]["containerStatuses"] = [{"name": "runtime", **state}]
        self.pods[pod]["status"]["conditions"][1]["status"] = "False"

    def lose(self, pod: str) -> None:
        """Take a pod away, with all that it could have said."""
        del self.pods[pod]
        self.leases.pop(pod, None)

    def replace(self, name: str, like: str) -> None:
        """Let a ReplicaSet make a pod in the place of one that was lost."""
        pod = copy.deepcopy(self.pods[like])
        pod["metadata"] |= {"name": name, "uid": f"uid-{name}"}
        pod["status"]["containerStatuses"] = [{"name": "runtime", "state": {"running": {}}}]
        self.pods[name] = pod
