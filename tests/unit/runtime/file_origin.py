"""A real HTTP server with one file, that breaks off, stalls, changes and refuses as it is told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web


@dataclass
class Origin:
    """What the server gives to `GET /file`, and what it was asked."""

    content: bytes
    etag: str = '"1"'
    ranges: bool = True
    cuts: list[int] = field(default_factory=list)
    """After how many bytes of a body the next answers break off."""
    stalls: list[int] = field(default_factory=list)
    """After how many bytes of a body the next answers say nothing more."""
    statuses: list[int] = field(default_factory=list)
    """Of the next answers."""
    drip_seconds: float = 0.0
    """Between two kilobytes."""
    redirect: str = ""
    """Where the first path leads."""
    encoding: str = ""
    """What the server says that it has packed the content with."""
    chunked: bool = False
    """No Content-Length."""
    asked: list[dict[str, str]] = field(default_factory=list)
    """Headers of each request, with its path as `:path`."""
    url: str = ""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by each request."""
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def asked_ranges(self) -> list[str | None]:
        return [one.get("Range") for one in self.asked]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append({**request.headers, ":path": request.path_qs})
        self.news.set()
        if self.redirect and request.path == "/moved":
            return web.Response(status=302, headers={"Location": self.redirect})
        if self.statuses:
            return web.Response(status=self.statuses.pop(0))
        begin = 0
        asked = request.headers.get("Range")
        if asked and self.ranges and request.headers.get("If-Range") == self.etag:
            begin = int(asked.removeprefix("bytes=").rstrip("-"))
        response = web.StreamResponse(status=206 if begin else 200, headers={"ETag": self.etag})
        if begin:
            response.headers["Content-Range"] = f"bytes {begin}-{len(self.content) - 1}/{len(self.content)}"
        if self.encoding:
            response.headers["Content-Encoding"] = self.encoding
        if self.chunked:
            response.enable_chunked_encoding()
        else:
            response.content_length = len(self.content) - begin
        await response.prepare(request)
        cut = self.cuts.pop(0) if self.cuts else None
        stall = self.stalls.pop(0) if self.stalls else None
        last = stall if cut is None else cut
        end = len(self.content) if last is None else begin + last
        step = 1_024 if self.drip_seconds else 65_536
        for position in range(begin, end, step):
            await response.write(self.content[position : min(end, position + step)])
            await asyncio.sleep(self.drip_seconds)
        if stall is not None:
            await self.over.wait()
        if cut is not None:
            await asyncio.sleep(0.05)  # so that the other side has read it: what it has not is lost
            assert request.transport is not None
            request.transport.close()
        return response


@asynccontextmanager
async def serving(content: bytes) -> AsyncIterator[Origin]:
    """Serve `content` on loopback."""
    origin = Origin(content)
    application = web.Application()
    application.router.add_get("/{name}", origin.answer)
    runner = web.AppRunner(application, shutdown_timeout=1.0, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    origin.url = f"http://127.0.0.1:{port}/file"
    try:
        yield origin
    finally:
        origin.over.set()
        await runner.cleanup()
