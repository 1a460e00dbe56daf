"""Clients of HTTP/2 that attack a real server: each gets the error of the RFC, and others are served on."""

import select
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, count, islice, repeat
from typing import Any

import pytest

from mcp2026.runtime.protocol.http2 import frames
from mcp2026.runtime.protocol.http2.errors import Http2Code
from tests.contract.runtime.server_process import Server
from tests.unit.runtime.http2_client import GET, block, headers

CALM, PROTOCOL = Http2Code.ENHANCE_YOUR_CALM, Http2Code.PROTOCOL_ERROR
PREFACE = frames.PREFACE + frames.settings_frame({})
_OPEN = frames.frame(frames.HEADERS, frames.END_STREAM, 1, block(GET))
_BOMB = b"\x40\x01x" + b"\x7f\xa1\x1e" + b"y" * 4_000
"""One entry of the table that holds 4 kB; each byte 0xbe after it means that entry again."""


def resets() -> Iterator[bytes]:
    return (headers(number) + frames.reset_frame(number, 8) for number in count(1, 2))


def settings() -> Iterator[bytes]:
    return (frames.settings_frame({0xF0B0: 1, 0xF0B1: number % 65_536}) for number in count())


def unknown_settings() -> Iterator[bytes]:
    spread = (range(first, first + 2_700) for first in chain.from_iterable(repeat(range(16, 60_000, 2_700))))
    return (frames.settings_frame(dict.fromkeys(identifiers, 1)) for identifiers in spread)


def continuations() -> Iterator[bytes]:
    return chain([_OPEN], repeat(frames.frame(frames.CONTINUATION, 0, 1, b"")))


def endless_headers() -> Iterator[bytes]:
    return chain([_OPEN], repeat(frames.frame(frames.CONTINUATION, 0, 1, bytes(16_000))))


def priorities() -> Iterator[bytes]:
    return (frames.frame(frames.PRIORITY, 0, number, bytes(5)) for number in count(1, 2))


def promise() -> Iterator[bytes]:
    return iter([frames.frame(frames.PUSH_PROMISE, frames.END_HEADERS, 1, bytes(4) + block(GET))])


def bombs() -> Iterator[bytes]:
    """Header blocks of 16 kB that mean 64 MB each, again and again."""
    first = frames.frame(frames.HEADERS, frames.END_STREAM | frames.END_HEADERS, 1, block(GET) + _BOMB)
    flags = frames.END_STREAM | frames.END_HEADERS
    more = (frames.frame(frames.HEADERS, flags, n, block(GET) + b"\xbe" * 16_000) for n in count(3, 2))
    return chain([first], islice(more, 200))


def setting(identifier: int, value: int) -> Callable[[], Iterator[bytes]]:
    return lambda: iter([frames.settings_frame({identifier: value})])


@pytest.fixture(scope="module")
def server(model: Callable[[str], Any]) -> Iterator[Server]:
    running = Server("--model-path", str(model("mlp")), "--threads", "1", "--http2-idle-frames", "2000")
    yield running
    running.close()


@pytest.mark.parametrize(
    ("attack", "code"),
    [
        pytest.param(resets, CALM, id="rapid reset"),
        pytest.param(settings, CALM, id="a flood of settings"),
        pytest.param(unknown_settings, CALM, id="a flood of settings nobody knows"),
        pytest.param(continuations, CALM, id="continuations without end"),
        pytest.param(endless_headers, CALM, id="a header block without end"),
        pytest.param(priorities, CALM, id="a flood of priorities"),
        pytest.param(promise, PROTOCOL, id="a promise of a client"),
        pytest.param(setting(0xF0B0, 2), PROTOCOL, id="neither ready nor not"),
        pytest.param(setting(0xF0B1, 1 << 16), PROTOCOL, id="a delay out of range"),
        pytest.param(setting(0xF0B2, 0), PROTOCOL, id="a size out of range"),
        pytest.param(bombs, None, id="header bombs"),
    ],
)
def test_an_attack_ends_and_costs_little(
    server: Server, attack: Callable[[], Iterator[bytes]], code: Http2Code | None
) -> None:
    before = server.resident_mib()
    with server.connect() as client:
        answer = Answer(client)
        client.sendall(PREFACE)
        with suppress(ConnectionError):
            for piece in islice(attack(), 100_000):
                client.sendall(piece)
                if answer.here():
                    break
        if code is not None:
            answer.wait()
        assert answer.code is code
    assert server.request("GET", "/healthz").status == 200
    assert server.resident_mib() - before < 32


class Answer:
    """The code of the GOAWAY that a server sends, once it is here."""

    def __init__(self, client: socket.socket) -> None:
        self._client = client
        self._pending = b""
        self.code: Http2Code | None = None

    def here(self) -> bool:
        """Read what is there already."""
        while select.select([self._client], [], [], 0)[0] and (piece := self._client.recv(65_536)):
            self._take(piece)
        return self.code is not None

    def wait(self) -> None:
        """Read on until it is here, or the server has closed."""
        with suppress(ConnectionError):
            while self.code is None and (piece := self._client.recv(65_536)):
                self._take(piece)

    def _take(self, piece: bytes) -> None:
        pending = self._pending + piece
        position = 0
        while len(pending) - position >= 9:
            end = position + 9 + int.from_bytes(pending[position : position + 3], "big")
            if end > len(pending):
                break
            if pending[position + 3] == frames.GOAWAY:
                self.code = Http2Code(int.from_bytes(pending[position + 13 : position + 17], "big"))
            position = end
        self._pending = pending[position:]
