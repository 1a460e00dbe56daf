"""Every change of a pod, in the order in which the API server made it, from one watch of the whole run."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import msgspec

from bench.errors import BenchError
from bench.scheduling.api_server import PODS, ApiServer
from bench.scheduling.fleet import Change
from bench.scheduling.workload import LABEL, RESOURCES
from mcp2026.api.gpu_assignment import parse_gpu_assignment
from mcp2026.api.names import GPU_ASSIGNMENT_ANNOTATION


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str
    name: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _Resources(msgspec.Struct, frozen=True):
    limits: dict[str, str] = {}


class _Container(msgspec.Struct, frozen=True):
    resources: _Resources = _Resources()


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    containers: tuple[_Container, ...] | None = None
    node_name: str = ""


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Line(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


_line = msgspec.json.Decoder(_Line)
_pod = msgspec.json.Decoder(_Pod)


class PodHistory:
    """What happened to the pods of the benchmark, and whom is waited for."""

    def __init__(self, version: str) -> None:
        self.changes: list[Change] = []
        self.breaks = 0
        """How often the API server ended the watch; it went on where it had ended."""
        self._version = version
        self._bound: defaultdict[str, dict[str, float]] = defaultdict(dict)
        self._news = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def followed(cls, api: ApiServer) -> AsyncIterator["PodHistory"]:
        """Follow the pods from now on. A failure of the watch is raised in the body at its next wait."""
        version = (await api.get(f"{PODS}?limit=1"))["metadata"]["resourceVersion"]
        history = cls(version)
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(history._follow(api))
            yield history
            following.cancel()

    def times_of(self, prefix: str) -> dict[str, float]:
        """Return when each pod of this label was first seen bound, in seconds of a monotonic clock."""
        return self._bound[prefix]

    async def wait_bound(self, prefix: str, count: int, patience_s: float) -> bool:
        """Return whether `count` pods of this label were bound; False when none was for `patience_s`."""
        while (before := len(self._bound[prefix])) < count:
            try:
                async with asyncio.timeout(patience_s):
                    while len(self._bound[prefix]) == before:
                        self._news.clear()
                        await self._news.wait()
            except TimeoutError:
                return False
        return True

    async def _follow(self, api: ApiServer) -> None:
        while True:
            query = (
                f"labelSelector={LABEL}&watch=true&allowWatchBookmarks=true&resourceVersion={self._version}"
            )
            try:
                async with api.watch(f"{PODS}?{query}") as lines:
                    async for line in lines:
                        self._take(line)
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(0.2)
            self.breaks += 1

    def _take(self, text: bytes) -> None:
        line = _line.decode(text)
        if line.type == "ERROR":
            raise BenchError(f"the watch of pods has a gap, so nothing can be replayed: {text.decode()}")
        pod = _pod.decode(line.object)
        self._version = pod.metadata.resource_version
        if line.type != "BOOKMARK":
            self._note(_change(pod, gone=line.type == "DELETED"), pod.metadata.labels[LABEL])

    def _note(self, change: Change, prefix: str) -> None:
        self.changes.append(change)
        if change.node and change.name not in self._bound[prefix]:
            self._bound[prefix][change.name] = change.at
            self._news.set()


def _change(pod: _Pod, *, gone: bool) -> Change:
    ended = pod.status.phase in ("Succeeded", "Failed")
    value = pod.metadata.annotations.get(GPU_ASSIGNMENT_ANNOTATION)
    (container,) = pod.spec.containers or ()
    return Change(
        at=time.monotonic(),
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        node=pod.spec.node_name,
        asked={name: int(amount) for name, amount in container.resources.limits.items() if name in RESOURCES},
        assignment=parse_gpu_assignment(value) if value else {},
        gone=gone or ended,
    )
