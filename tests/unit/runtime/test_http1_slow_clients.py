"""Clients that are too slow lose their connection; none can hold one for ever. Real sockets, short limits."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from mcp2026.runtime.protocol.connections import ConnectionLimits, Connections
from mcp2026.runtime.protocol.exchange import Cancel, RequestHead, Respond, Response
from mcp2026.runtime.protocol.listener import connection_factory

SHORT = ConnectionLimits(
    head_seconds=0.2, stall_seconds=0.2, body_seconds=1.5, idle_seconds=0.2, linger_seconds=0.2
)


class Large:
    """Answers everything with 8 MiB, `/never` not at all."""

    closing = False

    def __init__(self) -> None:
        self.cancelled = 0

    def admit(self, _head: RequestHead) -> Response | None:
        return None

    def begin(self, head: RequestHead, _body: bytes, respond: Respond) -> Cancel | None:
        if head.path == "/never":
            return self.cancel
        respond(Response(200, b"x" * (8 << 20)))
        return None

    def cancel(self) -> None:
        self.cancelled += 1

    def protocol_error(self, status: int, message: str, _allowed: str | None = None) -> Response:
        return Response(status, message.encode())


@pytest.fixture
def application() -> Large:
    return Large()


@pytest.fixture
async def connect(application: Large) -> AsyncIterator[Callable[..., Any]]:
    loop = asyncio.get_running_loop()
    connections = Connections(loop, lambda _count: None)
    server = await loop.create_server(
        connection_factory(application, SHORT, connections, loop), "127.0.0.1", 0
    )
    port = server.sockets[0].getsockname()[1]
    writers = []

    async def open_connection() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writers.append(writer)
        return reader, writer

    yield open_connection
    for writer in writers:
        writer.close()
    await asyncio.wait_for(connections.empty.wait(), 10)
    server.close()


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        pytest.param(b"", b"", id="nothing"),
        pytest.param(b"P", b"", id="too little to know the protocol"),
        pytest.param(b"POST / HTTP/1.1\r\nHost:", b"HTTP/1.1 408 ", id="half a head"),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\n\r\nhalf", b"HTTP/1.1 408 ", id="half a body"
        ),
    ],
)
async def test_a_client_that_stops_is_let_go(connect, sent: bytes, answer: bytes) -> None:
    reader, writer = await connect()
    writer.write(sent)
    received = await asyncio.wait_for(reader.read(), 10)
    assert received.startswith(answer)
    assert bool(received) == bool(answer)


async def test_a_body_that_trickles_has_an_end_too(connect) -> None:
    reader, writer = await connect()
    writer.write(b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1000\r\n\r\n")
    received = asyncio.ensure_future(reader.read())
    for _ in range(100):
        if received.done():
            break
        writer.write(b"x")
        await asyncio.sleep(0.05)
    assert (await asyncio.wait_for(received, 10)).startswith(b"HTTP/1.1 408 ")


async def test_a_client_that_does_not_read_is_cut_off(connect) -> None:
    _, writer = await connect()
    writer.write(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n" * 4)
    writer.transport.pause_reading()
    for _ in range(200):  # the server gives up and resets; the client learns it by writing
        if writer.transport.is_closing():
            break
        writer.write(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
        await asyncio.sleep(0.05)
    assert writer.transport.is_closing()


async def test_a_client_that_waits_for_its_answer_is_never_too_slow(connect, application: Large) -> None:
    reader, writer = await connect()
    writer.write(b"GET /never HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(), 2.5)
    assert application.cancelled == 0
    writer.close()
    for _ in range(200):
        if application.cancelled:
            break
        await asyncio.sleep(0.02)
    assert application.cancelled == 1
