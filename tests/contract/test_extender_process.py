"""The process itself against an API server that can be made to misbehave: it lists, watches and ends watches.

The server here speaks Kubernetes' list and watch over plain HTTP, far enough to break them at will; the same
process against the real API server is in tests/cluster/test_scheduling.py.
"""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from mcp2026.scheduler_extender.adapters.cluster_watch import PATHS
from mcp2026.scheduler_extender.cluster_events import Kind
from tests.fakes.clusters import node, pod, topology
from tests.loopback import kubeconfig_for

PAIRS = "4xa100-pcie-nvlink-pairs"
PATIENCE_S = 20


@dataclass
class ApiServer:
    """Objects with versions, and the watches on them. A version before `oldest` is answered by 410."""

    objects: dict[Kind, dict[str, dict[str, Any]]] = field(
        default_factory=lambda: {kind: {} for kind in Kind}
    )
    missing: set[Kind] = field(default_factory=set)
    version: int = 1
    oldest: int = 0
    lists: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))
    watching_from: dict[Kind, list[int]] = field(default_factory=lambda: {kind: [] for kind in Kind})
    _streams: dict[Kind, list[web.StreamResponse]] = field(
        default_factory=lambda: {kind: [] for kind in Kind}
    )
    _log: list[tuple[int, Kind, bytes]] = field(default_factory=list)
    _ended: asyncio.Event = field(default_factory=asyncio.Event)
    _runner: web.AppRunner | None = None
    port: int = 0

    async def start(self) -> None:
        self._ended = asyncio.Event()
        app = web.Application()
        for kind, path in PATHS.items():
            app.router.add_get(path, self._handler(kind))
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        self._ended.set()
        assert self._runner is not None
        await self._runner.cleanup()

    async def put(self, kind: Kind, document: dict[str, Any], event: str = "MODIFIED") -> None:
        """Store an object, or delete it with the event DELETED, and tell those who watch."""
        self.version += 1
        document = {**document, "metadata": {**document["metadata"], "resourceVersion": str(self.version)}}
        name = document["metadata"]["name"]
        if event == "DELETED":
            self.objects[kind].pop(name, None)
        else:
            self.objects[kind][name] = document
        line = json.dumps({"type": event, "object": document}).encode() + b"\n"
        self._log.append((self.version, kind, line))
        for stream in self._streams[kind]:
            await stream.write(line)

    async def break_watches(self) -> None:
        """End every watch in the middle of a line, as a connection that breaks does."""
        for kind in Kind:
            for stream in self._streams[kind]:
                await stream.write(b'{"type":"MODI')
        self._ended.set()
        self._ended = asyncio.Event()

    def _handler(self, kind: Kind) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            if kind in self.missing:
                return web.json_response({"kind": "Status", "code": 404, "message": "not found"}, status=404)
            if request.query.get("watch") != "true":
                self.lists[kind] += 1
                return web.json_response(
                    {
                        "metadata": {"resourceVersion": str(self.version)},
                        "items": list(self.objects[kind].values()),
                    }
                )
            return await self._watch(kind, request)

        return handle

    async def _watch(self, kind: Kind, request: web.Request) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        await stream.prepare(request)
        if since < self.oldest:
            status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            await stream.write(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
            return stream
        for version, of, line in self._log:
            if of is kind and version > since:
                await stream.write(line)
        self.watching_from[kind].append(since)
        self._streams[kind].append(stream)
        try:
            await self._ended.wait()
        finally:
            self._streams[kind].remove(stream)
        return stream


class Extender:
    """The running process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.log: list[dict[str, Any]] = []
        self.last_words = ""
        """What it wrote to standard error beside its log: why it could not go on."""
        self.port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.health_port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for raw in self.process.stderr:
            if not raw.startswith(b"{"):
                self.last_words += raw.decode()
                continue
            line = json.loads(raw)
            self.log.append(line)
            if line.get("serving") == "verbs":
                self.port.set_result(line["port"])
            if line.get("serving") == "health":
                self.health_port.set_result(line["port"])

    async def filter(self, *names: str, gpus: int) -> dict[str, Any]:
        url = f"http://127.0.0.1:{await self.port}/v1/filter"
        arguments = {"Pod": pod("p", gpus), "NodeNames": list(names)}
        async with aiohttp.ClientSession() as session, session.post(url, json=arguments) as response:
            answer: dict[str, Any] = await response.json()
            return answer

    async def get(self, path: str, port: int | None = None) -> tuple[int, str]:
        url = f"http://127.0.0.1:{port or await self.port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return response.status, await response.text()

    async def ready(self) -> bool:
        return (await self.get("/readyz"))[0] == 200

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.returncode is None:
            self.process.send_signal(number)
        try:
            return await asyncio.wait_for(self.process.wait(), PATIENCE_S)
        except TimeoutError:
            self.process.kill()
            raise
        finally:
            await self._reading


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Return once `condition` holds, and fail when it does not in time."""
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110  (the state is another process's)
            await asyncio.sleep(0.02)


async def start(folder: Path, api_port: int, *flags: str) -> Extender:
    command = [sys.executable, "-m", "mcp2026.scheduler_extender", "--log-format", "json"]
    config = ["--kubeconfig", str(kubeconfig_for(api_port, folder))]
    process = await asyncio.create_subprocess_exec(
        *command, *config, *(flags or ("--port", "0")), stderr=asyncio.subprocess.PIPE
    )
    return Extender(process)


@asynccontextmanager
async def running(folder: Path, api: ApiServer, *flags: str) -> AsyncIterator[Extender]:
    extender = await start(folder, api.port, *flags)
    try:
        yield extender
    finally:
        await extender.end()


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    server = ApiServer()
    await server.start()
    await server.put(Kind.NODES, node("n"), "ADDED")
    await server.put(Kind.GPU_TOPOLOGIES, topology("n", PAIRS), "ADDED")
    yield server
    await server.stop()


def fits(extender: Extender, gpus: int, expected: bool = True) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        return ((await extender.filter("n", gpus=gpus))["NodeNames"] == ["n"]) is expected

    return check


async def test_it_follows_pods_and_topologies_and_ends_with_0_on_sigterm(
    tmp_path: Path, api: ApiServer
) -> None:
    async with running(tmp_path, api) as extender:
        await until(extender.ready)
        assert (await extender.filter("n", gpus=4))["NodeNames"] == ["n"]
        await api.put(Kind.PODS, pod("a", 2, "n"), "ADDED")
        await until(fits(extender, 4, expected=False))
        assert (await extender.filter("n", gpus=2))["NodeNames"] == ["n"]
        await api.put(Kind.PODS, pod("a", 2, "n"), "DELETED")
        await until(fits(extender, 4))
        await api.put(Kind.GPU_TOPOLOGIES, topology("n", PAIRS), "DELETED")
        await until(fits(extender, 1, expected=False))
        assert await extender.end(signal.SIGTERM) == 0


async def test_a_watch_that_breaks_goes_on_where_it_broke_without_a_new_list(
    tmp_path: Path, api: ApiServer
) -> None:
    async with running(tmp_path, api) as extender:
        await until(extender.ready)
        await api.put(Kind.PODS, pod("a", 1, "n"), "ADDED")
        await until(fits(extender, 4, expected=False))
        await api.stop()
        await api.put(Kind.PODS, pod("b", 1, "n"), "ADDED")
        assert (await extender.filter("n", gpus=3))["NodeNames"] == ["n"], "it answers from what it knew"
        await api.start()
        await until(fits(extender, 3, expected=False))
        assert api.lists == dict.fromkeys(Kind, 1)
        assert api.watching_from[Kind.PODS][-1] == api.version - 1


async def test_an_expired_history_is_answered_by_a_new_list(tmp_path: Path, api: ApiServer) -> None:
    async with running(tmp_path, api) as extender:
        await until(extender.ready)
        await api.stop()
        await api.put(Kind.PODS, pod("a", 4, "n"), "ADDED")
        api.oldest = api.version + 1
        api.version += 1
        await api.start()
        await until(fits(extender, 1, expected=False))
        assert api.lists[Kind.PODS] == 2


async def test_a_line_cut_in_two_is_asked_for_again_without_a_new_list(
    tmp_path: Path, api: ApiServer
) -> None:
    async with running(tmp_path, api) as extender:
        await until(extender.ready)
        await until(lambda: _watched(api))
        await api.break_watches()
        await api.put(Kind.PODS, pod("a", 4, "n"), "ADDED")
        await until(fits(extender, 1, expected=False))
        assert api.lists == dict.fromkeys(Kind, 1)
        assert 'mcp2026_extender_watch_breaks_total{kind="pods"} 1.0' in (await extender.get("/metrics"))[1]


async def _watched(api: ApiServer) -> bool:
    return all(api.watching_from.values())


async def test_without_the_custom_resource_it_says_so_until_it_is_there(
    tmp_path: Path, api: ApiServer
) -> None:
    api.missing.add(Kind.GPU_TOPOLOGIES)
    async with running(tmp_path, api) as extender:

        async def told() -> bool:
            status, text = await extender.get("/readyz")
            return status == 503 and "gputopologies (404: not found: is the custom resource" in text

        await until(told)
        assert "has not yet read gputopologies" in (await extender.filter("n", gpus=1))["Error"]
        api.missing.clear()
        await until(extender.ready)
        assert (await extender.filter("n", gpus=4))["NodeNames"] == ["n"]


async def test_it_starts_before_the_api_server_and_waits_for_it(tmp_path: Path, api: ApiServer) -> None:
    await api.stop()
    async with running(tmp_path, api) as extender:
        assert (await extender.get("/healthz"))[0] == 200
        assert not await extender.ready()
        await api.start()
        await until(extender.ready)


async def test_others_see_health_on_a_port_of_its_own(tmp_path: Path, api: ApiServer) -> None:
    flags = ("--port", "0", "--metrics-host", "127.0.0.1", "--metrics-port", "0")
    async with running(tmp_path, api, *flags) as extender:
        port = await extender.health_port
        assert port != await extender.port
        assert (await extender.get("/healthz", port))[0] == 200


async def test_a_port_in_use_ends_it_with_1_and_advice(tmp_path: Path, api: ApiServer) -> None:
    extender = await start(tmp_path, api.port, "--port", str(api.port))
    status = await asyncio.wait_for(extender.process.wait(), PATIENCE_S)
    await extender.end()
    assert status == 1
    assert extender.last_words.startswith("mcp2026-scheduler-extender: cannot listen on 127.0.0.1:")
    assert "--port" in extender.last_words
    assert "Traceback" not in extender.last_words


@pytest.mark.parametrize("content", ["clusters: [", "just words"], ids=["no YAML", "no kubeconfig"])
async def test_a_broken_kubeconfig_ends_it_with_1_and_names_the_flag(tmp_path: Path, content: str) -> None:
    (tmp_path / "broken").write_text(content)
    extender = await start(tmp_path, 1, "--port", "0", "--kubeconfig", str(tmp_path / "broken"))
    assert await asyncio.wait_for(extender.process.wait(), PATIENCE_S) == 1
    await extender.end()
    assert extender.last_words.startswith("mcp2026-scheduler-extender: ")
    assert "--kubeconfig" in extender.last_words
    assert "Traceback" not in extender.last_words


async def test_the_policy_is_read_from_its_file_and_read_again_when_it_changes(
    tmp_path: Path, api: ApiServer
) -> None:
    config = tmp_path / "policy.yaml"
    config.write_text("packing: Pack\n")
    async with running(tmp_path, api, "--port", "0", "--config", str(config)) as extender:
        await until(extender.ready)
        config.write_text("packing: Everywhere\n")
        await until(logged(extender, "'Everywhere' is not allowed; allowed: Pack or Spread"))
        config.write_text("packing: Spread\n")
        await until(logged(extender, "took a new configuration"))
        assert (await extender.filter("n", gpus=4))["NodeNames"] == ["n"]


def logged(extender: Extender, words: str) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        return any(words in json.dumps(line) for line in extender.log)

    return check


async def test_a_wrong_policy_ends_it_with_2_and_is_told_by_field(tmp_path: Path, api: ApiServer) -> None:
    config = tmp_path / "policy.yaml"
    config.write_text("pack: Spread\n")
    extender = await start(tmp_path, api.port, "--port", "0", "--config", str(config))
    assert await asyncio.wait_for(extender.process.wait(), PATIENCE_S) == 2
    await extender.end()
    assert "policy.yaml: configuration.pack: is not a field; allowed: demandMix" in extender.last_words
