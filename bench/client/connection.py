"""A client's connection over HTTP/1.1: it sends prepared bytes and reads of an answer what it must.

The kernel says when an answer came: whether the client was busy with another one then does not count.
"""

import socket
import time

from bench.errors import BenchError

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length:"
_SO_TIMESTAMPNS = 35
"""From socket(7) of Linux: each `recvmsg` tells when its last byte came, as a timespec. Not in `socket`."""
_ANCILLARY_BYTES = socket.CMSG_SPACE(16)
_LARGEST_PIECE = 1 << 16


class ClientConnection:
    """One request at a time over a socket that never blocks. Times in ns of the system's clock."""

    def __init__(self, port: int, unix: str | None) -> None:
        """Connect to a port of the loopback interface, or to a Unix socket."""
        if unix:
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.socket.connect(unix)
        else:
            self.socket = socket.create_connection(("127.0.0.1", port))
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self.socket.setblocking(False)
        self._received = b""
        self._unsent = memoryview(b"")
        self.since = 0
        """When the request was sent, or was due if there was no connection for it then."""
        self.answered_at = 0
        """When the last byte of the answer came."""
        self.is_open = True
        self._busy = False

    def send(self, request: bytes, since: int) -> None:
        """Begin to send one request; `go_on` sends what the socket does not take at once."""
        self.since = since
        self._busy = True
        self._unsent = memoryview(request)
        self.go_on()

    def go_on(self) -> None:
        """Send more of the request if there is more."""
        while self._unsent:
            try:
                sent = self.socket.send(self._unsent)
            except BlockingIOError:
                return
            except OSError:
                self.is_open = False
                return
            self._unsent = self._unsent[sent:]

    def receive(self) -> int | None:
        """Read what has come; return the HTTP status of a whole answer, 0 if the server left, else None."""
        while True:
            try:
                data, ancillary, _, _ = self.socket.recvmsg(_LARGEST_PIECE, _ANCILLARY_BYTES)
            except BlockingIOError:
                return None
            except OSError:
                data, ancillary = b"", []
            if not data:
                self.is_open = False
                return self._end(0)
            self._received += data
            head_end = self._received.find(_HEAD_END)
            if head_end >= 0 and len(self._received) >= head_end + len(_HEAD_END) + self._body_length(
                head_end
            ):
                self.answered_at = _time_of(ancillary)
                status = int(self._received[9:12])
                self._received = b""
                return self._end(status)

    def _end(self, status: int) -> int | None:
        was_busy, self._busy = self._busy, False
        return status if was_busy else None

    def _body_length(self, head_end: int) -> int:
        head = self._received[:head_end].lower()
        start = head.find(_LENGTH)
        if start < 0:
            raise BenchError("the client in Python needs answers with a Content-Length")
        end = head.find(b"\r\n", start)
        return int(head[start + len(_LENGTH) : end if end >= 0 else head_end])


def _time_of(ancillary: list[tuple[int, int, bytes]]) -> int:
    """Return the time that the kernel gave, or now if it gave none, as with Unix sockets."""
    for _level, kind, data in ancillary:
        if kind == _SO_TIMESTAMPNS:
            seconds, nanoseconds = int.from_bytes(data[:8], "little"), int.from_bytes(data[8:16], "little")
            return seconds * 1_000_000_000 + nanoseconds
    return time.time_ns()
