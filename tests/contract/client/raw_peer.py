"""A server that does with each connection what a test says, byte by byte."""

import contextlib
import socket
import threading
from collections.abc import Callable

OK = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 65\r\n\r\n"
    b'{"outputs":[{"name":"y","datatype":"FP32","shape":[1],"data":[7]}]}'
).replace(b"Content-Length: 65", b"Content-Length: 67")


class RawPeer:
    """Listens on a free port; `handle` gets each connection and its number, from 0."""

    def __init__(self, handle: Callable[[socket.socket, int], None]) -> None:
        self._handle = handle
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.accepted = 0
        self._start(self._accept)

    def url(self, protocol: str = "http") -> str:
        return f"{protocol}://127.0.0.1:{self._listener.getsockname()[1]}"

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            self.accepted += 1
            self._start(self._serve, connection, self.accepted - 1)

    def _serve(self, connection: socket.socket, number: int) -> None:
        try:
            self._handle(connection, number)
        except OSError:
            pass  # the client went away, as some tests want
        finally:
            connection.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # a test may have closed it
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads:
            thread.join(10)


def read_request(connection: socket.socket) -> bytes:
    """Return one request with its body; nothing if the client closed."""
    received = b""
    while b"\r\n\r\n" not in received:
        piece = connection.recv(65_536)
        if not piece:
            return b""
        received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    while len(body) < length:
        body += connection.recv(65_536)
    return head + b"\r\n\r\n" + body


def wait_for_end(connection: socket.socket) -> None:
    """Read until the client closes."""
    while connection.recv(65_536):
        pass
