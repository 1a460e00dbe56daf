"""How long a call of bind takes when many come at once for one node: the real extender at a real API server.

The node has 8 GPUs of 16 shares each, so that 100 pods find room there. Each round makes its pods, asks
filter about each of them (as kube-scheduler does before it binds), and then calls bind for all of them at
once. Without filter before, bind reads each pod from the API server first. Bindings posted to the API server
without the extender show how much of it is the API server's own.
"""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import aiohttp
import msgspec

from bench.errors import BenchError
from bench.scheduling.api_server import NODES, PODS, TOPOLOGIES, ApiServer
from bench.scheduling.workload import GPUS_PER_NODE, LABEL, without_nulls
from bench.scheduling.workload import TOPOLOGIES as MACHINES
from mcp2026.api.gpu_assignment import parse_gpu_assignment
from mcp2026.api.gpu_sharing import SharingStatus
from mcp2026.api.names import API_VERSION, GPU_ASSIGNMENT_ANNOTATION, GPU_SHARED_RESOURCE, GPU_TOPOLOGY_KIND
from mcp2026.topology.idle_machine import idle_status
from mcp2026.topology.machine import machine_from_file
from tools.cluster.cluster import Cluster
from tools.cluster.ports import claim
from tools.cluster.processes import end, start
from tools.cluster.progress import Report
from tools.cluster.readiness import HttpProbe, wait_ready

NODE = "node"
MACHINE = "hgx-h100-8gpu"
SHARES_PER_GPU = 16
ALL_SHARES = GPUS_PER_NODE * SHARES_PER_GPU
READY_S = 60.0
BAR_S = 1.0
"""The longest that a call may take."""
PATIENCE_S = 20.0


class Way(StrEnum):
    """How the pods of a round are bound."""

    AFTER_FILTER = "bind, after filter"
    WITHOUT_FILTER = "bind, without filter"
    DIRECT = "API server alone"


@dataclass(frozen=True, slots=True)
class BindTimes:
    """The calls of one round, in seconds, the quickest first, and what of it went wrong."""

    way: Way
    seconds: tuple[float, ...]
    errors: tuple[str, ...]
    doubles: int
    """Shares that were reserved for more than one pod, and pods without one."""

    @property
    def within_bar(self) -> bool:
        """Whether the extender bound each in time, to a share of its own."""
        if self.way is Way.DIRECT:
            return True
        return not self.errors and not self.doubles and self.seconds[-1] < BAR_S


async def measure_binds(cluster: Cluster, pods: int, rounds: int, say: Report) -> list[BindTimes]:
    """Return the times of each round, in each way in turn.

    Raises:
        BenchError: the extender does not see the node or the pods.

    """
    (port,) = claim(cluster.record, 1)
    command = [sys.executable, "-m", "mcp2026.scheduler_extender", "--log-format", "json", "--leader-elect"]
    command += ["--port", str(port), "--kubeconfig", str(cluster.kubeconfig)]
    connector = aiohttp.TCPConnector(limit=pods)
    async with (
        ApiServer.connect(cluster.kubeconfig, say) as api,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}", connector=connector) as extender,
    ):
        await api.create(NODES, [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}])
        await api.create_with_status(TOPOLOGIES, [_topology()])
        program = start(cluster.record, "extender", command)
        try:
            wait_ready(program, HttpProbe(f"http://127.0.0.1:{port}/readyz"), READY_S)
            return [
                await _round(api, extender, f"round-{number}-{place}", pods, way)
                for number in range(rounds)
                for place, way in enumerate(Way)
            ]
        finally:
            end([program.identity])


async def _round(
    api: ApiServer, extender: aiohttp.ClientSession, prefix: str, count: int, way: Way
) -> BindTimes:
    await api.create(PODS, _pods(prefix, count))
    made = await _made(api, prefix)
    await _until_free(extender)
    if way is Way.AFTER_FILTER:
        for pod in made:
            await _post(extender, "filter", {"Pod": pod, "NodeNames": [NODE]})
    if way is Way.DIRECT:
        calls = await asyncio.gather(*(_timed_binding(api, pod) for pod in made))
    else:
        calls = await asyncio.gather(*(_timed_bind(extender, pod) for pod in made))
    doubles = 0 if way is Way.DIRECT else _doubles(await _made(api, prefix))
    await api.delete_all_pods()
    times = tuple(sorted(seconds for seconds, _ in calls))
    return BindTimes(way, times, tuple(error for _, error in calls if error), doubles)


async def _made(api: ApiServer, prefix: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await api.get(f"{PODS}?labelSelector={LABEL}={prefix}"))["items"]
    return items


async def _timed_bind(extender: aiohttp.ClientSession, pod: dict[str, Any]) -> tuple[float, str]:
    metadata = pod["metadata"]
    body = {
        "PodName": metadata["name"],
        "PodNamespace": metadata["namespace"],
        "PodUID": metadata["uid"],
        "Node": NODE,
    }
    began = time.perf_counter()
    answer = await _post(extender, "bind", body)
    return time.perf_counter() - began, str(answer.get("Error", ""))


async def _timed_binding(api: ApiServer, pod: dict[str, Any]) -> tuple[float, str]:
    name = pod["metadata"]["name"]
    target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    began = time.perf_counter()
    await api.create(f"{PODS}/{name}/binding", [body])
    return time.perf_counter() - began, ""


async def _until_free(extender: aiohttp.ClientSession) -> None:
    """Return when the extender has seen the node, and the pods of the round before go."""
    probe = {"metadata": {"name": "probe", "namespace": "default"}, "spec": _spec(ALL_SHARES)}
    deadline = time.monotonic() + PATIENCE_S
    while (await _post(extender, "filter", {"Pod": probe, "NodeNames": [NODE]})).get("NodeNames") != [NODE]:
        if time.monotonic() > deadline:
            raise BenchError(f"the extender does not see {NODE} free within {PATIENCE_S:g} s")
        await asyncio.sleep(0.1)


async def _post(extender: aiohttp.ClientSession, verb: str, body: dict[str, Any]) -> dict[str, Any]:
    async with extender.post(f"/v1/{verb}", json=body) as response:
        answer: dict[str, Any] = await response.json()
        return answer


def _doubles(bound: list[dict[str, Any]]) -> int:
    wrong = 0
    taken: Counter[str] = Counter()
    for pod in bound:
        value = pod["metadata"].get("annotations", {}).get(GPU_ASSIGNMENT_ANNOTATION)
        shares = parse_gpu_assignment(value)["main"][GPU_SHARED_RESOURCE] if value else ()
        wrong += len(shares) != 1
        taken.update(shares)
    return wrong + sum(count - 1 for count in taken.values())


def _topology() -> dict[str, Any]:
    status = idle_status(machine_from_file(MACHINES / f"{MACHINE}.yaml"))
    shared = SharingStatus(mode="TimeSlice", unit="Replica", replicas=SHARES_PER_GPU)
    gpus = [msgspec.structs.replace(gpu, sharing=shared) for gpu in status.gpus]
    return {
        "apiVersion": API_VERSION,
        "kind": GPU_TOPOLOGY_KIND,
        "metadata": {"name": NODE},
        "status": without_nulls(msgspec.to_builtins(msgspec.structs.replace(status, gpus=gpus))),
    }


def _pods(prefix: str, count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        metadata = {"name": f"{prefix}-{number:05}", "labels": {LABEL: prefix}}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _spec(1)}


def _spec(shares: int) -> dict[str, Any]:
    amounts = {"cpu": "100m", GPU_SHARED_RESOURCE: str(shares)}
    resources = {"requests": amounts, "limits": amounts}
    return {
        "schedulerName": "by-hand",
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "none", "resources": resources}],
    }
