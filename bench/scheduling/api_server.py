"""Many objects written at once."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from kubernetes.aio import client, config

from bench.errors import BenchError
from bench.scheduling.workload import LABEL
from mcp2026.api.names import API_VERSION, GPU_TOPOLOGY_PLURAL
from tools.cluster.progress import Report

AT_ONCE = 32
NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
TOPOLOGIES = f"/apis/{API_VERSION}/{GPU_TOPOLOGY_PLURAL}"
REQUEST_S = 60.0
TRIES = 5
"""Of a request that was not answered in time, or that the API server was too busy for."""
READ_BYTES = 2**21
"""The longest line of a watch."""
TELL_EVERY_S = 10.0


class ApiServer:
    """The API server of a cluster, as its administrator."""

    def __init__(self, session: aiohttp.ClientSession, say: Report) -> None:
        self._session = session
        self._say = say

    @classmethod
    @asynccontextmanager
    async def connect(cls, kubeconfig: Path, say: Report) -> AsyncIterator["ApiServer"]:
        """Connect as the kubeconfig says; `say` is told how far long work is."""
        given = client.Configuration()
        await config.load_kube_config(  # type: ignore[no-untyped-call]  # untyped
            config_file=str(kubeconfig), client_configuration=given
        )
        context = ssl.create_default_context(cafile=given.ssl_ca_cert)
        assert given.cert_file is not None  # the run's own kubeconfig names one
        context.load_cert_chain(given.cert_file, given.key_file)
        connector = aiohttp.TCPConnector(limit=2 * AT_ONCE, ssl=context)
        async with aiohttp.ClientSession(given.host, connector=connector, read_bufsize=READ_BYTES) as session:
            yield cls(session, say)

    async def create(self, path: str, objects: Iterable[dict[str, Any]]) -> None:
        """Create `objects`, many at a time. One that is there already is left as it is."""

        async def write(body: dict[str, Any]) -> None:
            await self._call("POST", path, body)

        await self._each(write, objects, path)

    async def create_with_status(self, path: str, objects: Iterable[dict[str, Any]]) -> None:
        """Create `objects`, and write their status, which a POST of a custom resource leaves out."""

        async def write(body: dict[str, Any]) -> None:
            made = await self._call("POST", path, {**body, "status": {}})
            body["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"]
            await self._call("PUT", f"{path}/{body['metadata']['name']}/status", body)

        await self._each(write, objects, path)

    async def delete(self, names: Iterable[str]) -> None:
        """Delete the pods of these names at once, whether or not they are still there."""

        async def remove(name: str) -> None:
            await self._call("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0", absent=True)

        await self._each(remove, names, PODS)

    async def delete_all_pods(self, within_s: float = 300.0) -> None:
        """Delete the pods of the benchmark, and wait until there are none."""
        deadline = time.monotonic() + within_s
        await self._call("DELETE", f"{PODS}?labelSelector={LABEL}&gracePeriodSeconds=0", limit_s=within_s)
        while (await self._call("GET", f"{PODS}?labelSelector={LABEL}&limit=1"))["items"]:
            if time.monotonic() > deadline:
                raise BenchError(f"there are still pods {within_s:.0f} s after they were deleted")
            await asyncio.sleep(0.5)  # another process's doing: there is nothing of ours to wait on

    async def get(self, path: str) -> Any:
        """Return what is at `path`."""
        return await self._call("GET", path)

    @asynccontextmanager
    async def watch(self, path: str) -> AsyncIterator[aiohttp.StreamReader]:
        """Open a watch; the lines of its answer follow."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_S)
        async with self._session.get(path, timeout=timeout) as response:
            if response.status >= 400:
                raise BenchError(f"GET {path}: {response.status}: {await response.text()}")
            yield response.content

    async def _each(self, write: Callable[[Any], Awaitable[None]], objects: Iterable[Any], path: str) -> None:
        waiting = iter(objects)
        done, told = 0, time.monotonic()

        async def work() -> None:
            nonlocal done, told
            for each in waiting:
                await write(each)
                done += 1
                if time.monotonic() - told > TELL_EVERY_S:
                    told = time.monotonic()
                    self._say(f"{done} of {path.rpartition('/')[2]} so far")

        async with asyncio.TaskGroup() as workers:
            for _ in range(AT_ONCE):
                workers.create_task(work())

    async def _call(
        self,
        verb: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        absent: bool = False,
        limit_s: float = REQUEST_S,
    ) -> Any:
        """Return the answer. `absent`: what is not there is as good as deleted."""
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        timeout = aiohttp.ClientTimeout(total=limit_s)
        problem = ""
        for tried in range(TRIES):
            try:
                async with self._session.request(
                    verb, path, data=data, headers=headers, timeout=timeout
                ) as response:
                    text = await response.read()
            except (TimeoutError, aiohttp.ClientError) as error:
                problem = str(error) or type(error).__name__
                continue
            if response.status < 400:
                return msgspec.json.decode(text)
            if (response.status == 404 and absent) or (response.status == 409 and verb == "POST" and tried):
                return await self._call("GET", f"{path}/{body['metadata']['name']}") if body else None
            problem = f"{response.status}: {text[:300].decode(errors='replace')}"
            if response.status not in (429, 500, 503, 504):
                break
            await asyncio.sleep(1)
        raise BenchError(f"{verb} {path}: {problem}")
