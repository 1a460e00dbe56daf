"""Servers that die, come back, are slow, or talk nonsense: calls end in time, and nothing is left behind."""

import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mcp2026.client import (
    ClientError,
    ConnectionFailedError,
    DeadlineExceededError,
    OverloadedError,
    ProtocolError,
    RetryPolicy,
)
from tests.contract.client.both_clients import PATIENCE, PROTOCOLS, Connect, connected, nothing_left
from tests.contract.client.conftest import Echoes
from tests.contract.client.raw_peer import OK, RawPeer, read_request, wait_for_end
from tests.contract.runtime.open_inference_server import echo_model, serve
from tests.contract.runtime.server_process import Server
from tests.loopback import free_port

ROW = np.float32([[1, 2, 3]])
NO_RETRIES = RetryPolicy(attempts=1)
SOON = RetryPolicy(first_pause=0.01)


@pytest.fixture(autouse=True)
def _leaves_nothing() -> Iterator[None]:
    with nothing_left():
        yield


@pytest.fixture
def peer() -> Iterator[Callable[..., RawPeer]]:
    peers: list[RawPeer] = []

    def start(handle: Callable[[socket.socket, int], None]) -> RawPeer:
        peers.append(RawPeer(handle))
        return peers[-1]

    yield start
    for one in peers:
        one.close()


def reset(connection: socket.socket) -> None:
    """Close with RST."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def ask(client: Any, **named: Any) -> list[float]:
    result: list[float] = client.infer({"x": ROW}, **{"model": "m", **named})["y"].ravel().tolist()
    return result


def freeze(server: Server, number: signal.Signals) -> None:
    for pid in (server.process.pid, *server.workers()):
        os.kill(pid, number)


def test_clients_outlive_their_server(tmp_path: Path) -> None:
    """It drains and comes back, and is killed with requests inside and comes back."""
    echo_model(tmp_path, "m", "FP32", None, 3)
    paths = ("--unix-socket", f"{tmp_path}/http", "--grpc-unix-socket", f"{tmp_path}/grpc")
    urls = [f"unix://{tmp_path}/http", f"h2+unix://{tmp_path}/http", f"grpc+unix://{tmp_path}/grpc"]
    with (
        connected("blocking") as blocking,
        connected("asyncio") as asynchronous,
        ThreadPoolExecutor(6) as threads,
    ):
        clients = [connect(url, retry=SOON) for url in urls for connect in (blocking, asynchronous)]
        server = serve(tmp_path, ["m"], *paths)
        try:
            assert [ask(client) for client in clients] == [[1, 2, 3]] * 6
            assert server.stop() == 0
            server = serve(tmp_path, ["m"], *paths)
            assert [ask(client) for client in clients] == [[1, 2, 3]] * 6
            freeze(server, signal.SIGSTOP)
            asked = [threads.submit(ask, client) for client in clients]
            time.sleep(0.1)  # however far they come: none may be answered, and none may hang
            freeze(server, signal.SIGKILL)
            failures = [one.exception(PATIENCE) for one in asked]
            assert [type(failure) for failure in failures] == [ConnectionFailedError] * 6, failures
            assert not any(client.ready(timeout=5) for client in clients)
            server.wait()
            server = serve(tmp_path, ["m"], *paths)
            assert [ask(client) for client in clients] == [[1, 2, 3]] * 6
        finally:
            server.close()


def test_a_server_that_does_not_answer_meets_the_deadline(
    echoes: Echoes, protocol: str, connect: Connect
) -> None:
    client = connect(echoes.url(protocol), retry=SOON)
    ask(client, model="echo_fp32")
    freeze(echoes.server, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        with pytest.raises(DeadlineExceededError, match=r"no answer within 0\.3 s"):
            ask(client, model="echo_fp32", timeout=0.3)
        assert not client.ready(timeout=0.3)
        assert time.monotonic() - begun < PATIENCE / 2
    finally:
        freeze(echoes.server, signal.SIGCONT)
    assert ask(client, model="echo_fp32") == [1, 2, 3]


@pytest.mark.parametrize("scheme", PROTOCOLS)
def test_nobody_listens(scheme: str, connect: Connect) -> None:
    client = connect(f"{scheme}://127.0.0.1:{free_port()}", retry=SOON)
    with pytest.raises(ConnectionFailedError, match="connect"):
        ask(client)
    assert not client.ready()


@pytest.mark.parametrize(
    ("scheme", "kind"), [("http", ProtocolError), ("h2", ProtocolError), ("grpc", ClientError)]
)
def test_garbage_is_a_protocol_error(
    scheme: str, kind: type[ClientError], peer: Callable[..., RawPeer], connect: Connect
) -> None:
    def talk(connection: socket.socket, _number: int) -> None:
        connection.recv(65_536)
        connection.sendall(b"220 mail.example.com ESMTP\r\n\r\n" * 10)
        wait_for_end(connection)

    client = connect(peer(talk).url(scheme), retry=SOON)
    with pytest.raises(kind):
        ask(client, timeout=10)


def test_an_answer_byte_by_byte(peer: Callable[..., RawPeer], connect: Connect) -> None:
    def drip(connection: socket.socket, _number: int) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while read_request(connection):
            for place in range(len(OK)):
                connection.sendall(OK[place : place + 1])

    client = connect(peer(drip).url())
    assert [ask(client), ask(client)] == [[7], [7]]


def test_an_answer_that_drips_for_ever_meets_the_deadline(
    peer: Callable[..., RawPeer], connect: Connect
) -> None:
    def drip(connection: socket.socket, _number: int) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            connection.sendall(b"1\r\nx\r\n")
            time.sleep(0.01)

    client = connect(peer(drip).url())
    with pytest.raises(DeadlineExceededError):
        ask(client, timeout=0.3)


@pytest.mark.parametrize("scheme", ["http", "h2"])
def test_a_server_that_never_reads_meets_the_deadline(
    scheme: str, peer: Callable[..., RawPeer], connect: Connect
) -> None:
    def stare(connection: socket.socket, _number: int) -> None:
        connection.sendall(bytes.fromhex("000006 04 00 00000000 0004 7FFFFFFF"))
        connection.sendall(bytes.fromhex("000004 08 00 00000000 7F000000"))
        time.sleep(1.5)

    client = connect(peer(stare).url(scheme))
    with pytest.raises(DeadlineExceededError):
        client.infer({"x": np.zeros(20_000_000, np.float32)}, model="m", timeout=0.5)


@pytest.mark.parametrize("end", [socket.socket.close, reset], ids=["closed", "reset"])
def test_a_connection_that_breaks_before_the_answer_is_tried_again(
    end: Callable[[socket.socket], None], peer: Callable[..., RawPeer], connect: Connect
) -> None:
    def answer_the_second(connection: socket.socket, number: int) -> None:
        read_request(connection)
        if number == 0:
            end(connection)
        else:
            connection.sendall(OK)
            wait_for_end(connection)

    server = peer(answer_the_second)
    assert ask(connect(server.url(), retry=SOON)) == [7]
    assert server.accepted == 2


def test_a_connection_that_breaks_in_the_answer_is_not(
    peer: Callable[..., RawPeer], connect: Connect
) -> None:
    def answer_half(connection: socket.socket, _number: int) -> None:
        read_request(connection)
        connection.sendall(OK[:-5])

    server = peer(answer_half)
    with pytest.raises(ConnectionFailedError):
        ask(connect(server.url(), retry=SOON))
    assert server.accepted == 1


def test_without_retries_there_is_one_attempt(peer: Callable[..., RawPeer], connect: Connect) -> None:
    server = peer(lambda connection, _number: reset(connection))
    with pytest.raises(ConnectionFailedError):
        ask(connect(server.url(), retry=NO_RETRIES))
    assert server.accepted == 1


def test_a_connection_that_the_server_closed_while_idle_costs_nothing(
    peer: Callable[..., RawPeer], connect: Connect
) -> None:
    def answer_once(connection: socket.socket, _number: int) -> None:
        read_request(connection)
        connection.sendall(OK)

    server = peer(answer_once)
    client = connect(server.url(), retry=NO_RETRIES)
    for number in range(3):
        assert ask(client) == [7]
        assert server.accepted == number + 1
        time.sleep(0.05)  # for the end of the connection to arrive


def overloaded(after: bytes, times: int) -> Callable[[socket.socket, int], None]:
    body = b'{"error":"too many"}'
    refusal = b"HTTP/1.1 503 Service Unavailable\r\n%bContent-Length: %d\r\n\r\n%b" % (after, len(body), body)
    left = [times]

    def answer(connection: socket.socket, _number: int) -> None:
        while read_request(connection):
            connection.sendall(refusal if left[0] > 0 else OK)
            left[0] -= 1

    return answer


def test_a_server_that_says_when_to_come_back_is_asked_again(
    peer: Callable[..., RawPeer], connect: Connect
) -> None:
    server = peer(overloaded(b"Retry-After: 0\r\n", 2))
    assert ask(connect(server.url(), retry=SOON)) == [7]
    assert server.accepted == 1


@pytest.mark.parametrize(("after", "seconds"), [(b"", None), (b"Retry-After: 60\r\n", 60.0)])
def test_otherwise_the_caller_is_told(
    after: bytes, seconds: float | None, peer: Callable[..., RawPeer], connect: Connect
) -> None:
    client = connect(peer(overloaded(after, 9)).url(), timeout=5)
    with pytest.raises(OverloadedError, match="too many") as refused:
        ask(client)
    assert refused.value.retry_after == seconds


def test_the_pool_is_bounded_and_waiting_for_it_meets_the_deadline(peer: Callable[..., RawPeer]) -> None:
    both = threading.Semaphore(0)

    def never(connection: socket.socket, _number: int) -> None:
        both.release()
        wait_for_end(connection)

    server = peer(never)
    with connected("blocking") as connect, ThreadPoolExecutor(2) as threads:
        client = connect(server.url(), max_connections=2, retry=NO_RETRIES)
        asked = [threads.submit(ask, client, timeout=PATIENCE) for _ in range(2)]
        assert all(both.acquire(timeout=PATIENCE) for _ in asked)
        with pytest.raises(DeadlineExceededError):
            ask(client, timeout=0.2)
        assert server.accepted == 2
        server.close()
        assert all(isinstance(one.exception(PATIENCE), ConnectionFailedError) for one in asked)
