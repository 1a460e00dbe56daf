"""A node that is played: pods get real runtime processes in place of containers, and a status.

Each process has the arguments and the variables that its pod's manifest gives, and a token of the pod's own
account that is bound to the pod, as a kubelet would mount it. Claims are folders, and lie at their paths in a
mount namespace of the process.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from mcp2026.api.names import MODEL_LABEL, MODELS_DIRECTORY, SERVING_CONFIG_KEY
from tests.loopback import LOOPBACK, free_port, http_get
from tools.cluster.cluster import Cluster

_MOUNT = (
    f"mount -t tmpfs none {Path(MODELS_DIRECTORY).parent} && mkdir {MODELS_DIRECTORY} && "
    f'mount --rbind "$0" {MODELS_DIRECTORY} && exec "$@"'
)
_UNSHARED = ("unshare", "--mount", "--map-root-user", "sh", "-ec")
_TOKEN_SECONDS = 3_600
_END_SECONDS = 20
_CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("MCP2026_")}


def lacking() -> str:
    """Return what this machine does not allow, if it lets no process have its own mounts; else nothing."""
    probe = subprocess.run(
        [*_UNSHARED, "mount -t tmpfs none /mnt"], capture_output=True, text=True, check=False
    )
    return probe.stderr.strip()


@dataclass(slots=True)
class PodProcess:
    """A runtime process and where it listens."""

    process: subprocess.Popen[bytes]
    host: str
    port: int
    log: Path

    @property
    def is_ready(self) -> bool:
        """Whether it serves; raises ChildProcessError with its last words if it has ended."""
        if self.process.poll() is not None:
            raise ChildProcessError(self.log.read_text()[-3_000:])
        return http_get(self.port, "/readyz", self.host)[0] == 200


@dataclass(slots=True)
class PlayedNode:
    """The pods of one namespace, and the processes that run for them; ends them with its block."""

    cluster: Cluster
    namespace: str
    claims: Path
    """A folder with a folder for each claim."""
    folder: Path
    """For what a pod finds in its volumes, and for logs."""
    running: dict[str, PodProcess] = field(default_factory=dict)
    """By the name of the pod."""

    def __enter__(self) -> "PlayedNode":
        return self

    def __exit__(self, *_: object) -> None:
        for pod in self.running.values():
            pod.process.terminate()
        for pod in self.running.values():
            try:
                pod.process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                pod.process.kill()
                pod.process.wait()

    def pods(self, model: str, count: int) -> list[dict[str, Any]]:
        """Return the pods of `model`, once there are `count` of them."""
        selector = f"{MODEL_LABEL}={model}"

        def found() -> list[dict[str, Any]]:
            items: list[dict[str, Any]] = self.cluster.get("pods", "-n", self.namespace, "-l", selector)[
                "items"
            ]
            return items if len(items) == count else []

        return self.cluster.wait_for(f"{count} pods of {model}", found)

    def token(self, pod: Mapping[str, Any]) -> str:
        """Return a token of the pod's account that is bound to it."""
        from kubernetes import client

        metadata = pod["metadata"]
        reference = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        request: Any = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": [], "boundObjectRef": reference, "expirationSeconds": _TOKEN_SECONDS},
        }
        account = pod["spec"]["serviceAccountName"]
        answer = client.CoreV1Api(self.cluster.client()).create_namespaced_service_account_token(
            account, self.namespace, request
        )
        assert answer.status is not None
        return str(answer.status.token)

    def credentials(self, token: str) -> dict[str, Any]:
        """Return a kubeconfig for the bearer of `token`."""
        document: dict[str, Any] = yaml.safe_load(self.cluster.kubeconfig.read_text())
        for user in document["users"]:
            user["user"] = {"token": token}
        return document

    def start(self, pod: Mapping[str, Any], host: str = LOOPBACK, port: int = 0) -> PodProcess:
        """Start the pod's runtime; without a port it takes a free one."""
        name = pod["metadata"]["name"]
        container = pod["spec"]["containers"][0]
        own = self.folder / name
        own.mkdir()
        kubeconfig = own / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(self.credentials(self.token(pod))))
        volume = next(volume for volume in pod["spec"]["volumes"] if "configMap" in volume)
        config_map = self.cluster.get("configmap", volume["configMap"]["name"], "-n", self.namespace)
        (own / SERVING_CONFIG_KEY).write_text(config_map["data"][SERVING_CONFIG_KEY])
        port = port or free_port()
        given = {
            "--serving-config": str(own / SERVING_CONFIG_KEY),
            "--host": host,
            "--port": str(port),
            "--grpc-port": "0",
            "--lame-duck-seconds": "0",
            "--ending-directory": str(own / "ending"),
            "--termination-message": str(own / "termination"),
        }
        arguments = container["args"]
        line = [
            given.get(before, argument) for before, argument in zip(["", *arguments], arguments, strict=False)
        ]
        log = own / "log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [*_UNSHARED, _MOUNT, str(self.claims), sys.executable, "-m", "mcp2026.runtime", *line],
                env={**_CLEAN, **_variables(pod), "KUBECONFIG": str(kubeconfig)},
                stdout=sink,
                stderr=sink,
            )
        self.running[name] = PodProcess(process, host, port, log)
        return self.running[name]

    def tell_ready(self, pod: Mapping[str, Any], **status: Any) -> None:
        """Give the pod the status that a kubelet gives it when its readiness probe succeeds."""
        from kubernetes import client

        kinds = ("PodScheduled", "Ready", "ContainersReady")
        told: Any = {
            "phase": "Running",
            "conditions": [{"type": kind, "status": "True"} for kind in kinds],
            **status,
        }
        client.CoreV1Api(self.cluster.client()).patch_namespaced_pod_status(
            pod["metadata"]["name"], self.namespace, {"status": told}
        )

    def serve(self, pod: Mapping[str, Any]) -> PodProcess:
        """Start the pod's runtime, and say that it is ready when it is."""
        process = self.start(pod)
        name = pod["metadata"]["name"]
        self.cluster.wait_for(f"the runtime of pod {name}", lambda: process.is_ready)
        self.tell_ready(pod)
        return process


def _variables(pod: Mapping[str, Any]) -> dict[str, str]:
    """Return the container's variables, those of the downward API resolved."""
    found = {}
    for variable in pod["spec"]["containers"][0]["env"]:
        source = variable.get("valueFrom")
        field_name = source["fieldRef"]["fieldPath"].removeprefix("metadata.") if source else ""
        found[variable["name"]] = pod["metadata"][field_name] if source else variable["value"]
    return found
