"""A bare HTTP/1.1 server: asyncio protocol, httptools, uvloop, ONNX Runtime, and nothing besides.

It checks no request, has no limits, queues, deadlines or metrics. All requests that arrive in one turn of
the event loop share executions; a model that takes long runs in one thread, so that the loop goes on.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import httptools
import msgspec
import numpy as np
import numpy.typing as npt
import uvloop

from bench.peers.session import open_session
from bench.peers.task import Task, read_task

Floats = npt.NDArray[np.float32]
Reply = Callable[[Floats], None]

INLINE_BELOW_S = 0.001
"""A model whose single row takes longer runs in a thread."""


class Model:
    """The session and the requests that wait for it."""

    def __init__(self, task: Task, loop: asyncio.AbstractEventLoop) -> None:
        self._session = open_session(task)
        self._max_batch_size = task.max_batch_size
        self._loop = loop
        self._waiting: list[tuple[Floats, Reply]] = []
        self._due = False
        self._busy = False
        self._executor = ThreadPoolExecutor(1)
        row = np.zeros((1, *task.input_shape), np.float32)
        self._run(row)
        started = time.perf_counter()
        self._run(row)
        self._inline = time.perf_counter() - started < INLINE_BELOW_S

    def _run(self, rows: Floats) -> Floats:
        output: Floats = self._session.run(None, {"input": rows})[0]
        return output

    def submit(self, rows: Floats, reply: Reply) -> None:
        """Run `rows` with whatever else arrives in this turn of the loop."""
        self._waiting.append((rows, reply))
        if not self._due and not self._busy:
            self._due = True
            self._loop.call_soon(self._flush if self._inline else self._start)

    def _flush(self) -> None:
        self._due = False
        waiting, self._waiting = self._waiting, []
        for first in range(0, len(waiting), self._max_batch_size):
            batch = waiting[first : first + self._max_batch_size]
            self._answer(batch, self._run(_gather(batch)))

    def _start(self) -> None:
        self._due = False
        batch = self._waiting[: self._max_batch_size]
        del self._waiting[: self._max_batch_size]
        if batch:
            self._busy = True
            self._executor.submit(self._run_in_thread, batch)

    def _run_in_thread(self, batch: list[tuple[Floats, Reply]]) -> None:
        output = self._run(_gather(batch))
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._finish, batch, output)

    def _finish(self, batch: list[tuple[Floats, Reply]], output: Floats) -> None:
        self._busy = False
        self._start()
        self._answer(batch, output)

    def _answer(self, batch: list[tuple[Floats, Reply]], output: Floats) -> None:
        row = 0
        for rows, reply in batch:
            reply(output[row : row + len(rows)])
            row += len(rows)


def _gather(batch: list[tuple[Floats, Reply]]) -> Floats:
    return batch[0][0] if len(batch) == 1 else np.concatenate([rows for rows, _ in batch])


class Body(msgspec.Struct):
    """`{"input": [[row], …]}`."""

    input: Any


_decode = msgspec.json.Decoder(Body).decode
_encode = msgspec.json.Encoder().encode
_JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_OCTETS_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncontent-length: %d\r\n\r\n"


class Connection(asyncio.Protocol):
    """One client. A body of `application/octet-stream` is a tensor, any other is JSON."""

    def __init__(self, model: Model, shape: tuple[int, ...]) -> None:
        self._model = model
        self._shape = (-1, *shape)
        self._parser = httptools.HttpRequestParser(self)
        self._body: list[bytes] = []
        self._octets = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Parse; whoever sends anything but HTTP/1.1 is cut off."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take the one header that matters."""
        if name.lower() == b"content-type":
            self._octets = value == b"application/octet-stream"

    def on_body(self, piece: bytes) -> None:
        """Collect the body."""
        self._body.append(piece)

    def on_message_complete(self) -> None:
        """Run the request."""
        body, self._body = b"".join(self._body), []
        if self._octets:
            self._model.submit(np.frombuffer(body, np.float32).reshape(self._shape), self._reply_octets)
        else:
            self._model.submit(np.array(_decode(body).input, np.float32), self._reply_json)

    def _reply_json(self, output: Floats) -> None:
        answer = _encode({"output": output.tolist()})
        self._write(_JSON_HEAD % len(answer) + answer)

    def _reply_octets(self, output: Floats) -> None:
        answer = output.tobytes()
        self._write(_OCTETS_HEAD % len(answer) + answer)

    def _write(self, answer: bytes) -> None:
        # A client that has left must not take the answers of the rest of its batch with it.
        if not self._transport.is_closing():
            self._transport.write(answer)


async def serve(task: Task) -> None:
    """Serve on the task's port and Unix socket until the process is ended."""
    loop = asyncio.get_running_loop()
    model = Model(task, loop)

    def connection() -> Connection:
        return Connection(model, task.input_shape)

    unix = await loop.create_unix_server(connection, task.unix, backlog=512)
    tcp = await loop.create_server(connection, "127.0.0.1", task.port, backlog=512)
    await asyncio.gather(unix.serve_forever(), tcp.serve_forever())


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    uvloop.run(serve(read_task()))
