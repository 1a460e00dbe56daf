"""The client in Python over real sockets: whole answers, answers in pieces, and servers that leave."""

import select
import socket
import time
from collections.abc import Iterator

import pytest

from bench.client.connection import ClientConnection

REQUEST = b"POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


@pytest.fixture
def pair() -> Iterator[tuple[ClientConnection, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = ClientConnection(listener.getsockname()[1], None)
        server, _ = listener.accept()
        with client.socket, server:
            yield client, server


def receive(client: ClientConnection) -> int | None:
    select.select([client.socket], [], [], 5)
    return client.receive()


def test_an_answer_in_pieces_is_one_answer(pair: tuple[ClientConnection, socket.socket]) -> None:
    client, server = pair
    client.send(REQUEST, 1)
    assert server.recv(100) == REQUEST
    server.sendall(ANSWER[:-1])
    assert receive(client) is None
    server.sendall(ANSWER[-1:])
    assert receive(client) == 200


def test_an_answer_counts_from_when_it_came_not_from_when_it_was_read(
    pair: tuple[ClientConnection, socket.socket],
) -> None:
    client, server = pair
    client.send(REQUEST, 1)
    server.sendall(ANSWER)
    select.select([client.socket], [], [], 5)
    came_before = time.time_ns()
    assert client.receive() == 200
    assert 0 < client.answered_at <= came_before


def test_a_server_that_leaves_a_request_without_an_answer_is_told_as_status_0(
    pair: tuple[ClientConnection, socket.socket],
) -> None:
    client, server = pair
    client.send(REQUEST, 1)
    server.recv(100)
    server.close()
    assert receive(client) == 0
    assert not client.is_open


def test_a_server_that_leaves_after_the_answer_has_answered(
    pair: tuple[ClientConnection, socket.socket],
) -> None:
    client, server = pair
    client.send(REQUEST, 1)
    server.sendall(ANSWER)
    assert receive(client) == 200
    server.close()
    assert receive(client) is None
    assert not client.is_open
