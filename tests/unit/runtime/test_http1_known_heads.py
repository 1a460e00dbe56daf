"""A head that is recognised by its bytes means what the parser says it means, however the bytes arrive."""

import asyncio
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp2026.runtime.protocol.connections import ConnectionLimits, Connections
from mcp2026.runtime.protocol.exchange import Cancel, RequestHead, Respond, Response
from mcp2026.runtime.protocol.http1 import Http1Connection
from mcp2026.runtime.protocol.http1_head import KnownHeads, plain_head

LIMITS = ConnectionLimits(max_body_bytes=128 * 1024, max_headers=8, max_pipelined=3)


class Echo:
    """Answers with what it was asked, at once or when `answer_waiting` is called; refuses `/refused`."""

    closing = False

    def __init__(self) -> None:
        self.waiting: list[tuple[Respond, Response]] = []

    def admit(self, head: RequestHead) -> Response | None:
        return Response(404, b"no") if head.path == "/refused" else None

    def begin(self, head: RequestHead, body: bytes, respond: Respond) -> Cancel | None:
        text = f"{head.method} {head.path} {sorted(head.headers.items())} {body!r}".encode()
        if head.path == "/later":
            self.waiting.append((respond, Response(200, text)))
        else:
            respond(Response(200, text, b"text/plain", ((b"x", b"y"),) if head.path == "/more" else ()))
        return None

    def protocol_error(self, status: int, message: str, _allowed: str | None = None) -> Response:
        return Response(status, message.encode())

    def answer_waiting(self) -> None:
        waiting, self.waiting = self.waiting, []
        for respond, response in waiting:
            respond(response)


class Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = self.reading_paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.written += b"<eof>"

    def pause_reading(self) -> None:
        self.reading_paused = True

    def resume_reading(self) -> None:
        self.reading_paused = False


class Forgetful(KnownHeads):
    """Knows no head, so that everything goes to the parser."""

    def note(self, head: bytes) -> None:
        pass


class Client:
    """A connection in this process."""

    def __init__(self, heads: KnownHeads, connections: Connections, loop: asyncio.AbstractEventLoop) -> None:
        self.application = Echo()
        self.wire = Wire()
        self.connection = Http1Connection(self.application, LIMITS, connections, heads, loop)
        self.connection.connection_made(self.wire)

    def send(self, pieces: list[bytes]) -> bytes:
        """Return all that comes back; what waits is answered whenever the server reads no further."""
        for piece in pieces:
            while self.wire.reading_paused and self.application.waiting:
                self.application.answer_waiting()
            if not self.wire.closed:
                self.connection.data_received(piece)
        while self.application.waiting:
            self.application.answer_waiting()
        return self.wire.written + (b"<closed>" if self.wire.closed else b"")


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def request(line: bytes, *headers: bytes, body: bytes = b"") -> bytes:
    return b"\r\n".join([line, *headers]) + b"\r\n\r\n" + body


HOST = b"Host: t"
PLAIN = [
    request(b"POST /a HTTP/1.1", HOST, b"Content-Length: 3", body=b"abc"),
    request(b"POST /later?x=1 HTTP/1.1", HOST, b"content-length:4", b"X: 1", b"x: 2", body=b"\r\n\r\n"),
    request(b"GET /more HTTP/1.1", HOST),
    request(b"HEAD http://t/a HTTP/1.1", HOST),
    request(b"POST /refused HTTP/1.1", HOST, b"Content-Length: 2", body=b"no"),
    request(b"PUT /later HTTP/1.1", HOST, b"Content-Length: 0"),
]
ODD = [
    request(b"POST /a HTTP/1.1", HOST, b"Transfer-Encoding: chunked", body=b"2\r\nab\r\n0\r\n\r\n"),
    request(b"POST /a HTTP/1.1", HOST, b"Expect: 100-continue", b"Content-Length: 1", body=b"x"),
    request(b"POST /a HTTP/1.1", HOST, b"Connection: close", b"Content-Length: 1", body=b"x"),
    request(b"POST /a HTTP/1.0", b"Content-Length: 1", body=b"x"),
    request(b"POST /a HTTP/1.0", b"Connection: keep-alive", b"Content-Length: 1", body=b"x"),
    request(b"GET /a HTTP/1.1", HOST, b"Connection: upgrade", b"Upgrade: h2c"),
    request(b"GET /a HTTP/1.1"),
    request(b"GET /a HTTP/1.1", HOST, b"hOST: u"),
    request(b"GET /a HTTP/1.1", HOST, HOST, b"Connection: upgrade", b"Upgrade: h2c"),
    request(b"GET /a HTTP/1.1", HOST, *[b"A: b"] * 8),
    request(b"POST /a HTTP/1.1", HOST, b"Content-Length: %d" % (256 * 1024)),
    request(b"POST /a HTTP/1.1", HOST, b"Content-Length: 1", b"Content-Length: 2", body=b"ab"),
    request(b"POST /a HTTP/1.1", HOST, b"Content-Length: +1", body=b"a"),
    request(b"CONNECT t:1 HTTP/1.1", HOST),
    b"\r\n\r\n" + request(b"GET /a HTTP/1.1", HOST),
    b"GET /a HTTP/1.1\nHost: t\n\n",
    b"\r\n",
    b"nonsense\r\n\r\n",
    request(b"GET /a HTTP/1.1", HOST, b"A: b\r\n c"),
    request(b"GET /\xff HTTP/1.1", b"Host:  t  ", b"A:"),
]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(PLAIN) | st.sampled_from(ODD), min_size=1, max_size=6),
    st.lists(st.integers(0, 400), max_size=8),
    st.booleans(),
)
def test_answers_are_the_same_with_and_without_a_memory(
    requests: list[bytes], cuts: list[int], whole: bool
) -> None:
    loop = asyncio.new_event_loop()
    try:
        connections = Connections(loop, lambda _count: None)
        heads = KnownHeads(LIMITS, Echo().admit)
        for data in PLAIN + ODD:
            for _ in range(2):
                heads.note(data[: data.find(b"\r\n\r\n") + 4])
        if whole:
            pieces = requests
        else:
            stream = b"".join(requests)
            edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
            pieces = [stream[start:end] for start, end in pairwise(edges)]
        assert Client(heads, connections, loop).send(pieces) == Client(
            Forgetful(LIMITS, Echo().admit), connections, loop
        ).send(pieces)
    finally:
        loop.close()


@pytest.mark.parametrize("data", PLAIN)
def test_what_most_clients_send_is_plain(data: bytes) -> None:
    head, _, body = data.partition(b"\r\n\r\n")
    known = plain_head(head + b"\r\n\r\n", LIMITS)
    assert known is not None
    assert known.body_bytes == len(body)


@pytest.mark.parametrize("data", ODD[:-1])
def test_what_has_to_be_negotiated_is_not_plain(data: bytes) -> None:
    assert plain_head(data[: data.find(b"\r\n\r\n") + 4], LIMITS) is None


def test_a_head_is_learnt_when_it_comes_again_and_used_from_then_on(loop: asyncio.AbstractEventLoop) -> None:
    heads = KnownHeads(LIMITS, Echo().admit)
    client = Client(heads, Connections(loop, lambda _count: None), loop)
    head = PLAIN[0][:-3]
    client.connection.data_received(PLAIN[0])
    assert heads.get(head) is None
    client.connection.data_received(PLAIN[0])
    assert heads.get(head) is not None
    client.connection._reader._parser = None  # not needed any more
    client.connection.data_received(PLAIN[0])
    assert client.wire.written.count(b"POST /a ") == 3


def test_the_memory_is_bounded() -> None:
    heads = KnownHeads(LIMITS, Echo().admit)
    for number in range(2_000):
        head = b"GET /%d HTTP/1.1\r\nHost: t\r\n\r\n" % number
        heads.note(head)
        heads.note(head)
    long = b"GET / HTTP/1.1\r\nHost: t\r\nA: " + b"a" * 4_000 + b"\r\n\r\n"
    heads.note(long)
    heads.note(long)
    assert heads.get(long) is None
    assert len(heads._known) <= 512
    assert len(heads._seen) <= 512
