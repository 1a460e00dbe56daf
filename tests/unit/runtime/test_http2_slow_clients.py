"""Clients of HTTP/2 that are too slow lose their stream or their connection. Real sockets, short limits."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest

from mcp2026.runtime.protocol.connections import ConnectionLimits, Connections
from mcp2026.runtime.protocol.exchange import Cancel, RequestHead, Respond, Response
from mcp2026.runtime.protocol.http2 import frames
from mcp2026.runtime.protocol.http2.errors import Http2Code
from mcp2026.runtime.protocol.listener import connection_factory
from tests.unit.runtime.http2_client import GET, POST, START, Frame, block, data, headers, of_kind, split

SHORT = ConnectionLimits(
    max_body_bytes=1 << 20,
    head_seconds=0.2,
    stall_seconds=0.2,
    body_seconds=1.5,
    idle_seconds=0.2,
    linger_seconds=0.2,
)
PATIENCE = 15
NEVER = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/never"))


class Large:
    """Answers everything with 8 MiB, `/never` not at all."""

    closing = False

    def __init__(self) -> None:
        self.cancelled = asyncio.Event()

    def admit(self, _head: RequestHead) -> Response | None:
        return None

    def begin(self, head: RequestHead, _body: bytes, respond: Respond) -> Cancel | None:
        if head.path == "/never":
            return self.cancelled.set
        respond(Response(200, b"x" * (8 << 20)))
        return None

    def protocol_error(self, status: int, message: str, _allowed: str | None = None) -> Response:
        return Response(status, message.encode())


class Client:
    """A raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *pieces: bytes) -> None:
        self.writer.write(b"".join(pieces))

    async def until_closed(self) -> list[Frame]:
        return split(await asyncio.wait_for(self.reader.read(), PATIENCE))

    async def frame(self, kind: int) -> Frame:
        """Return the next frame of a type."""
        async with asyncio.timeout(PATIENCE):
            while True:
                head = await self.reader.readexactly(9)
                (frame,) = split(head + await self.reader.readexactly(int.from_bytes(head[:3], "big")))
                if frame.kind == kind and not (kind == frames.SETTINGS and frame.flags):
                    return frame


Connect = Callable[[], Awaitable[Client]]


@pytest.fixture
def application() -> Large:
    return Large()


@pytest.fixture
async def connections() -> Connections:
    return Connections(asyncio.get_running_loop(), lambda _count: None)


@pytest.fixture
async def connect(application: Large, connections: Connections) -> AsyncIterator[Connect]:
    loop = asyncio.get_running_loop()
    factory = connection_factory(application, SHORT, connections, loop)
    server = await loop.create_server(factory, "127.0.0.1", 0)
    writers = []

    async def open_connection() -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1]))
        writers.append(client.writer)
        return client

    yield open_connection
    for writer in writers:
        writer.close()
    await asyncio.wait_for(connections.empty.wait(), PATIENCE)
    server.close()


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(frames.PREFACE[:10], id="half a preface"),
        pytest.param(frames.PREFACE, id="no settings"),
        pytest.param(START + frames.frame(frames.HEADERS, 0, 1, block(GET)), id="half a header block"),
    ],
)
async def test_a_client_that_stops_before_a_request_is_let_go(connect: Connect, sent: bytes) -> None:
    client = await connect()
    client.send(sent)
    with suppress(ConnectionResetError):
        await client.until_closed()


async def test_an_idle_connection_is_ended_with_goaway(connect: Connect) -> None:
    client = await connect()
    client.send(START)
    last = (await client.until_closed())[-1]
    assert (last.kind, last.code) == (frames.GOAWAY, Http2Code.NO_ERROR)


async def test_a_body_that_stops_is_answered_with_408_and_the_connection_stays(connect: Connect) -> None:
    client = await connect()
    client.send(START, headers(1, NEVER), headers(3, POST, end=False), data(3, b"half"))
    answer = await client.frame(frames.HEADERS)
    assert answer.stream_id == 3
    assert b"\x08\x03408" in answer.payload
    reset = await client.frame(frames.RST_STREAM)
    assert (reset.stream_id, reset.code) == (3, Http2Code.NO_ERROR)
    client.send(frames.frame(frames.PING, 0, 0, b"are here"))
    assert (await client.frame(frames.PING)).payload == b"are here"


async def test_a_body_that_trickles_has_an_end_too(connect: Connect) -> None:
    client = await connect()
    client.send(START, headers(1, POST, end=False))
    answer = asyncio.ensure_future(client.frame(frames.HEADERS))
    for _ in range(200):
        if answer.done():
            break
        client.send(data(1, b"x"))
        await asyncio.sleep(0.05)
    assert b"\x08\x03408" in (await answer).payload


async def test_a_refused_body_that_is_not_stopped_is_reset(connect: Connect) -> None:
    client = await connect()
    length = (b"content-length", b"%d" % (1 << 30))
    client.send(START, headers(1, (*POST, length), end=False), data(1, bytes(10_000)))
    assert b"\x08\x03413" in (await client.frame(frames.HEADERS)).payload
    assert (await client.frame(frames.RST_STREAM)).code == Http2Code.NO_ERROR


async def test_a_client_that_does_not_widen_its_window_loses_the_stream(connect: Connect) -> None:
    client = await connect()
    client.send(START, headers(1), headers(3, NEVER))
    assert (await client.frame(frames.RST_STREAM)).code == Http2Code.CANCEL


async def test_a_client_that_does_not_read_is_cut_off(connect: Connect) -> None:
    client = await connect()
    wide = frames.settings_frame({frames.INITIAL_WINDOW_SIZE: 1 << 30}) + frames.window_update_frame(
        0, 1 << 30
    )
    client.send(START, wide, *(headers(number) for number in range(1, 40, 2)))
    client.writer.transport.pause_reading()
    async with asyncio.timeout(PATIENCE):
        while not client.writer.transport.is_closing():
            client.send(frames.frame(frames.PING, 0, 0, bytes(8)))
            await asyncio.sleep(0.05)


async def test_a_client_that_waits_for_its_answer_is_never_too_slow(
    connect: Connect, application: Large
) -> None:
    client = await connect()
    client.send(START, headers(1, NEVER))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2.5):
            await client.frame(frames.GOAWAY)
    assert not application.cancelled.is_set()
    client.writer.close()
    await asyncio.wait_for(application.cancelled.wait(), PATIENCE)


async def test_a_client_that_never_answers_the_farewell_is_let_go(
    connect: Connect, connections: Connections
) -> None:
    client = await connect()
    client.send(START, headers(1, NEVER))
    await client.frame(frames.SETTINGS)
    client.send(frames.frame(frames.PING, 0, 0, b"are here"))
    await client.frame(frames.PING)
    connections.drain()
    client.send(frames.reset_frame(1, 8))
    found = of_kind(await client.until_closed(), frames.GOAWAY)
    assert [int.from_bytes(frame.payload[:4], "big") for frame in found] == [0x7FFF_FFFF, 1]
