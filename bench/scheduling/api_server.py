"""Many objects written at once, and pods watched until they are bound."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes.aio import client, config

from bench.errors import BenchError
from bench.scheduling.workload import LABEL
from mcp2026.api.gpu_assignment import GpuAssignment, parse_gpu_assignment
from mcp2026.api.names import API_VERSION, GPU_ASSIGNMENT_ANNOTATION, GPU_TOPOLOGY_PLURAL

AT_ONCE = 32
NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
TOPOLOGIES = f"/apis/{API_VERSION}/{GPU_TOPOLOGY_PLURAL}"


@dataclass(frozen=True, slots=True)
class Bound:
    """A pod that was bound: when this was seen, in seconds of a monotonic clock, and what was reserved."""

    at: float
    node: str
    gpus: int
    assignment: GpuAssignment


class ApiServer:
    """The API server of a cluster, as its administrator."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api

    @classmethod
    @asynccontextmanager
    async def connect(cls, kubeconfig: Path) -> AsyncIterator["ApiServer"]:
        """Connect as the kubeconfig says."""
        configuration = client.Configuration()
        await config.load_kube_config(  # type: ignore[no-untyped-call]  # untyped
            config_file=str(kubeconfig), client_configuration=configuration
        )
        configuration.connection_pool_maxsize = 2 * AT_ONCE
        async with client.ApiClient(configuration) as api:
            yield cls(api)

    async def create(self, path: str, objects: Iterable[dict[str, Any]]) -> None:
        """Create `objects`, many at a time."""
        await self._each(lambda body: self._call("POST", path, body), objects)

    async def create_with_status(self, path: str, objects: Iterable[dict[str, Any]]) -> None:
        """Create `objects`, and write their status, which a POST leaves out."""

        async def write(body: dict[str, Any]) -> None:
            await self._call("POST", path, {key: value for key, value in body.items() if key != "status"})
            name = body["metadata"]["name"]
            patch = {"status": body["status"]}
            await self._call("PATCH", f"{path}/{name}/status", patch, "application/merge-patch+json")

        await self._each(write, objects)

    async def delete_all_pods(self) -> None:
        """Delete the pods of the benchmark, and wait until there are none."""
        await self._call("DELETE", f"{PODS}?labelSelector={LABEL}&gracePeriodSeconds=0")
        while (await self._call("GET", f"{PODS}?labelSelector={LABEL}&limit=1"))["items"]:  # noqa: ASYNC110
            await asyncio.sleep(0.5)  # another process's doing: there is nothing of ours to wait on

    async def bound_pods(self, prefix: str, count: int, timeout_s: float) -> dict[str, Bound]:
        """Watch the pods labelled `prefix` from now on until `count` are bound; return those that were.

        Fewer than `count` come back when no pod was bound for `timeout_s`.
        """
        found: dict[str, Bound] = {}
        version = (await self._call("GET", f"{PODS}?limit=1"))["metadata"]["resourceVersion"]
        path = f"{PODS}?labelSelector={LABEL}={prefix}&watch=true&resourceVersion={version}"
        response = await self._send("GET", path)
        async with response:
            while len(found) < count:
                try:
                    line = await asyncio.wait_for(response.content.readline(), timeout_s)
                except TimeoutError:
                    break
                if not line:
                    raise BenchError("the API server ended the watch of pods")
                pod = json.loads(line)["object"]
                name, node = pod["metadata"]["name"], pod.get("spec", {}).get("nodeName")
                if node and name not in found:
                    found[name] = Bound(time.monotonic(), node, _gpus(pod), _assignment(pod))
        return found

    async def _each(self, write: Any, objects: Iterable[dict[str, Any]]) -> None:
        waiting = iter(objects)

        async def work() -> None:
            for body in waiting:
                await write(body)

        async with asyncio.TaskGroup() as workers:
            for _ in range(AT_ONCE):
                workers.create_task(work())

    async def _call(
        self, verb: str, path: str, body: dict[str, Any] | None = None, content: str = "application/json"
    ) -> Any:
        response = await self._send(verb, path, body, content)
        async with response:
            text = await response.read()
            if response.status >= 400:
                raise BenchError(f"{verb} {path}: {response.status}: {text[:300].decode(errors='replace')}")
            return json.loads(text)

    async def _send(
        self, verb: str, path: str, body: dict[str, Any] | None = None, content: str = "application/json"
    ) -> aiohttp.ClientResponse:
        method, url, headers, sent, _ = await self._api.param_serialize(
            verb,
            path,
            header_params={"Accept": "application/json", "Content-Type": content},
            body=body,
            auth_settings=["BearerToken"],
        )
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        answer = await self._api.call_api(method, url, headers, sent, _request_timeout=timeout)
        response: aiohttp.ClientResponse = answer.response
        return response


def _gpus(pod: dict[str, Any]) -> int:
    (container,) = pod["spec"]["containers"]
    return sum(int(amount) for name, amount in container["resources"]["limits"].items() if "gpu" in name)


def _assignment(pod: dict[str, Any]) -> GpuAssignment:
    value = pod["metadata"].get("annotations", {}).get(GPU_ASSIGNMENT_ANNOTATION)
    return parse_gpu_assignment(value) if value else {}
