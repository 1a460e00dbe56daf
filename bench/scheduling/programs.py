"""The schedulers and the extender of a run, as processes beside the control plane."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from mcp2026.api.names import GPU_RESOURCE
from tools.cluster.cluster import Cluster
from tools.cluster.control_plane import scheduler_configuration
from tools.cluster.go_programs import build
from tools.cluster.ports import claim
from tools.cluster.processes import end, start
from tools.cluster.progress import Report
from tools.cluster.readiness import HttpProbe, wait_ready
from tools.cluster.record import StartedProgram

QPS = 2_000
"""Requests per second that kube-scheduler may make; its default of 50 would be what is measured."""


def scheduler(cluster: Cluster, name: str, extender_port: int | None, report: Report) -> StartedProgram:
    """Start a kube-scheduler of this name, with the extender on this port of loopback if there is one."""
    configuration: dict[str, Any] = {
        "clientConnection": {"qps": QPS, "burst": 2 * QPS},
        "percentageOfNodesToScore": 100,
        "profiles": [{"schedulerName": name}],
    }
    if extender_port is not None:
        configuration["extenders"] = [
            {
                "urlPrefix": f"http://127.0.0.1:{extender_port}/v1",
                "filterVerb": "filter",
                "prioritizeVerb": "prioritize",
                "preemptVerb": "preempt",
                "bindVerb": "bind",
                "weight": 5,
                "nodeCacheCapable": True,
                "ignorable": False,
                "httpTimeout": "5s",
                "managedResources": [{"name": GPU_RESOURCE, "ignoredByScheduler": False}],
            }
        ]
    path = cluster.folder / f"{name}.yaml"
    path.write_text(scheduler_configuration(yaml.safe_dump(configuration), cluster.kubeconfig))
    return start(
        cluster.record, name, [build("kube-scheduler", report), f"--config={path}", "--secure-port=0"]
    )


@dataclass
class Extender:
    """The extender's process; it may be ended and started again on the same port."""

    cluster: Cluster
    port: int
    program: StartedProgram | None = None

    @classmethod
    def on_a_free_port(cls, cluster: Cluster) -> "Extender":
        """Claim a port for it."""
        (port,) = claim(cluster.record, 1)
        return cls(cluster, port)

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    def start(self, ready_s: float) -> None:
        """Start it, and return when it is ready."""
        command = [sys.executable, "-m", "mcp2026.scheduler_extender", "--log-format", "json"]
        flags = ["--port", str(self.port), "--kubeconfig", str(self.cluster.kubeconfig)]
        self.program = start(self.cluster.record, "extender", [*command, *flags])
        wait_ready(self.program, HttpProbe(f"{self.url}/readyz"), ready_s)

    def stop(self) -> None:
        """End it."""
        if self.program is not None:
            end([self.program.identity])
            self.program = None

    def peak_memory_mib(self) -> float:
        """Return the most memory that the process had, in MiB."""
        assert self.program is not None
        for line in Path(f"/proc/{self.program.identity.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        return 0.0

    async def decisions(self, session: aiohttp.ClientSession) -> list[dict[str, Any]]:
        """Return what it keeps of its last decisions."""
        async with session.get(f"{self.url}/v1/decisions") as response:
            found: list[dict[str, Any]] = await response.json()
            return found
