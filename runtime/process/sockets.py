"""Listening sockets: one of its own for each worker, on one port that the parent holds.

The kernel spreads connections over the workers' sockets (SO_REUSEPORT). When a worker dies its socket dies
with it, so no connection waits for a process that is not there; see docs/decisions/0010.
"""

import errno
import socket

from mcp2026.runtime.errors import AddressTakenError, ListenError

BACKLOG = 1024

Address = tuple[int, str, int]
"""Family, host, port."""


class PortReservation:
    """The port, held for the life of the server by sockets that are bound but do not listen."""

    def __init__(self, host: str, port: int, flag: str = "--port") -> None:
        """Take `port` on every address of `host`; 0 takes a free one. An error says to change `flag`.

        Raises:
            AddressTakenError: another server uses it.
            ListenError: it is not allowed, or `host` is not an address of this machine.

        """
        self._held: list[socket.socket] = []
        self.addresses: list[Address] = []
        try:
            for family, address in _resolve(host):
                self._take(family, address, port if port or not self.addresses else self.port)
        except OSError as error:
            self.close()
            raise _listen_error(host, port, flag, error) from error
        if not self.addresses:
            raise ListenError(
                f"cannot listen on {host}: this machine has no such address. Use --host 0.0.0.0"
            )

    @property
    def port(self) -> int:
        """The port, also if 0 was asked for."""
        return self.addresses[0][2]

    def _take(self, family: int, address: str, port: int) -> None:
        try:
            # Another server's sockets would share the port silently: a plain bind finds them.
            with _socket(family) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((address, port))
            held = _bind(family, address, port)
        except OSError as error:
            if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                return  # "localhost" names an IPv6 address also where there is no IPv6
            raise
        self._held.append(held)
        self.addresses.append((family, address, held.getsockname()[1]))

    def listeners(self) -> list[socket.socket]:
        """Return new sockets for one worker, bound to every address and inheritable, not listening yet."""
        sockets = [_bind(*address) for address in self.addresses]
        for one in sockets:
            one.set_inheritable(True)
        return sockets

    def close(self) -> None:
        """Let the port go."""
        for one in self._held:
            one.close()


def _resolve(host: str) -> list[tuple[int, str]]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:  # the latter: it could not even be asked for
        problem = getattr(error, "strerror", None) or "no host can have this name"
        raise ListenError(f"cannot listen on {host}: {problem}. Give an address of this machine") from error
    return list(dict.fromkeys((int(family), str(address[0])) for family, _, _, _, address in found))


def _socket(family: int) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return made


def _bind(family: int, address: str, port: int) -> socket.socket:
    made = _socket(family)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind((address, port))
    except OSError:
        made.close()
        raise
    return made


def _listen_error(host: str, port: int, flag: str, error: OSError) -> ListenError:
    if error.errno == errno.EADDRINUSE:
        return AddressTakenError(
            f"cannot listen on {host}:{port}: port {port} is in use. "
            f"Stop the program that uses it, or choose another one with {flag}"
        )
    if error.errno == errno.EACCES:
        return ListenError(f"cannot listen on {host}:{port}: not permitted. Choose {flag} from 1024 on")
    return ListenError(f"cannot listen on {host}:{port}: {error.strerror}")
