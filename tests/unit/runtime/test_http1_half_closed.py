"""Clients that are done early, that ask before they send, or that speak HTTP/1.0. Real sockets."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from mcp2026.runtime.protocol.connections import ConnectionLimits, Connections
from mcp2026.runtime.protocol.exchange import Cancel, RequestHead, Respond, Response
from mcp2026.runtime.protocol.listener import connection_factory

PATIENCE = 10
GET = b"GET %b HTTP/1.1\r\nHost: t\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Application:
    """Answers with the body; `/held` only when the test says so."""

    closing = False

    def __init__(self) -> None:
        self.held: asyncio.Queue[Respond] = asyncio.Queue()
        self.cancelled = asyncio.Event()

    def admit(self, _head: RequestHead) -> Response | None:
        return None

    def begin(self, head: RequestHead, body: bytes, respond: Respond) -> Cancel | None:
        if head.path == "/held":
            self.held.put_nowait(respond)
            return self.cancelled.set
        respond(Response(200, body or b"at once"))
        return None

    def protocol_error(self, status: int, message: str, _allowed: str | None = None) -> Response:
        return Response(status, message.encode())


@pytest.fixture
def application() -> Application:
    return Application()


@pytest.fixture
async def connect(application: Application) -> AsyncIterator[Callable[..., Any]]:
    loop = asyncio.get_running_loop()
    connections = Connections(loop, lambda _count: None)
    factory = connection_factory(application, ConnectionLimits(), connections, loop)
    server = await loop.create_server(factory, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    writers = []

    async def open_connection() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writers.append(writer)
        return reader, writer

    yield open_connection
    for writer in writers:
        writer.close()
    await asyncio.wait_for(connections.empty.wait(), PATIENCE)
    server.close()


async def test_a_client_that_closes_its_side_gets_all_answers_in_order(connect, application) -> None:
    reader, writer = await connect()
    writer.write(GET % b"/held" + GET % b"/")
    writer.write_eof()
    respond = await asyncio.wait_for(application.held.get(), PATIENCE)
    respond(Response(200, b"held back"))
    received = await asyncio.wait_for(reader.read(), PATIENCE)
    assert received.removeprefix(CONTINUE).count(b"HTTP/1.1 200 ") == 2
    assert received.index(b"held back") < received.index(b"at once")
    assert received.count(b"connection: close\r\n") == 1
    assert not application.cancelled.is_set()


async def test_a_client_that_closes_its_side_may_wait_long(connect, application) -> None:
    reader, writer = await connect()
    writer.write(GET % b"/held")
    writer.write_eof()
    respond = await asyncio.wait_for(application.held.get(), PATIENCE)
    received = asyncio.ensure_future(reader.read())
    await asyncio.wait({received}, timeout=2.0)  # longer than the server wonders whether it has gone
    assert not received.done()
    respond(Response(200, b"held back"))
    assert (await asyncio.wait_for(received, PATIENCE)).endswith(b"held back")


async def test_a_client_that_has_gone_is_told_from_one_that_still_reads(connect, application) -> None:
    _, writer = await connect()
    writer.write(GET % b"/held")
    await asyncio.wait_for(application.held.get(), PATIENCE)
    writer.close()
    await asyncio.wait_for(application.cancelled.wait(), PATIENCE)


async def test_half_a_request_is_not_waited_for_when_the_client_closes_its_side(connect) -> None:
    reader, writer = await connect()
    writer.write(b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\n\r\nhalf")
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(), PATIENCE) == b""


async def test_a_client_that_asks_behind_another_request_is_told_to_go_on(connect, application) -> None:
    reader, writer = await connect()
    writer.write(GET % b"/held")
    writer.write(b"POST / HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
    respond = await asyncio.wait_for(application.held.get(), PATIENCE)
    respond(Response(200, b"held back"))
    received = await asyncio.wait_for(reader.readuntil(CONTINUE), PATIENCE)
    assert received.endswith(b"held back" + CONTINUE)
    writer.write(b"body")
    assert await asyncio.wait_for(reader.readuntil(b"body"), PATIENCE)


async def test_http_10_is_never_told_to_go_on_and_keeps_its_connection_if_it_asks(connect) -> None:
    reader, writer = await connect()
    head = b"POST / HTTP/1.0\r\n%bExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbody"
    writer.write(head % b"Connection: keep-alive\r\n")
    received = await asyncio.wait_for(reader.readuntil(b"body"), PATIENCE)
    assert received.startswith(b"HTTP/1.1 200 ")
    assert b"connection: keep-alive\r\n" in received
    writer.write(head % b"")
    received = await asyncio.wait_for(reader.read(), PATIENCE)
    assert received.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close\r\n" in received
