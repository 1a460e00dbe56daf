"""Ask over and over, and note every answer: `python -m bench.client.steady PORT CONNECTIONS OUTPUT`.

The bytes of the request come from the standard input. Each connection has one request on the way. SIGTERM
ends it; then the answers are in OUTPUT. A process of its own: who swaps versions meanwhile must not delay it.
"""

import gc
import re
import select
import signal
import socket
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.cores import Cores
from bench.errors import BenchError

ENDS_WITHIN_S = 30.0
_VERSION = re.compile(rb'"version_id":"r?(\d+)"')
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"


class Answers:
    """All answers in the order in which they came, as columns.

    `sent` and `received` are in s of the monotonic clock (float64). `status` is 0 if the connection broke;
    `revision` is the number of the version, 0 if there is none (int64).
    """

    def __init__(self, file: Path) -> None:
        """Read what a client has written."""
        with np.load(file) as columns:
            self.sent: npt.NDArray[np.float64] = columns["sent"]
            self.received: npt.NDArray[np.float64] = columns["received"]
            self.status: npt.NDArray[np.int64] = columns["status"]
            self.revision: npt.NDArray[np.int64] = columns["revision"]

    def __len__(self) -> int:
        return len(self.sent)


@contextmanager
def steady_load(port: int, request: bytes, connections: int, cores: Cores, output: Path) -> Iterator[None]:
    """Load a server for the length of the block; then the answers are in the file `output`.

    Raises:
        BenchError: the client failed.

    """
    command = [sys.executable, "-m", "bench.client.steady", str(port), str(connections), str(output)]
    client = subprocess.Popen(cores.command(command), stdin=subprocess.PIPE, start_new_session=True)
    assert client.stdin is not None
    client.stdin.write(request)
    client.stdin.close()
    try:
        yield
    finally:
        client.terminate()
        status = client.wait(ENDS_WITHIN_S)
    if status:
        raise BenchError(f"the client ended with status {status}")


class _Caller:
    """One connection with one request on the way."""

    def __init__(self, port: int, request: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = request
        self._received = b""
        self._sent = 0.0

    def ask(self) -> None:
        """Send the request."""
        self._received = b""
        self._sent = time.monotonic()
        self.socket.sendall(self._request)

    def read(self) -> tuple[float, float, int, int] | None:
        """Read what has come; return sent, received, status and revision of a whole answer."""
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            return self._sent, time.monotonic(), 0, 0
        self._received += data
        end = self._received.find(_HEAD_END)
        length = _LENGTH.search(self._received, 0, end) if end >= 0 else None
        if length is None or len(self._received) < end + len(_HEAD_END) + int(length[1]):
            return None
        version = _VERSION.search(self._received, end)
        revision = int(version[1]) if version else 0
        return self._sent, time.monotonic(), int(self._received[9:12]), revision


def _ask(port: int, request: bytes, connections: int, stopped: list[Any]) -> dict[str, Any]:
    """Ask until there is something in `stopped`, and return the columns."""
    columns: dict[str, Any] = {"sent": array("d"), "received": array("d")}
    columns |= {"status": array("q"), "revision": array("q")}
    appends = [column.append for column in columns.values()]
    callers = {
        caller.socket.fileno(): caller for caller in (_Caller(port, request) for _ in range(connections))
    }
    poll = select.epoll()
    for descriptor, caller in callers.items():
        poll.register(descriptor, select.EPOLLIN)
        caller.ask()
    while not stopped:
        for descriptor, _ in poll.poll(0.1):
            answer = callers[descriptor].read()
            if answer is None:
                continue
            for append, value in zip(appends, answer, strict=True):
                append(value)
            if answer[2]:
                callers[descriptor].ask()
            else:
                poll.unregister(descriptor)
    return columns


def main(port: str, connections: str, output: str) -> None:
    """Run until SIGTERM."""
    stopped: list[Any] = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    gc.disable()
    columns = _ask(int(port), sys.stdin.buffer.read(), int(connections), stopped)
    arrays: dict[str, Any] = {name: np.array(column) for name, column in columns.items()}
    np.savez(output, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
