"""Connections that cannot be accepted wait, and go on when there are descriptors again."""

import asyncio
import errno
import logging
import socket

import pytest

from mcp2026.runtime.process.accepting import (
    FIRST_PAUSE,
    LOG_SECONDS,
    LONGEST_PAUSE,
    Acceptor,
    AcceptPauses,
)


def test_pauses_grow_until_something_is_accepted_and_the_log_tells_now_and_then() -> None:
    pauses = AcceptPauses()
    told = [pauses.failed(now) for now in (0.0, 0.1, 0.2)]
    assert told == [(FIRST_PAUSE, True), (2 * FIRST_PAUSE, False), (4 * FIRST_PAUSE, False)]
    assert [pauses.failed(1.0)[0] for _ in range(10)][-1] == LONGEST_PAUSE
    pauses.accepted()
    assert pauses.failed(2.0) == (FIRST_PAUSE, False)
    assert pauses.failed(LOG_SECONDS) == (2 * FIRST_PAUSE, True)


class Short(socket.socket):
    """A listener that fails with the next of `errors` before it accepts anything."""

    errors: list[int]

    def accept(self) -> tuple[socket.socket, object]:
        if self.errors:
            raise OSError(self.errors.pop(0), "short")
        return super().accept()


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)
        self._transport.close()


async def echo(errors: list[int], *, ends: bool = False) -> tuple[list[bytes], int]:
    """Return what three clients hear back while accepting fails with `errors`, or at once `ends`.

    The second value is the number of failures that were counted.
    """
    failures = 0

    def failed() -> None:
        nonlocal failures
        failures += 1

    listener = Short()
    listener.errors = errors
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    address = listener.getsockname()
    pairs = [await asyncio.open_connection(*address) for _ in range(3)]
    acceptor = Acceptor(asyncio.get_running_loop(), listener, Echo, AcceptPauses(), failed)
    if ends:
        acceptor.close()
    heard = []
    for reader, writer in pairs:
        writer.write(b"x")
        heard.append(await reader.read())
        writer.close()
    if not ends:
        acceptor.close()
    return heard, failures


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.EMFILE, "this process may have no more file descriptors than"),
        (errno.ENFILE, "this machine has no file descriptor left"),
        (errno.ENOMEM, "short"),
    ],
)
async def test_connections_wait_until_they_can_be_accepted(
    number: int, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        heard, failures = await echo([number, number])
    assert heard == [b"x"] * 3
    assert failures == 2
    (line,) = caplog.messages
    assert line.startswith(f"new connections wait: {told}")


async def test_a_client_that_left_before_it_was_accepted_is_no_failure() -> None:
    heard, failures = await echo([errno.ECONNABORTED])
    assert (heard, failures) == ([b"x"] * 3, 0)


async def test_connections_that_wait_already_are_accepted_at_the_end() -> None:
    heard, failures = await echo([], ends=True)
    assert (heard, failures) == ([b"x"] * 3, 0)
