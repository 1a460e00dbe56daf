"""A gRPC server may take its time to say its first word: what bounds a call is its timeout."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent import futures

import grpc
import pytest

from mcp2026.client import AsyncClient, Client, DeadlineExceededError, RetryPolicy

ONCE = RetryPolicy(attempts=1)
SERVICE = "inference.GRPCInferenceService"
SLOWNESS = 0.4
"""Seconds; four times the pause between attempts to connect."""


@pytest.fixture
def server() -> Iterator[int]:
    """Serve `ServerReady`, and return the port."""
    ready = grpc.unary_unary_rpc_method_handler(lambda _request, _context: b"\x08\x01")
    made = grpc.server(futures.ThreadPoolExecutor(1))
    made.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"ServerReady": ready}),))
    port = made.add_insecure_port("127.0.0.1:0")
    made.start()
    yield port
    made.stop(0).wait()


@pytest.fixture
def slow(server: int) -> Iterator[str]:
    """Return the address of a server from whose connections nothing comes for a while."""
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as opened:
        ended = threading.Event()

        def forward(source: socket.socket, target: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(65_536):
                    target.sendall(data)
                target.shutdown(socket.SHUT_WR)

        def serve(client: socket.socket) -> None:
            if ended.wait(SLOWNESS):
                return
            behind = opened.enter_context(socket.create_connection(("127.0.0.1", server)))
            threading.Thread(target=forward, args=(behind, client), daemon=True).start()
            forward(client, behind)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    opened.enter_context(client)
                    threading.Thread(target=serve, args=(client,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"grpc://127.0.0.1:{listener.getsockname()[1]}"
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)


def test_a_blocking_client_waits_for_it(slow: str) -> None:
    with Client(slow, retry=ONCE) as client:
        assert client.ready()


async def test_an_asyncio_client_waits_for_it(slow: str) -> None:
    async with AsyncClient(slow, retry=ONCE) as client:
        assert await asyncio.wait_for(client.ready(), 30)


def test_but_no_longer_than_the_call_may_take(slow: str) -> None:
    with Client(slow, retry=ONCE, timeout=SLOWNESS / 4) as client, pytest.raises(DeadlineExceededError):
        client.models()
