"""The schedulers and the extender of a run, as processes beside the control plane."""

import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import yaml

from bench.cores import Cores
from bench.scheduling.workload import RESOURCES
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
HTTP_TIMEOUT = "5s"
"""kube-scheduler's own default for extenders."""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Scheduler:
    """A kube-scheduler of this name, with the extender on this port of loopback if there is one."""

    cluster: Cluster
    name: str
    port: int
    extender_port: int | None
    report: Report
    program: StartedProgram | None = None

    @classmethod
    def on_a_free_port(
        cls, cluster: Cluster, name: str, extender_port: int | None, report: Report
    ) -> "Scheduler":
        """Claim a port for its metrics."""
        (port,) = claim(cluster.record, 1)
        return cls(cluster, name, port, extender_port, report)

    def start(self) -> None:
        """Start it; it schedules as soon as it has read the cluster."""
        path = self.cluster.folder / f"{self.name}.yaml"
        path.write_text(
            scheduler_configuration(yaml.safe_dump(self._configuration()), self.cluster.kubeconfig)
        )
        flags = [
            f"--config={path}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            "--authorization-always-allow-paths=/healthz,/metrics",
        ]
        self.program = start(self.cluster.record, self.name, [build("kube-scheduler", self.report), *flags])

    def stop(self) -> None:
        """End it."""
        if self.program is not None:
            end([self.program.identity])
            self.program = None

    async def metrics(self, session: aiohttp.ClientSession) -> str:
        """Return its page of metrics."""
        async with session.get(f"https://127.0.0.1:{self.port}/metrics", ssl=False) as response:
            response.raise_for_status()
            return await response.text()

    def _configuration(self) -> dict[str, Any]:
        configuration: dict[str, Any] = {
            "clientConnection": {"qps": QPS, "burst": 2 * QPS},
            "percentageOfNodesToScore": 100,
            "profiles": [{"schedulerName": self.name}],
        }
        if self.extender_port is not None:
            configuration["extenders"] = [
                {
                    "urlPrefix": f"http://127.0.0.1:{self.extender_port}/v1",
                    "filterVerb": "filter",
                    "prioritizeVerb": "prioritize",
                    "preemptVerb": "preempt",
                    "bindVerb": "bind",
                    "weight": 5,
                    "nodeCacheCapable": True,
                    "ignorable": False,
                    "httpTimeout": HTTP_TIMEOUT,
                    "managedResources": [{"name": name, "ignoredByScheduler": False} for name in RESOURCES],
                }
            ]
        return configuration


class VerbTimes(msgspec.Struct, rename="camel"):
    """What the extender keeps of one decision and is read here; times in ms."""

    uid: str
    asked: tuple[str, ...] = ()
    attempts: int = 0
    fitting: int = 0
    filter_ms: float = 0.0
    prioritize_ms: float = 0.0
    node: str = ""


_decisions = msgspec.json.Decoder(tuple[VerbTimes, ...])


@dataclass
class Extender:
    """The extender's process; it may be ended and started again on the same port."""

    cluster: Cluster
    port: int
    nodes_to_score: int | None
    niceness: int
    program: StartedProgram | None = None
    starts_s: list[float] = field(default_factory=list)
    """From the start of each process until it was ready."""

    @classmethod
    def on_a_free_port(cls, cluster: Cluster, nodes_to_score: int | None, niceness: int) -> "Extender":
        """Claim a port for it; it hands on so many nodes, the best, or all."""
        (port,) = claim(cluster.record, 1)
        return cls(cluster, port, nodes_to_score, niceness)

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    def start(self, ready_s: float) -> float:
        """Start it, and return when it is ready, with the seconds that this took."""
        command = [sys.executable, "-m", "mcp2026.scheduler_extender", "--log-format", "json"]
        flags = ["--port", str(self.port), "--kubeconfig", str(self.cluster.kubeconfig)]
        if self.nodes_to_score is not None:
            configuration = self.cluster.folder / "extender.yaml"
            configuration.write_text(f"nodesToScore: {self.nodes_to_score}\n")
            flags += ["--config", str(configuration)]
        began = time.monotonic()
        cores = Cores(",".join(map(str, os.sched_getaffinity(0))), self.niceness)
        self.program = start(self.cluster.record, "extender", cores.command([*command, *flags]))
        wait_ready(self.program, HttpProbe(f"{self.url}/readyz"), ready_s)
        self.starts_s.append(time.monotonic() - began)
        return self.starts_s[-1]

    def kill(self) -> None:
        """End it by SIGKILL: it is not asked, and finishes nothing."""
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

    async def decisions(self, session: aiohttp.ClientSession) -> tuple[VerbTimes, ...]:
        """Return what it keeps of its last decisions: 1,000 at most, and none that it was killed before."""
        async with session.get(f"{self.url}/v1/decisions") as response:
            return _decisions.decode(await response.read())


def processor_seconds(cluster: Cluster) -> dict[str, float]:
    """Return the processor time that each living program of the run has had, and that of this process."""
    found = {"this benchmark": time.process_time()}
    for program in cluster.record.programs:
        try:
            stat = Path(f"/proc/{program.identity.pid}/stat").read_text()
        except OSError:
            continue
        fields = stat.rpartition(")")[2].split()
        seconds = (int(fields[11]) + int(fields[12])) / TICKS
        found[program.program] = found.get(program.program, 0.0) + seconds
    return found


def machine_seconds() -> tuple[float, float]:
    """Return the processor time that the machine has spent on anything, and that was stolen from it."""
    fields = [int(each) / TICKS for each in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    user, nice, system, _, _, hard, soft, steal, *_ = fields
    return user + nice + system + hard + soft, steal
