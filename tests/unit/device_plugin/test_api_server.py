"""How the API server is found, and how objects are followed when it misbehaves; over real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from mcp2026.device_plugin.adapters.cluster import Cluster
from mcp2026.device_plugin.adapters.credentials import Credentials, find_credentials
from mcp2026.device_plugin.adapters.node_watch import watch_reservations, watch_spec
from mcp2026.device_plugin.errors import ApiServerError, NoCredentialsError
from mcp2026.device_plugin.reservations import Reservation
from mcp2026.device_plugin.resource_names import ResourceNames
from mcp2026.device_plugin.wishes import SeenSpec

KUBECONFIG: dict[str, Any] = {
    "current-context": "here",
    "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1/"}}],
    "users": [{"name": "u", "user": {"token": "secret"}}],
}


def kubeconfig(folder: Path, **changes: Any) -> dict[str, str]:
    """Write a kubeconfig with `changes`, and return the environment that names it."""
    path = folder / "config"
    path.write_text(yaml.safe_dump(KUBECONFIG | changes))
    return {"KUBECONFIG": str(path)}


def test_a_kubeconfig_gives_server_and_token(tmp_path: Path) -> None:
    found = find_credentials(kubeconfig(tmp_path))
    assert found.server == "http://127.0.0.1:1"
    assert found.headers() == {"Authorization": "Bearer secret"}


def test_a_token_file_is_read_anew_each_time(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    found = find_credentials(kubeconfig(tmp_path, users=[{"name": "u", "user": {"tokenFile": "token"}}]))
    assert found.headers()["Authorization"] == "Bearer first"
    (tmp_path / "token").write_text("second\n")
    assert found.headers()["Authorization"] == "Bearer second"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({"current-context": "there"}, "no context 'there'", id="a context that is not there"),
        pytest.param({"users": []}, "no user 'u'", id="a user that is not there"),
        pytest.param(
            {"users": [{"name": "u", "user": {"exec": {"command": "login"}}}]},
            "made by a program",
            id="credentials that a program makes",
        ),
        pytest.param({"clusters": 3}, "clusters", id="another shape"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_named_with_the_reason(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(NoCredentialsError) as refused:
        find_credentials(kubeconfig(tmp_path, **changes))
    assert said in str(refused.value)
    assert str(tmp_path / "config") in str(refused.value)


# ---- following objects ----


class Played:
    """An API server that answers lists and watches by a script, one after the other."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[dict[str, str]] = []
        self.exhausted = asyncio.Event()
        """Set when more is asked than the script answers."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(dict(request.query))
        if not self.answers:
            self.exhausted.set()
            await asyncio.sleep(3600)
        answer = self.answers.pop(0)
        if isinstance(answer, int):
            return web.json_response({"message": "no", "code": answer}, status=answer)
        if isinstance(answer, dict):
            return web.json_response(answer)
        response = web.StreamResponse()
        await response.prepare(request)
        for event in answer:
            await response.write(json.dumps(event).encode() + b"\n")
        return response


@asynccontextmanager
async def serving(played: Played) -> AsyncIterator[Cluster]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", played.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    cluster = Cluster(lambda: Credentials(f"http://{host}:{port}", False))
    try:
        yield cluster
    finally:
        await cluster.close()
        await runner.cleanup()


def pod(name: str, version: str, assignment: str | None = None) -> dict[str, Any]:
    annotations = {} if assignment is None else {"mcp2026.io/gpu-assignment": assignment}
    return {
        "metadata": {
            "name": name, "namespace": "team", "uid": f"uid-{name}", "resourceVersion": version,
            "creationTimestamp": "2026-11-30T10:00:00Z", "annotations": annotations, "managedFields": [{}],
        }
    }  # fmt: skip


def listed(version: str, *items: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": version}, "items": list(items)}


PROMISE = '{"main": {"nvidia.com/gpu": ["A"]}}'


async def test_reservations_follow_pods_through_an_expired_history() -> None:
    played = Played(
        listed("1", pod("one", "1", PROMISE), pod("bad", "1", "{"), pod("none", "1")),
        [
            {"type": "ADDED", "object": pod("two", "2", PROMISE)},
            {"type": "DELETED", "object": pod("one", "3")},
            {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}},
        ],
        [{"type": "ERROR", "object": {"code": 410, "message": "too old"}}],
        listed("20", pod("three", "20", PROMISE)),
    )
    seen: asyncio.Queue[list[str]] = asyncio.Queue()

    def changed(reservations: tuple[Reservation, ...]) -> None:
        for each in reservations:
            assert each.assignment == {"main": {"mcp2026.io/gpu": ("A",)}}, "by our own name of it"
        seen.put_nowait([each.pod for each in reservations])

    async with serving(played) as cluster:
        names = ResourceNames("nvidia.com")
        watch = asyncio.create_task(watch_reservations(cluster, "node-1", names, changed).run())
        found = [await asyncio.wait_for(seen.get(), 10) for _ in range(4)]
        await asyncio.wait_for(played.exhausted.wait(), 10)
        watch.cancel()
    assert found == [["one"], ["one", "two"], ["two"], ["three"]]
    assert "spec.nodeName=node-1" in played.requests[0]["fieldSelector"]
    versions = [request["resourceVersion"] for request in played.requests]
    assert versions == ["0", "1", "9", "0", "20"]


@pytest.mark.parametrize("status", [400, 410, 504])
@pytest.mark.parametrize("within", [False, True])
async def test_a_version_that_the_server_does_not_know_is_asked_for_no_more(
    status: int, within: bool
) -> None:
    refusal = [{"type": "ERROR", "object": {"code": status, "message": "no"}}] if within else status
    played = Played(listed("7"), refusal, listed("3"))
    async with serving(played) as cluster:
        watch = asyncio.create_task(watch_spec(cluster, "n", lambda _: None).run())
        await asyncio.wait_for(played.exhausted.wait(), 10)
        watch.cancel()
    assert [request["resourceVersion"] for request in played.requests] == ["0", "7", "0", "3"]


@pytest.mark.parametrize("status", [401, 403, 409, 429, 500, 503])
async def test_a_server_that_refuses_for_a_while_is_asked_to_go_on(status: int) -> None:
    played = Played(listed("7"), status)
    async with serving(played) as cluster:
        watch = asyncio.create_task(watch_spec(cluster, "n", lambda _: None).run())
        await asyncio.wait_for(played.exhausted.wait(), 10)
        watch.cancel()
    assert [request["resourceVersion"] for request in played.requests] == ["0", "7", "7"]


async def test_a_spec_is_told_when_it_changes_and_not_for_a_status() -> None:
    def topology(version: str, generation: int, spec: dict[str, Any]) -> dict[str, Any]:
        metadata = {"name": "n", "uid": "u", "resourceVersion": version, "generation": generation}
        return {"metadata": metadata, "spec": spec, "status": {"version": version}}

    played = Played(
        listed("1"),
        503,
        [
            {"type": "ADDED", "object": topology("2", 1, {})},
            {"type": "MODIFIED", "object": topology("3", 1, {})},
            {"type": "MODIFIED", "object": topology("4", 2, {"sharing": {"mode": "MPS"}})},
        ],
    )
    seen: asyncio.Queue[SeenSpec] = asyncio.Queue()
    async with serving(played) as cluster:
        watch = asyncio.create_task(watch_spec(cluster, "n", seen.put_nowait).run())
        found = [await asyncio.wait_for(seen.get(), 10) for _ in range(3)]
        watch.cancel()
    assert found == [SeenSpec(), SeenSpec({}, 1), SeenSpec({"sharing": {"mode": "MPS"}}, 2)]
    assert seen.empty()


async def test_a_server_that_cannot_be_reached_is_told_and_looked_for_anew() -> None:
    asked = []

    def find() -> Credentials:
        asked.append(1)
        return Credentials("http://127.0.0.1:1", False)

    cluster = Cluster(find)
    for _ in range(2):
        with pytest.raises(ApiServerError, match="cannot be reached"):
            await cluster.get("/api")
    assert len(asked) == 2
    await cluster.close()
