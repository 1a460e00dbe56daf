"""Pages of pods are read together, each in its time, and never more than their limit. Real sockets."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web

from mcp2026.operator.adapters import pod_pages
from mcp2026.operator.adapters.pod_pages import HttpPodPages

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[Handler], Awaitable[str]]]:
    runners = []

    async def start(handler: Handler) -> str:
        server = web.Server(handler)
        runner = web.ServerRunner(server, shutdown_timeout=0)
        runners.append(runner)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{site.port}/metrics"

    yield start
    for runner in runners:
        await runner.cleanup()


def page_of(text: str, status: int = 200) -> Handler:
    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=text, status=status)

    return answer


async def test_pages_come_in_the_order_of_their_pods(serve: Callable[[Handler], Awaitable[str]]) -> None:
    urls = [await serve(page_of(page)) for page in ("a", "b", "c")]
    assert await HttpPodPages().read([urls[2], urls[0], urls[1]]) == ["c", "a", "b"]
    assert await HttpPodPages().read([]) == []


async def test_whoever_does_not_answer_well_is_left_out_and_keeps_nobody_waiting(
    serve: Callable[[Handler], Awaitable[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_pages, "TIMEOUT_SECONDS", 0.3)
    monkeypatch.setattr(pod_pages, "LARGEST_PAGE", 1_000)
    never = asyncio.Event()

    async def silent(_: web.BaseRequest) -> web.StreamResponse:
        await never.wait()
        return web.Response()

    async def half(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"mcp2026_requests_total")
        await never.wait()
        return response

    async def elsewhere(_: web.BaseRequest) -> web.StreamResponse:
        raise web.HTTPFound("http://127.0.0.1:1/")

    async def bytes_that_are_no_text(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=b"\xff\xfe")

    closed = socket.socket()
    closed.bind(("127.0.0.1", 0))
    refusing = f"http://127.0.0.1:{closed.getsockname()[1]}/metrics"
    urls = [
        await serve(page_of("good")),
        await serve(silent),
        await serve(half),
        await serve(page_of("x" * 1_001)),
        await serve(page_of("not ready", 503)),
        await serve(elsewhere),
        await serve(bytes_that_are_no_text),
        refusing,
        await serve(page_of("x" * 1_000)),
    ]
    pages = await asyncio.wait_for(HttpPodPages().read(urls), 30)
    closed.close()
    never.set()
    assert pages == ["good", *[None] * 7, "x" * 1_000]
