"""Everything that a server listens on: ports for HTTP and gRPC, and Unix sockets for both."""

import asyncio
import logging
import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from mcp2026.runtime.errors import AddressTakenError, ListenError
from mcp2026.runtime.process.sockets import BACKLOG, PortReservation
from mcp2026.runtime.settings import Settings

log = logging.getLogger("mcp2026.runtime")

LEFT_BEHIND_SECONDS = 3.0
"""Longest that an address is waited for: workers of a server that was killed hold it until they notice."""
_LOOK_EVERY = 0.05

_LONGEST_PATH = 107
"""Bytes of `sun_path` in unix(7), without the NUL at its end."""


_Address = TypeVar("_Address", PortReservation, "UnixSocket")


@dataclass(frozen=True)
class Listeners:
    """The sockets of one worker, bound, inheritable, and not listening yet."""

    http: list[socket.socket]
    grpc: list[socket.socket]

    @property
    def all(self) -> list[socket.socket]:
        """Every socket."""
        return [*self.http, *self.grpc]

    def listen(self) -> None:
        """Let clients connect, though nobody accepts yet."""
        for one in self.all:
            one.listen(BACKLOG)


class Addresses:
    """The addresses of a server, held for its life."""

    def __init__(self, settings: Settings) -> None:
        """Take every port and path that the settings ask for.

        Raises:
            ListenError: one of them cannot be had; none is held then.

        """
        self._settings = settings
        self._held: list[PortReservation | UnixSocket] = []
        try:
            self.http = self._hold(PortReservation(settings.host, settings.port))
            self.grpc = None
            if settings.grpc:
                self.grpc = self._hold(
                    PortReservation(settings.host, settings.chosen_grpc_port, "--grpc-port")
                )
            self._unix_http = self._unix(settings.unix_socket, "--unix-socket")
            self._unix_grpc = self._unix(settings.grpc_unix_socket, "--grpc-unix-socket")
        except ListenError:
            self.close()
            raise

    def listeners(self) -> Listeners:
        """Return sockets for one worker: its own on the ports, shared ones on the paths."""
        http = self.http.listeners()
        grpc = self.grpc.listeners() if self.grpc is not None else []
        if self._unix_http is not None:
            http.append(self._unix_http.listener())
        if self._unix_grpc is not None:
            grpc.append(self._unix_grpc.listener())
        return Listeners(http, grpc)

    def urls(self) -> dict[str, str]:
        """Return where clients find the server, by a name for each address."""
        host = url_host(self._settings.host)
        urls = {"url": f"http://{host}:{self.http.port}"}
        if self.grpc is not None:
            urls["grpc_url"] = f"grpc://{host}:{self.grpc.port}"
        if self._unix_http is not None:
            urls["unix_url"] = f"unix:{self._unix_http.path}"
        if self._unix_grpc is not None:
            urls["grpc_unix_url"] = f"grpc+unix:{self._unix_grpc.path}"
        return urls

    def close(self) -> None:
        """Let everything go, and remove the Unix sockets."""
        for one in self._held:
            one.close()

    def _hold(self, one: _Address) -> _Address:
        self._held.append(one)
        return one

    def _unix(self, path: str | None, flag: str) -> "UnixSocket | None":
        return self._hold(UnixSocket(Path(path), flag)) if path else None


async def take_addresses(settings: Settings) -> Addresses:
    """Take every port and path that the settings ask for, and wait a while for what is in use.

    The log tells at once what is waited for; the error that may follow is the only other word on it.

    Raises:
        ListenError: one of them cannot be had; none is held then.

    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + LEFT_BEHIND_SECONDS
    told = False
    while True:
        try:
            return Addresses(settings)
        except AddressTakenError as error:
            if clock() > deadline:
                raise
            if not told:
                log.info("%s (waiting for it up to %g s)", error, LEFT_BEHIND_SECONDS)
            told = True
        await asyncio.sleep(_LOOK_EVERY)


def url_host(host: str) -> str:
    """Return `host` as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


class UnixSocket:
    """A listening socket at a path, which all workers accept from."""

    def __init__(self, path: Path, flag: str) -> None:
        """Bind `path`; what a server that is gone has left there is removed.

        Raises:
            AddressTakenError: another server listens there.
            ListenError: nothing can be bound there.

        """
        self.path = path
        if len(os.fsencode(path)) > _LONGEST_PATH:
            raise ListenError(f"cannot listen on {path}: longer than {_LONGEST_PATH} bytes. Choose {flag}")
        self._remove_left_over(flag)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # For good: all handles are one open file. If a copy for a new worker let it block, the worker that is
        # second to accept a connection would stop.
        self._socket.setblocking(False)
        try:
            self._socket.bind(os.fspath(path))
        except OSError as error:
            self._socket.close()
            raise ListenError(f"cannot listen on {path}: {error.strerror}. Choose another {flag}") from error

    def listener(self) -> socket.socket:
        """Return one more handle of the socket, inheritable."""
        made = self._socket.dup()
        made.set_inheritable(True)
        return made

    def close(self) -> None:
        """Stop listening and remove the path."""
        self._socket.close()
        self.path.unlink(missing_ok=True)

    def _remove_left_over(self, flag: str) -> None:
        try:
            mode = self.path.stat().st_mode
        except OSError:
            return
        if not stat.S_ISSOCK(mode):
            raise ListenError(f"cannot listen on {self.path}: it is a file of another kind. Choose {flag}")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(os.fspath(self.path))
            except ConnectionRefusedError:
                self.path.unlink(missing_ok=True)
            except OSError as error:
                raise ListenError(f"cannot listen on {self.path}: {error.strerror}") from error
            else:
                raise AddressTakenError(
                    f"cannot listen on {self.path}: another server does. Stop it, or choose another {flag}"
                )
