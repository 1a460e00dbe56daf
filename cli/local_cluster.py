"""A cluster of one machine: carries out the operator's actions with files and processes, and reports back.

What `reconcile` sees is what a cluster would show it: the children that it applied, and processes in the
shape of pods.
"""

import contextlib
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mcp2026.api.inference_model import InferenceModel
from mcp2026.api.names import POD_NAME_VARIABLE, SERVING_CONFIG_KEY
from mcp2026.api.serving import ServingConfig
from mcp2026.api.sources import is_remote
from mcp2026.cli.errors import CommandError
from mcp2026.cli.local_looks import LocalLooks
from mcp2026.cli.pod_process import (
    LOOPBACK,
    TERMINATION_MESSAGE,
    Mounts,
    arguments,
    config_document,
    lease_manifest,
    local_config,
    mounts,
    pod_manifest,
)
from mcp2026.cli.server_process import ServerProcess, start_server
from mcp2026.operator.actions import Action, ApplyChild, EmitEvent, UpdateStatus
from mcp2026.operator.children import deployment, serving_config, serving_config_map
from mcp2026.operator.manifests import Manifest
from mcp2026.operator.observed import Observed, is_ready
from mcp2026.operator.progress import status_document
from mcp2026.operator.settings import PodSettings

_END_SECONDS = 15.0
_ATTEMPTS = 100


@dataclass(slots=True)
class LocalCluster:
    """The children of one model, on this machine. `folder` is private and removed by whoever made it."""

    resource: Manifest
    folder: Path
    claims: Mapping[str, Path]
    first_port: int
    """Replica n listens on first_port + n, and for gRPC on the port that is as many replicas further."""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    children: dict[str, Manifest] = field(default_factory=dict)
    processes: list[ServerProcess] = field(default_factory=list)
    looks: LocalLooks = field(default_factory=LocalLooks)

    def observe(self) -> Observed:
        """Return everything in the shape that a cluster would give it."""
        running = self.children.get("Deployment")
        pods: tuple[Manifest, ...] = ()
        if running is not None:
            pods = tuple(
                pod_manifest(
                    running,
                    position,
                    _container_status(process, self._own(position)),
                    ready=process.exit_code is None and process.is_ready(),
                )
                for position, process in enumerate(self.processes)
            )
            running = {**running, "status": _deployment_status(pods)}
        children = {**self.children, **({"Deployment": running} if running else {})}
        leases = {
            pod["metadata"]["name"]: lease_manifest(pod, process.live_revision())
            for pod, process in zip(pods, self.processes, strict=False)
        }
        observed = Observed(self.resource, children, pods, leases)
        ports = {
            pod["metadata"]["name"]: process.port for pod, process in zip(pods, self.processes, strict=False)
        }
        return replace(observed, comparison=self.looks.comparison(observed, ports))

    def change(self, resource: Manifest, model: InferenceModel, settings: PodSettings) -> None:
        """Take a new version of the resource; what it asks for reaches the running servers.

        Raises:
            CommandError: it asks for what only new processes could do, or for files that are not there.

        """
        running = self.children["Deployment"]
        if self.resource["spec"].get("stopped", False):
            raise CommandError("spec.stopped: the model is being stopped, which cannot be taken back")
        if resource["metadata"]["name"] != self.resource["metadata"]["name"]:
            raise CommandError("metadata.name: another model needs a command of its own")
        if deployment(model, settings, running)["spec"] != running["spec"]:
            raise CommandError(
                "replicas, workers, GPUs, resources, priority class, claims, log archive and credentials are "
                "those of the processes; "
                "to change them, stop with Ctrl-C and start again"
            )
        wanted = serving_config_map(model, serving_config(model, revision=1))
        _check_files(local_config(wanted, mounts(running, self.folder, self.claims)))
        metadata = self.resource["metadata"]
        self.resource = {
            **self.resource,
            "metadata": {**metadata, "generation": metadata["generation"] + 1},
            "spec": resource["spec"],
        }

    def carry_out(self, action: Action) -> str | None:
        """Do what `action` asks, and return a line for the user, if it is worth one."""
        match action:
            case ApplyChild(manifest):
                return self._apply(manifest)
            case UpdateStatus(status):
                self.resource = {**self.resource, "status": status_document(status)}
            case EmitEvent(_, reason, message):
                return f"{reason}: {message}"
        return None

    @property
    def is_stopped(self) -> bool:
        """Whether its servers have ended because the model is stopped, and all is written."""
        return bool(self.children and self.children["Deployment"]["spec"]["replicas"] == 0)

    def end(self) -> None:
        """End all processes, in order and together."""
        for process in self.processes:
            process.ask_to_end()
        for process in self.processes:
            process.end(_END_SECONDS)

    @property
    def urls(self) -> list[str]:
        """Where the replicas listen."""
        return [f"http://{LOOPBACK}:{process.port}" for process in self.processes]

    @property
    def replicas(self) -> int:
        """How many replicas the model has."""
        count: int = self.resource["spec"]["replicas"]
        return count

    def _apply(self, manifest: Manifest) -> str | None:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        self.children[kind] = manifest
        if kind == "Service":
            first = f"{LOOPBACK}:{self.first_port}"
            return f"service {name}: {first}, gRPC {LOOPBACK}:{self.first_port + self.replicas}"
        if kind == "ConfigMap" and self.processes:
            self._write_configuration(mounts(self.children["Deployment"], self.folder, self.claims))
        if kind != "Deployment":
            return f"configuration {name}" if kind == "ConfigMap" else None
        if self.processes:
            return None  # its servers end by themselves when the model is stopped
        where = mounts(manifest, self.folder, self.claims)
        self._write_configuration(where)
        for position in range(self.replicas):
            port = self.first_port + position
            grpc_port = port + self.replicas
            require_free(port)
            require_free(grpc_port)
            own = self._own(position)
            own.mkdir()
            line = arguments(manifest, where, port, grpc_port, own)
            log = self.folder / f"server-{position}.log"
            environment = {**self.environment, POD_NAME_VARIABLE: f"{name}-{position}"}
            self.processes.append(start_server(line, environment, port, log))
        return f"started {self.replicas} server process{'es' if self.replicas != 1 else ''}"

    def _own(self, position: int) -> Path:
        """Return the folder of one process, which stands in for what its pod has."""
        return self.folder / f"server-{position}"

    def _write_configuration(self, where: Mounts) -> None:
        config = local_config(self.children["ConfigMap"], where)
        _check_files(config)
        unfinished = self.folder / f"{SERVING_CONFIG_KEY}.new"
        unfinished.write_bytes(config_document(config))
        unfinished.rename(self.folder / SERVING_CONFIG_KEY)


def _check_files(config: ServingConfig) -> None:
    for version in config.versions:
        if not is_remote(version.path) and not Path(version.path).is_file():
            raise CommandError(
                f"version {version.version_id}: no file {version.path}; "
                "sample models: python -m tools.models resnet50 --output ./models"
            )


def require_free(port: int) -> None:
    """Make sure that nobody listens on `port`.

    Raises:
        CommandError: somebody does.

    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise CommandError(
                f"port {port} cannot be used: {error.strerror}; choose another one: --port {port + 10}"
            ) from error


def free_ports(count: int) -> int:
    """Return the first of `count` neighbouring ports that nobody listens on.

    Raises:
        CommandError: none were found.

    """
    for _ in range(_ATTEMPTS):
        with contextlib.ExitStack() as held, contextlib.suppress(OSError, OverflowError):
            first = 0
            for position in range(count):
                probe = held.enter_context(socket.socket())
                probe.bind((LOOPBACK, first and first + position))
                first = first or probe.getsockname()[1]
            return first
    raise CommandError(f"no {count} neighbouring ports are free; choose the first: --port PORT")


def _container_status(process: ServerProcess, own: Path) -> dict[str, Any]:
    code = process.exit_code
    if code is None:
        return {"name": "runtime", "state": {"running": {}}, "restartCount": 0}
    report = own / TERMINATION_MESSAGE
    if report.exists():
        ended = {"exitCode": code, "message": report.read_text()}
        return {"name": "runtime", "state": {"terminated": ended}, "restartCount": 0}
    return {
        "name": "runtime",
        "restartCount": 1,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": code, "reason": "Error", "message": process.log_tail()}},
    }


def _deployment_status(pods: tuple[Manifest, ...]) -> dict[str, int]:
    ready = sum(is_ready(pod) for pod in pods)
    return {
        "observedGeneration": 1,
        "replicas": len(pods),
        "updatedReplicas": len(pods),
        "readyReplicas": ready,
        "availableReplicas": ready,
    }
