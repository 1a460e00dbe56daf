"""A client that sends thousands of requests at once does not have them all served before those of others."""

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from mcp2026.runtime.protocol.exchange import Cancel, RequestHead, Respond, Response
from mcp2026.runtime.protocol.listener import connection_factory
from tests.contract.runtime.many_requests import PREFACE, SETTINGS, frame, literal
from tests.contract.runtime.server_process import PATIENCE, read_all
from tests.contract.runtime.transport_server import TransportServer, limits

COUNT = 3_000
"""Requests of the flood; their answers fit into the buffers of a socket."""


class Order:
    """Notes the paths in the order in which they are served."""

    closing = False

    def __init__(self) -> None:
        self.paths: list[str] = []

    def admit(self, _head: RequestHead) -> Response | None:
        return None

    def begin(self, head: RequestHead, _body: bytes, respond: Respond) -> Cancel | None:
        self.paths.append(head.path)
        respond(Response(200, b""))
        return None

    def protocol_error(self, status: int, message: str, _allowed: str | None = None) -> Response:
        return Response(status, message.encode())


@pytest.fixture
def order() -> Order:
    return Order()


@pytest.fixture
def server(order: Order) -> Iterator[TransportServer]:
    running = TransportServer(
        lambda connections, loop: connection_factory(order, limits(), connections, loop)
    )
    yield running
    running.close()


def over_http1(path: bytes, count: int) -> bytes:
    return b"GET %b HTTP/1.1\r\nhost: a\r\n\r\n" % path * count


def chunked_over_http1(path: bytes, count: int) -> bytes:
    head = b"POST %b HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n" % path
    return (head + b"1\r\na\r\n0\r\n\r\n") * count


def over_http2(path: bytes, count: int) -> bytes:
    block = b"\x82\x86" + literal(b":path", path) + literal(b":authority", b"a")
    frames = [frame(1, 5, 2 * index + 1, block) for index in range(count)]
    return PREFACE + frame(SETTINGS, 0, 0) + b"".join(frames)


@pytest.mark.parametrize("requests", [over_http1, chunked_over_http1, over_http2])
def test_others_have_their_turn(
    server: TransportServer, order: Order, requests: Callable[[bytes, int], bytes]
) -> None:
    address = ("127.0.0.1", server.port)
    with socket.create_connection(address) as many, socket.create_connection(address) as one:
        while server.call(lambda: len(server.connections)) < 2:
            pass
        held, sent = threading.Event(), threading.Event()
        server.call_soon(lambda: (held.set(), sent.wait(PATIENCE)))
        held.wait(PATIENCE)  # nothing is read until both have sent
        many.sendall(requests(b"/many", COUNT))
        one.sendall(requests(b"/one", 1))
        sent.set()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(read_all, many)
            while server.call(lambda: order.paths.count("/many")) < COUNT:
                pass
            many.shutdown(socket.SHUT_RDWR)
    # The flood is sent first, and may have had several turns; not all of them.
    assert order.paths.index("/one") < COUNT // 4
