"""Connections to a server, made and waited for within a deadline."""

import select
import socket
import time

from mcp2026.client.addresses import Address
from mcp2026.client.errors import ConnectionFailedError, Retry
from mcp2026.client.retries import Attempts, deadline_exceeded

_UNANSWERED_MS = 20_000
"""A peer that acknowledges nothing for so long is gone; else an HTTP/2 connection to it is used for ever."""


def connect(address: Address, attempts: Attempts) -> socket.socket:
    """Return a new connection, blocking.

    Raises:
        ConnectionFailedError: nobody listens there.
        DeadlineExceededError: it took too long. The lookup of a name is not bounded: libc's has no timeout.

    """
    try:
        if address.unix_path:
            return _connected(socket.AF_UNIX, address.unix_path, attempts)
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        for place, (family, _, _, _, target) in enumerate(found, start=1):
            try:
                return _connected(family, target, attempts)
            except OSError as error:
                if place == len(found) or is_deadline(error):
                    raise
    except OSError as error:
        if is_deadline(error):
            raise deadline_exceeded(attempts.timeout) from None
        raise ConnectionFailedError(f"cannot connect to {address}: {error}", Retry.ALWAYS) from error
    raise ConnectionFailedError(f"cannot connect to {address}: the name has no address", Retry.ALWAYS)


def time_left(attempts: Attempts) -> float:
    """Return the s until the deadline.

    Raises:
        DeadlineExceededError: there are none.

    """
    left = attempts.deadline - time.monotonic()
    if left <= 0:
        raise deadline_exceeded(attempts.timeout)
    return left


def is_deadline(error: OSError) -> bool:
    """Return whether `error` is that of a socket whose own timeout passed; the kernel's have numbers."""
    return isinstance(error, TimeoutError) and error.errno is None


def is_quiet(connection: socket.socket) -> bool:
    """Return whether nothing has come on an idle connection: neither its end nor anything unasked."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return not poll.poll(0)


def prepare(connection: socket.socket) -> None:
    """Set the options that every TCP connection of a client has."""
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNANSWERED_MS)


def _connected(family: int, target: str | tuple[object, ...], attempts: Attempts) -> socket.socket:
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.settimeout(time_left(attempts))
        connection.connect(target)
        prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection
