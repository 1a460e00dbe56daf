"""gRPC as the real client speaks it: calls of all kinds, how they end, metadata, compression, sizes."""

import base64
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import grpc
import pytest

from mcp2026.runtime.health import Health, Phase
from mcp2026.runtime.protocol.grpc.health import SERVICE, HealthService
from mcp2026.runtime.protocol.grpc.router import GrpcRouter
from mcp2026.runtime.protocol.listener import connection_factory, grpc_connection_factory
from tests.contract.runtime.transport_server import PATIENCE, Calls, Site, TransportServer, limits

NO_LIMIT = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
Code = grpc.StatusCode


class World:
    """A server, its service and its health, and channels to it."""

    def __init__(self, unix: Path | None = None, **changes: Any) -> None:
        self.calls = Calls()
        self.health = Health()
        router = GrpcRouter({"t.S": self.calls, SERVICE: HealthService(self.health, ["t.S"])})
        self.server = TransportServer(
            lambda connections, loop: grpc_connection_factory(router, limits(**changes), connections, loop),
            unix,
        )
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.server.port}", options=NO_LIMIT)

    def unary(self, name: str, **options: Any) -> Callable[..., Any]:
        return self.channel.unary_unary(f"/t.S/{name}", **options)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, "it never happened"
            time.sleep(0.01)

    def close(self) -> None:
        self.channel.close()
        self.server.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("socket") / "grpc")
    yield made
    made.close()


def failure(call: Callable[[], Any]) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value


def test_a_unary_call(world: World) -> None:
    assert world.unary("Echo")(b"hello") == b"hello"
    assert world.unary("Echo")(b"") == b""


def test_a_status_other_than_ok_with_its_detail_and_trailers(world: World) -> None:
    error = failure(lambda: world.unary("Fail")("größer als 100 %\n".encode()))
    assert (error.code(), error.details()) == (Code.FAILED_PRECONDITION, "größer als 100 %\n")
    assert ("why", "so") in [tuple(one) for one in error.trailing_metadata()]


@pytest.mark.parametrize("path", ["/t.S/Other", "/t.Other/Echo", "/t.S", "/"])
def test_an_unknown_method(world: World, path: str) -> None:
    error = failure(lambda: world.channel.unary_unary(path)(b""))
    assert error.code() is Code.UNIMPLEMENTED


def test_metadata_in_both_directions(world: World) -> None:
    sent = (("plain", "a b"), ("raw-bin", b"\0\xff\x80"), ("back-bin", b"1"))
    _, call = world.unary("Echo").with_call(b"", metadata=sent, timeout=30)
    head = world.calls.heads[-1]
    assert head.path == "/t.S/Echo"
    assert head.metadata[b"plain"] == b"a b"
    assert base64.b64decode(head.metadata[b"raw-bin"] + b"==") == b"\0\xff\x80"
    assert head.timeout_ns is not None
    assert 25e9 < head.timeout_ns < 31e9  # the client rounds up
    assert ("back-bin", b"\0\xff") in [tuple(one) for one in call.trailing_metadata()]


def test_a_deadline_that_passes_cancels_the_call(world: World) -> None:
    before = world.calls.cancelled
    error = failure(lambda: world.unary("Never")(b"", timeout=0.2))
    assert error.code() is Code.DEADLINE_EXCEEDED
    world.wait_until(lambda: world.calls.cancelled == before + 1)


def test_a_caller_that_cancels(world: World) -> None:
    before, heads = world.calls.cancelled, len(world.calls.heads)
    call = world.unary("Never").future(b"")
    world.wait_until(lambda: len(world.calls.heads) > heads)
    call.cancel()
    world.wait_until(lambda: world.calls.cancelled == before + 1)


def test_a_caller_whose_connection_is_lost(world: World) -> None:
    before, heads = world.calls.cancelled, len(world.calls.heads)
    channel = grpc.insecure_channel(
        f"127.0.0.1:{world.server.port}", options=[("grpc.use_local_subchannel_pool", 1)]
    )
    call = channel.unary_unary("/t.S/Never").future(b"")
    world.wait_until(lambda: len(world.calls.heads) > heads)
    channel.close()
    world.wait_until(lambda: world.calls.cancelled == before + 1)
    assert call.code() is Code.CANCELLED


def test_a_stream_of_messages_both_ways(world: World) -> None:
    answers = world.channel.stream_stream("/t.S/Chat")(iter([b"%d" % n for n in range(1_000)]))
    assert list(answers) == [b"%d" % n for n in range(1_000)]


def test_answers_come_before_the_caller_is_done(world: World) -> None:
    more: list[threading.Event] = [threading.Event() for _ in range(3)]

    def messages() -> Iterator[bytes]:
        for number, event in enumerate(more):
            assert event.wait(PATIENCE)
            yield b"%d" % number

    answers = world.channel.stream_stream("/t.S/Chat")(messages())
    for number, event in enumerate(more):
        event.set()
        assert next(answers) == b"%d" % number
    assert list(answers) == []


def test_a_stream_that_the_service_ends(world: World) -> None:
    never = threading.Event()

    def messages() -> Iterator[bytes]:
        yield b"a"
        yield b"end"
        never.wait(PATIENCE)

    answers = world.channel.stream_stream("/t.S/Chat")(messages())
    assert next(answers) == b"a"
    error = failure(lambda: next(answers))
    never.set()
    assert (error.code(), error.details()) == (Code.ABORTED, "as you wish")


def test_a_stream_that_the_caller_leaves(world: World) -> None:
    before = world.calls.cancelled
    never = threading.Event()

    def messages() -> Iterator[bytes]:
        yield b"a"
        never.wait(PATIENCE)

    answers = world.channel.stream_stream("/t.S/Chat")(messages())
    assert next(answers) == b"a"
    answers.cancel()
    world.wait_until(lambda: world.calls.cancelled == before + 1)
    never.set()


def test_a_stream_whose_deadline_passes(world: World) -> None:
    before = world.calls.cancelled
    never = threading.Event()

    def messages() -> Iterator[bytes]:
        yield b"a"
        never.wait(PATIENCE)

    answers = world.channel.stream_stream("/t.S/Chat")(messages(), timeout=0.3)
    assert next(answers) == b"a"
    assert failure(lambda: next(answers)).code() is Code.DEADLINE_EXCEEDED
    world.wait_until(lambda: world.calls.cancelled == before + 1)
    never.set()


def test_a_stream_of_answers_larger_than_all_windows(world: World) -> None:
    answers = list(world.channel.unary_stream("/t.S/Count")(b"20000"))
    assert answers == [b"%1000d" % number for number in range(20_000)]


@pytest.mark.parametrize("method", ["Echo", "Chat"])
def test_a_message_of_16_mib(world: World, method: str) -> None:
    message = os.urandom(1 << 20) * 16
    if method == "Echo":
        assert world.unary("Echo")(message) == message
    else:
        assert list(world.channel.stream_stream("/t.S/Chat")(iter([message, b"x", message]))) == [
            message,
            b"x",
            message,
        ]


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
@pytest.mark.parametrize("size", [10, 5_000, 2_000_000])
def test_compressed_messages(world: World, compression: grpc.Compression, size: int) -> None:
    message = bytes(size)
    assert world.unary("Echo")(message, compression=compression) == message
    chat = world.channel.stream_stream("/t.S/Chat")(iter([message, message]), compression=compression)
    assert list(chat) == [message, message]


def test_a_thousand_calls_at_a_time(world: World) -> None:
    calls = [world.unary("Echo").future(b"%d" % number) for number in range(1_000)]
    assert [call.result(PATIENCE) for call in calls] == [b"%d" % number for number in range(1_000)]


def test_a_message_that_is_too_large() -> None:
    small = World(max_body_bytes=100_000)
    try:
        assert small.unary("Echo")(bytes(100_000)) == bytes(100_000)
        for compression in (None, grpc.Compression.Gzip):
            error = failure(lambda how=compression: small.unary("Echo")(bytes(5 << 20), compression=how))
            assert error.code() is Code.RESOURCE_EXHAUSTED
            assert "100000" in error.details()
        stream = small.channel.stream_stream("/t.S/Chat")(iter([bytes(5 << 20)]))
        assert failure(lambda: next(stream)).code() is Code.RESOURCE_EXHAUSTED
        assert small.unary("Echo")(b"and on it goes") == b"and on it goes"
    finally:
        small.close()


def test_over_a_unix_socket(world: World) -> None:
    assert world.server._unix is not None
    with grpc.insecure_channel(f"unix:{world.server._unix}") as channel:
        assert channel.unary_unary("/t.S/Echo")(b"hello") == b"hello"


def test_on_one_port_with_http() -> None:
    calls = Calls()
    site = Site()
    server = TransportServer(
        lambda connections, loop: connection_factory(site, limits(), connections, loop, calls)
    )
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        assert channel.unary_unary("/t.S/Echo")(b"hello") == b"hello"
    server.close()


def test_a_server_that_leaves_answers_what_it_took_in_and_sends_the_others_elsewhere() -> None:
    world = World()
    try:
        started = threading.Event()

        def messages() -> Iterator[bytes]:
            yield b"a"
            started.wait(PATIENCE)
            yield b"b"

        answers = world.channel.stream_stream("/t.S/Chat")(messages())
        assert next(answers) == b"a"
        world.server.call(world.server.connections.drain)
        # The channel opens a new connection for this one; the stream goes on over the old one.
        assert world.unary("Echo")(b"new", wait_for_ready=True, timeout=PATIENCE) == b"new"
        started.set()
        assert list(answers) == [b"b"]
    finally:
        world.close()


def test_lame_ducks_serve_every_call() -> None:
    world = World()
    world.calls.closing = True
    try:
        for number in range(20):
            assert world.unary("Echo")(b"%d" % number, timeout=PATIENCE) == b"%d" % number
    finally:
        world.close()


def health_request(name: str) -> bytes:
    return b"\x0a" + bytes([len(name)]) + name.encode()


def test_health_check() -> None:
    world = World()
    check = world.channel.unary_unary(f"/{SERVICE}/Check")
    try:
        assert check(b"") == b"\x08\x02"
        world.server.call(lambda: world.health.advance(Phase.SERVING))
        assert check(b"") == check(health_request("t.S")) == b"\x08\x01"
        assert failure(lambda: check(health_request("t.X"))).code() is Code.NOT_FOUND
        assert failure(lambda: check(b"\x0a\x05a")).code() is Code.INVALID_ARGUMENT
    finally:
        world.close()


def test_health_watch() -> None:
    world = World()
    try:
        watch = world.channel.unary_stream(f"/{SERVICE}/Watch")
        unknown = watch(health_request("t.X"))
        assert next(unknown) == b"\x08\x03"
        unknown.cancel()
        told = watch(health_request("t.S"))
        assert next(told) == b"\x08\x02"
        world.server.call(lambda: world.health.advance(Phase.SERVING))
        assert next(told) == b"\x08\x01"
        world.server.call(lambda: world.health.advance(Phase.LAME_DUCK))
        assert next(told) == b"\x08\x02"
        world.server.call(lambda: world.health.advance(Phase.DRAINING))
        assert failure(lambda: next(told)).code() is Code.UNAVAILABLE
    finally:
        world.close()


def test_connections_end_when_the_server_does() -> None:
    world = World()
    states: Future[None] = Future()

    def watch(state: grpc.ChannelConnectivity) -> None:
        if state is grpc.ChannelConnectivity.IDLE and not states.done() and world.calls.heads:
            states.set_result(None)

    world.channel.subscribe(watch)
    assert world.unary("Echo")(b"x") == b"x"
    world.server.close()
    states.result(PATIENCE)
    world.channel.close()
