"""Negotiation byte by byte: what the server sends first, and what follows from what a client says.

The application behind the sockets only shows what arrived; whether batches wait is tested with real models.
"""

import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import grpc
import h2.config
import h2.connection
import h2.events
import pytest
from hpack import Decoder

from mcp2026.api.batching_negotiation import BatchingOffer
from mcp2026.runtime.negotiation.terms import Carrier
from mcp2026.runtime.protocol.exchange import RequestHead, Response
from mcp2026.runtime.protocol.http2 import frames
from mcp2026.runtime.protocol.http2.errors import Http2Code
from mcp2026.runtime.protocol.listener import connection_factory
from tests.contract.runtime.transport_server import (
    PATIENCE,
    TEXT,
    Calls,
    Site,
    TransportServer,
    limits,
    negotiation,
)
from tests.unit.runtime.http2_client import Frame, headers

DYNAMIC, DELAY, SIZE = 0xF0B0, 0xF0B1, 0xF0B2
ASKED = (b"x-mcp-batch-capable", b"1")
ECHO = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/echo"), (b":authority", b"test"))
HELD = "active; max-delay-ms=20; min-size=4"


class StrictSite(Site):
    """Does not admit requests whose offer is refused."""

    def admit(self, head: RequestHead) -> Response | None:
        if head.refused_offer is not None:
            return Response(400, str(head.refused_offer).encode(), TEXT)
        return super().admit(head)


class Serving:
    """A server that offers 50 ms and 3 rows."""

    def __init__(self) -> None:
        self.negotiation = negotiation("/echo", "/later", "/t.S/Echo", "/t.S/Chat")
        self.calls = Calls()
        site = StrictSite()
        self.server = TransportServer(
            lambda connections, loop: connection_factory(
                site, limits(), connections, loop, self.calls, self.negotiation
            )
        )
        self.port = self.server.port


@pytest.fixture(scope="module")
def serving() -> Iterator[Serving]:
    running = Serving()
    yield running
    running.server.close()


class Client:
    """A client that says exactly which settings it sends."""

    def __init__(self, port: int, settings: dict[int, int] | bytes | None = None) -> None:
        payload = settings if isinstance(settings, bytes) else frames.settings_frame(settings or {})[9:]
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.received = b""
        self._decoder = Decoder()
        self.send(frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0, payload))

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def frame(self) -> Frame:
        """Return the next frame."""
        length = 9
        while True:
            if len(self.received) >= 9:
                word, flags, stream_id = frames.HEAD.unpack_from(self.received)
                length = 9 + (word >> 8)
                if len(self.received) >= length:
                    payload, self.received = self.received[9:length], self.received[length:]
                    return Frame(word & 0xFF, flags, stream_id, payload)
            piece = self.socket.recv(65_536)
            assert piece, "the server has closed"
            self.received += piece

    def until(self, wanted: Callable[[Frame], bool]) -> Frame:
        while not wanted(found := self.frame()):
            pass
        return found

    def settle(self) -> None:
        """Wait until the server has read all that was sent."""
        self.send(frames.frame(frames.PING, 0, 0, b"settled?"))
        self.until(lambda one: one.kind == frames.PING and one.flags == frames.ACK)

    def answer(self, stream_id: int, fields: Any = (*ECHO, ASKED)) -> list[dict[str, str]]:
        """Send a request and return its header blocks: interim ones, and the last."""
        self.send(headers(stream_id, fields))
        blocks = []
        while not blocks or blocks[-1][":status"].startswith("1"):
            found = self.until(lambda one: one.kind == frames.HEADERS and one.stream_id == stream_id)
            blocks.append({str(name): str(value) for name, value in self._decoder.decode(found.payload)})
            assert found.flags & frames.END_STREAM == 0 or blocks[-1][":status"] != "103"
        return blocks

    def end(self) -> Http2Code:
        """Return the code with which the server ends the connection."""
        return Http2Code(self.until(lambda one: one.kind == frames.GOAWAY).code)


def told(blocks: list[dict[str, str]]) -> list[tuple[str, str | None]]:
    return [(block[":status"], block.get("mcp-batching")) for block in blocks]


def test_the_first_frame_of_the_server_has_the_three_settings(serving: Serving) -> None:
    with socket.create_connection(("127.0.0.1", serving.port), PATIENCE) as client:
        client.sendall(frames.PREFACE)
        received = b""
        while len(received) < 9 or len(received) < 9 + int.from_bytes(received[:3], "big"):
            received += client.recv(65_536)
    length, kind, flags, stream_id = (
        int.from_bytes(received[:3], "big"),
        *struct.unpack(">BBI", received[3:9]),
    )
    assert (kind, flags, stream_id) == (4, 0, 0)
    payload = received[9 : 9 + length]
    pairs = [payload[position : position + 6] for position in range(0, length, 6)]
    assert b"\xf0\xb0\x00\x00\x00\x01" in pairs
    assert b"\xf0\xb1\x00\x00\x00\x32" in pairs
    assert b"\xf0\xb2\x00\x00\x00\x03" in pairs
    assert len({pair[:2] for pair in pairs}) == len(pairs)


@pytest.mark.parametrize(
    ("settings", "fields", "expected"),
    [
        pytest.param({DYNAMIC: 1, DELAY: 20, SIZE: 4}, (ASKED,), HELD, id="both have declared it"),
        pytest.param({DYNAMIC: 1}, (ASKED,), "active; max-delay-ms=50; min-size=3", id="values left out"),
        pytest.param({DYNAMIC: 1, DELAY: 20, SIZE: 4}, (), None, id="a request that does not ask"),
        pytest.param({DYNAMIC: 1}, ((ASKED[0], b"0"),), None, id="a request that says no"),
        pytest.param({}, (ASKED,), None, id="a client without settings"),
        pytest.param({DYNAMIC: 0, DELAY: 20, SIZE: 4}, (ASKED,), None, id="a client that says no"),
        pytest.param({DELAY: 20, SIZE: 4}, (ASKED,), None, id="a client that never says yes"),
        pytest.param(
            {}, ((ASKED[0], b"1; max-delay-ms=20; min-size=4"),), HELD, id="no settings, but parameters"
        ),
        pytest.param(
            b"".join(struct.pack(">HI", *pair) for pair in ((DYNAMIC, 0), (SIZE, 9), (SIZE, 4), (DELAY, 20)))
            + struct.pack(">HI", DYNAMIC, 1),
            (ASKED,),
            HELD,
            id="of repeated settings the last counts",
        ),
        pytest.param(
            {DYNAMIC: 1, 0xF0B3: 7, 0xFE03: 1}, (ASKED,), "active; max-delay-ms=50; min-size=3", id="others"
        ),
    ],
)
def test_what_follows_from_settings_and_request(
    serving: Serving, settings: dict[int, int] | bytes, fields: tuple[Any, ...], expected: str | None
) -> None:
    with Client(serving.port, settings) as client:
        found = told(client.answer(1, (*ECHO, *fields)))
        assert found == ([("200", None)] if expected is None else [("103", expected), ("200", expected)])


def test_one_side_silent_changes_nothing_else(serving: Serving) -> None:
    with Client(serving.port) as silent, Client(serving.port, {DYNAMIC: 1}) as other:
        (with_header,), (without,) = silent.answer(1), other.answer(1, ECHO)
        assert (
            with_header.keys()
            == without.keys()
            == {":status", "content-type", "x-method", "content-length", "date"}
        )


def test_only_requests_that_can_be_batched_are_confirmed(serving: Serving) -> None:
    other = tuple((name, b"/digest" if name == b":path" else value) for name, value in ECHO)
    with Client(serving.port, {DYNAMIC: 1}) as client:
        assert told(client.answer(1, (*other, ASKED))) == [("200", None)]
        assert told(client.answer(3, (*other, (ASKED[0], b"nonsense")))) == [("200", None)]


@pytest.mark.parametrize(("identifier", "value"), [(DYNAMIC, 2), (DELAY, 1 << 16), (SIZE, 0)])
def test_a_setting_out_of_range_is_not_mended_by_a_second_one(
    serving: Serving, identifier: int, value: int
) -> None:
    listed = ((DYNAMIC, 1), (identifier, value), (identifier, 1))
    with Client(serving.port, b"".join(struct.pack(">HI", *pair) for pair in listed)) as client:
        assert client.end() is Http2Code.PROTOCOL_ERROR


@pytest.mark.parametrize(("identifier", "value"), [(DYNAMIC, 2), (DELAY, 1 << 16), (SIZE, 0), (SIZE, 256)])
@pytest.mark.parametrize("later", [False, True])
def test_a_setting_out_of_range_ends_the_connection(
    serving: Serving, identifier: int, value: int, later: bool
) -> None:
    wrong = {DYNAMIC: 1, identifier: value}
    with Client(serving.port, {} if later else wrong) as client:
        if later:
            client.answer(1)
            client.send(frames.settings_frame(wrong))
        assert client.end() is Http2Code.PROTOCOL_ERROR


@pytest.mark.parametrize("value", [b"yes", b"1; min-size=0", b"1; max-delay-ms=70000", b"1; what=1"])
def test_a_malformed_offer_is_refused_and_the_connection_stays(serving: Serving, value: bytes) -> None:
    with Client(serving.port, {DYNAMIC: 1}) as client:
        assert told(client.answer(1, (*ECHO, (ASKED[0], value)))) == [("400", None)]
        assert len(client.answer(3)) == 2


def test_the_client_renegotiates(serving: Serving) -> None:
    with Client(serving.port, {DYNAMIC: 1, DELAY: 20, SIZE: 4}) as client:
        assert told(client.answer(1))[-1] == ("200", HELD)
        client.send(frames.settings_frame({DELAY: 5}))
        assert told(client.answer(3))[-1] == ("200", "active; max-delay-ms=5; min-size=4")
        client.send(frames.settings_frame({DYNAMIC: 0}))
        assert told(client.answer(5)) == [("200", None)]
        client.send(frames.settings_frame({DYNAMIC: 1, SIZE: 7}))
        assert told(client.answer(7))[-1] == ("200", "active; max-delay-ms=5; min-size=7")


def test_a_request_that_has_begun_keeps_what_held_for_it(serving: Serving) -> None:
    with Client(serving.port, {DYNAMIC: 1, DELAY: 20, SIZE: 4}) as client:
        client.send(headers(1, (*ECHO, ASKED), end=False))
        client.settle()
        client.send(frames.settings_frame({DYNAMIC: 0}) + frames.frame(frames.DATA, 1, 1, b"x"))
        last = client.until(lambda one: one.kind == frames.HEADERS)
        assert HELD in dict(Decoder().decode(last.payload)).values()


def test_the_server_renegotiates_with_those_who_negotiate() -> None:
    running = Serving()
    try:
        with Client(running.port, {DYNAMIC: 1, SIZE: 4}) as client, Client(running.port) as silent:
            assert told(client.answer(1))[-1] == ("200", "active; max-delay-ms=50; min-size=4")
            silent.answer(1)
            running.server.call(lambda: running.negotiation.change(BatchingOffer(10, 6)))
            sent = client.until(lambda one: one.kind == frames.SETTINGS and not one.flags)
            assert frames.read_settings(sent.payload) == {DYNAMIC: 1, DELAY: 10, SIZE: 6}
            assert told(client.answer(3))[-1] == ("200", "active; max-delay-ms=10; min-size=6")
            running.server.call(lambda: running.negotiation.change(None))
            sent = client.until(lambda one: one.kind == frames.SETTINGS and not one.flags)
            assert frames.read_settings(sent.payload) == {DYNAMIC: 0}
            assert told(client.answer(5)) == [("200", None)]
            silent.send(frames.frame(frames.PING, 0, 0, bytes(8)))
            while (found := silent.frame()).kind != frames.PING:
                assert found.kind != frames.SETTINGS
    finally:
        running.server.close()


def test_sessions_are_those_of_open_connections(serving: Serving) -> None:
    with Client(serving.port, {DYNAMIC: 1, DELAY: 20, SIZE: 4}) as client:
        client.answer(1)
        client.answer(3)
        (session,) = serving.server.call(lambda: list(serving.negotiation.sessions.latest(1)))
        assert (session.carrier, session.requests, tuple(session.negotiated)) == (
            Carrier.SETTINGS,
            2,
            (20, 4),
        )
        number = session.id
    while any(one.id == number for one in serving.server.call(lambda: list(serving.negotiation.sessions))):
        pass


# --- HTTP/1.1


def http1(
    port: int, *lines: bytes, version: bytes = b"1.1", path: bytes = b"/echo", more: bytes = b""
) -> bytes:
    """Send a request with an empty body and return all that comes until the server closes."""
    request = b"\r\n".join([b"POST %b HTTP/%b" % (path, version), b"host: a", b"content-length: 0", *lines])
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
        client.sendall(request + b"\r\nconnection: close\r\n\r\n" + more)
        received = b""
        while piece := client.recv(65_536):
            received += piece
        return received


CAPABLE = b"x-mcp-batch-capable: 1; max-delay-ms=20; min-size=4"
HEADER = b"\r\nmcp-batching: active; max-delay-ms=20; min-size=4\r\n"
HINT = b"HTTP/1.1 103 Early Hints" + HEADER + b"\r\n"


def test_http1_is_negotiated_by_header(serving: Serving) -> None:
    told = http1(serving.port, CAPABLE)
    assert told.startswith(b"HTTP/1.1 200 ")
    assert told.count(b"mcp-batching") == told.count(HEADER) == 1
    assert b"mcp-batching: active; max-delay-ms=50; min-size=3" in http1(
        serving.port, b"X-MCP-Batch-Capable: 1"
    )
    assert b"mcp-batching" not in http1(serving.port)
    assert b"mcp-batching" not in http1(serving.port, b"x-mcp-batch-capable: 0")
    assert b"mcp-batching" not in http1(serving.port, CAPABLE, path=b"/digest")


def test_http1_has_a_103_only_if_it_was_asked_for(serving: Serving) -> None:
    told = http1(serving.port, CAPABLE + b"; early-hints=1")
    assert told.startswith(HINT + b"HTTP/1.1 200 ")
    assert told.count(HEADER) == 2
    assert b"103" not in http1(serving.port, CAPABLE + b"; early-hints=0").split(b"\r\n")[0]


def test_http10_never_has_a_103(serving: Serving) -> None:
    told = http1(serving.port, CAPABLE + b"; early-hints=1", version=b"1.0")
    assert told.startswith(b"HTTP/1.1 200 ")
    assert told.count(HEADER) == 1


@pytest.mark.parametrize("value", [b"yes", b"1; min-size=0", b"1; early-hints=2", b""])
def test_a_malformed_offer_of_http1_is_refused(serving: Serving, value: bytes) -> None:
    told = http1(serving.port, b"x-mcp-batch-capable: " + value)
    assert told.startswith(b"HTTP/1.1 400 ")
    assert b"x-mcp-batch-capable" in told
    assert b"mcp-batching" not in told


def test_a_connection_that_is_kept_says_it_each_time(serving: Serving) -> None:
    """From the third time on the head is known by its bytes."""
    request = (
        b"POST /echo HTTP/1.1\r\nhost: a\r\n" + CAPABLE + b"; early-hints=1\r\ncontent-length: 1\r\n\r\nx"
    )
    with socket.create_connection(("127.0.0.1", serving.port), PATIENCE) as client:
        for _ in range(5):
            client.sendall(request)
            received = b""
            while not received.endswith(b"\r\n\r\nx"):
                received += client.recv(65_536)
            assert received.startswith(HINT + b"HTTP/1.1 200 ")
            assert received.count(HEADER) == 2


def test_interim_and_final_responses_keep_the_order_of_the_requests(serving: Serving) -> None:
    asked = CAPABLE + b"; early-hints=1\r\n"
    piece = b"POST %b HTTP/1.1\r\nhost: a\r\n" + asked + b"content-length: 1\r\n"
    with socket.create_connection(("127.0.0.1", serving.port), PATIENCE) as client:
        client.sendall(piece % b"/later" + b"\r\na" + piece % b"/echo" + b"connection: close\r\n\r\nb")
        received = b""
        while data := client.recv(65_536):
            received += data
    assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"103", b"200", b"103", b"200"]
    assert received.index(b"\r\n\r\na") < received.rindex(HINT)


# --- real clients


def test_an_unpatched_h2_client_works(serving: Serving) -> None:
    """It sends no settings of ours, receives 103 where its header offers something, and works as ever."""
    for value, expected in ((None, []), (b"1", []), (b"1; max-delay-ms=20; min-size=4", [b"103"])):
        with socket.create_connection(("127.0.0.1", serving.port), PATIENCE) as client:
            connection = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=None))
            connection.initiate_connection()
            fields = [*ECHO] if value is None else [*ECHO, (ASKED[0], value)]
            connection.send_headers(1, fields, end_stream=False)
            connection.send_data(1, b"hello", end_stream=True)
            client.sendall(connection.data_to_send())
            interim, final, body = [], {}, b""
            ended = False
            while not ended:
                for event in connection.receive_data(client.recv(65_536)):
                    if isinstance(event, h2.events.InformationalResponseReceived):
                        interim.append(dict(event.headers)[b":status"])
                    elif isinstance(event, h2.events.ResponseReceived):
                        final = dict(event.headers)
                    elif isinstance(event, h2.events.DataReceived):
                        body += event.data
                    ended = ended or isinstance(event, h2.events.StreamEnded)
                client.sendall(connection.data_to_send())
            assert (interim, final[b":status"], body) == (expected, b"200", b"hello")
            assert (b"mcp-batching" in final) == bool(expected)
            assert connection.remote_settings[DYNAMIC] == 1


def initial(serving: Serving, *metadata: tuple[str, str]) -> dict[str, str]:
    with grpc.insecure_channel(f"127.0.0.1:{serving.port}") as channel:
        answer, call = channel.unary_unary("/t.S/Echo").with_call(
            b"hello", metadata=metadata, timeout=PATIENCE
        )
        assert answer == b"hello"
        return {str(name): str(value) for name, value in call.initial_metadata()}


def test_grpc_is_negotiated_by_metadata(serving: Serving) -> None:
    offered = ("x-mcp-batch-capable", "1; max-delay-ms=20; min-size=4")
    assert initial(serving, offered)["mcp-batching"] == HELD
    assert serving.calls.heads[-1].batching is not None
    assert (
        initial(serving, ("x-mcp-batch-capable", "1"))["mcp-batching"]
        == "active; max-delay-ms=50; min-size=3"
    )
    assert "mcp-batching" not in initial(serving)
    assert serving.calls.heads[-1].batching is None
    with pytest.raises(grpc.RpcError) as caught:
        initial(serving, ("x-mcp-batch-capable", "1; min-size=300"))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "x-mcp-batch-capable.min-size" in caught.value.details()


def test_a_grpc_stream_is_negotiated_by_metadata(serving: Serving) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{serving.port}") as channel:
        call = channel.stream_stream("/t.S/Chat")(
            iter([b"a", b"b"]), metadata=[("x-mcp-batch-capable", "1")], timeout=PATIENCE
        )
        assert list(call) == [b"a", b"b"]
        assert "mcp-batching" in dict(call.initial_metadata())


class Proxy:
    """Passes frames on, but of SETTINGS only what RFC 9113 names, as proxies that end connections do."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.stripped = 0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with self._listener, suppress(OSError):
            client, _ = self._listener.accept()
            server = socket.create_connection(("127.0.0.1", self._to), PATIENCE)
            preface = b""
            while len(preface) < len(frames.PREFACE):
                preface += client.recv(len(frames.PREFACE) - len(preface))
            server.sendall(preface)
            back = threading.Thread(target=self._pass, args=(server, client), daemon=True)
            back.start()
            self._pass(client, server)

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        pending = b""
        with suppress(OSError):
            while piece := source.recv(65_536):
                pending += piece
                while len(pending) >= 9 and len(pending) >= 9 + int.from_bytes(pending[:3], "big"):
                    end = 9 + int.from_bytes(pending[:3], "big")
                    one, pending = pending[:end], pending[end:]
                    target.sendall(self._without_unknown(one) if one[3] == frames.SETTINGS else one)
            target.shutdown(socket.SHUT_WR)

    def _without_unknown(self, one: bytes) -> bytes:
        settings = frames.read_settings(one[9:])
        known = {identifier: value for identifier, value in settings.items() if identifier < 16}
        self.stripped += len(settings) - len(known)
        return frames.frame(frames.SETTINGS, one[4], 0, frames.settings_frame(known)[9:])


def test_a_proxy_that_eats_the_settings_leaves_a_working_connection(serving: Serving) -> None:
    proxy = Proxy(serving.port)
    with Client(proxy.port, {DYNAMIC: 1, DELAY: 20, SIZE: 4}) as client:
        first = client.until(lambda one: one.kind == frames.SETTINGS)
        assert DYNAMIC not in frames.read_settings(first.payload)
        assert told(client.answer(1)) == [("200", None)]
        offered = (ASKED[0], b"1; max-delay-ms=20; min-size=4")
        assert told(client.answer(3, (*ECHO, offered))) == [("103", HELD), ("200", HELD)]
    assert proxy.stripped == 6


def test_a_server_that_does_not_negotiate_sends_and_reads_none_of_it() -> None:
    site = StrictSite()
    server = TransportServer(lambda connections, loop: connection_factory(site, limits(), connections, loop))
    try:
        with Client(server.port, {DYNAMIC: 2, DELAY: 1 << 20}) as client:
            first = client.until(lambda one: one.kind == frames.SETTINGS)
            assert not frames.read_settings(first.payload).keys() & {DYNAMIC, DELAY, SIZE}
            assert told(client.answer(1, (*ECHO, (ASKED[0], b"nonsense")))) == [("200", None)]
        assert http1(server.port, b"x-mcp-batch-capable: nonsense").startswith(b"HTTP/1.1 200 ")
    finally:
        server.close()
