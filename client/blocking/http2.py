"""HTTP/2 on a blocking client: threads share one connection, and one more thread reads it."""

import contextlib
import selectors
import socket
import threading
import time
from typing import TypeVar

from mcp2026.api.batching_negotiation import BatchingOffer, NegotiatedBatching
from mcp2026.client.addresses import Address
from mcp2026.client.blocking.sockets import connect, time_left
from mcp2026.client.errors import ClientError, ConnectionFailedError, Retry
from mcp2026.client.exchange import HttpResponse, Operation
from mcp2026.client.retries import Attempts, deadline_exceeded
from mcp2026.client.wire.http2 import Http2Wire, Outcome

Answer = TypeVar("Answer")

_READ_BYTES = 262_144


class _Waiting:
    """A caller that waits for what comes of its stream."""

    __slots__ = ("_arrived", "outcome")

    def __init__(self) -> None:
        self._arrived = threading.Event()
        self.outcome: Outcome | None = None

    def settle(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self._arrived.set()

    def wait(self, timeout: float) -> None:
        self._arrived.wait(timeout)


class Http2Connection:
    """A connection that any thread may use.

    Callers write what the socket takes at once; what is left, and all reading, is done by a thread of the
    connection. Nobody waits while holding the lock, so a server that does not read cannot stop the reading.
    """

    def __init__(self, connection: socket.socket, wire: Http2Wire) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._wire = wire
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._waiting: dict[int, _Waiting] = {}
        self._unwritten = memoryview(b"")
        self._wake_end, self._woken_end = socket.socketpair()
        self._wake_end.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="mcp2026-client-http2", daemon=True)
        with self._lock:
            self._write()
        self._thread.start()

    @property
    def usable(self) -> bool:
        """Whether the connection takes new requests."""
        with self._lock:
            return self._wire.usable

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    @property
    def batching(self) -> NegotiatedBatching | None:
        """What the settings of both sides come to."""
        with self._lock:
            return self._wire.batching

    def ask(self, operation: Operation[Answer], attempts: Attempts) -> Answer:
        """Return the answer to `operation`, asked once."""
        waiting = _Waiting()
        with self._lock:
            self._wait_for_room(attempts)
            request = operation.http_request(attempts.timeout_to_send(time.monotonic()))
            stream_id = self._wire.open(request)
            self._waiting[stream_id] = waiting
            self._write()
        try:
            waiting.wait(max(attempts.deadline - time.monotonic(), 0))
        finally:
            if waiting.outcome is None:
                self._cancel(stream_id)
        if waiting.outcome is None:
            raise deadline_exceeded(attempts.timeout)
        if isinstance(waiting.outcome, ClientError):
            raise waiting.outcome
        response: HttpResponse = waiting.outcome
        return operation.http_answer(response)

    def close(self) -> None:
        """Fail what waits, say goodbye, and end the thread."""
        with self._lock:
            self._wire.close()
            self._write()
            self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def offer(self, offer: BatchingOffer) -> None:
        """Renegotiate by a SETTINGS frame."""
        with self._lock:
            if self._wire.usable:
                self._wire.offer(offer)
                self._write()

    def retire(self) -> None:
        """Close when the last request is answered."""
        with self._lock:
            self._wake()

    def _wait_for_room(self, attempts: Attempts) -> None:
        try:
            while self._wire.usable and not self._wire.room:
                self._room.wait(time_left(attempts))
        except BaseException:
            self._room.notify()  # this caller may have been the one that was told
            raise
        if not self._wire.usable:
            raise ConnectionFailedError("the connection takes no more requests", Retry.ALWAYS)

    def _cancel(self, stream_id: int) -> None:
        with self._lock:
            if self._waiting.pop(stream_id, None) is not None:
                self._wire.cancel(stream_id)
                self._write()
                self._room.notify()

    def _write(self) -> None:
        """Write what the socket takes, and settle what is finished; the lock is held."""
        try:
            while True:
                if not self._unwritten:
                    self._unwritten = memoryview(self._wire.take())
                if not self._unwritten:
                    break
                self._unwritten = self._unwritten[self._socket.send(self._unwritten) :]
        except BlockingIOError:
            self._wake()
        except OSError as error:
            self._unwritten = memoryview(b"")
            self._wire.lost(f"the connection broke: {error}")
            self._wake()
        for stream_id, outcome in self._wire.finished().items():
            waiting = self._waiting.pop(stream_id, None)
            if waiting is not None:
                waiting.settle(outcome)
        if self._wire.room:
            self._room.notify()
        elif not self._wire.usable:
            self._room.notify_all()

    def _wake(self) -> None:
        if threading.current_thread() is self._thread:
            return
        with contextlib.suppress(OSError):  # full: it wakes anyway; closed: it has ended
            self._wake_end.send(b"\0")

    def _run(self) -> None:
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._socket, selectors.EVENT_READ)
                selector.register(self._woken_end, selectors.EVENT_READ)
                while self._turn(selector):
                    pass
        finally:
            with self._lock:
                self._wire.lost("the connection was closed")
                self._write()
                self._socket.close()
                self._wake_end.close()
                self._woken_end.close()

    def _turn(self, selector: selectors.BaseSelector) -> bool:
        """Wait for the socket or a caller, and do what can be done; false when all is done."""
        for key, events in selector.select():
            if key.fileobj is self._woken_end:
                self._woken_end.recv(4_096)
            elif events & selectors.EVENT_READ:
                self._read()
        with self._lock:
            self._write()
            if self._wire.closed is not None or (not self._wire.usable and self._wire.idle):
                return False
            writing = selectors.EVENT_WRITE if self._unwritten else 0
        selector.modify(self._socket, selectors.EVENT_READ | writing)
        return True

    def _read(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
            problem = "the server closed the connection"
        except BlockingIOError:
            return
        except OSError as error:
            data, problem = b"", f"the connection broke: {error}"
        with self._lock:
            if data:
                self._wire.receive(data)
            else:
                self._wire.lost(problem)


class Http2Transport:
    """One connection to a server, and the next one when it ends."""

    def __init__(self, address: Address, max_answer_bytes: int, offer: BatchingOffer | None) -> None:
        self._address = address
        self._max_answer_bytes = max_answer_bytes
        self._offer = offer
        self._lock = threading.Lock()
        self._connecting = threading.Lock()
        self._connection: Http2Connection | None = None
        self._older: list[Http2Connection] = []
        self._closed = False

    @property
    def batching(self) -> NegotiatedBatching | None:
        """What was negotiated on the present connection."""
        connection = self._connection
        return connection.batching if connection is not None else None

    def ask(self, operation: Operation[Answer], attempts: Attempts) -> Answer:
        """Return the answer to `operation`, asked once."""
        return self._usable(attempts).ask(operation, attempts)

    def offer(self, offer: BatchingOffer) -> None:
        """Offer this for requests from now on."""
        with self._connecting:
            self._offer = offer
            if self._connection is not None:
                self._connection.offer(offer)

    def close(self) -> None:
        """Close all connections; requests without an answer fail."""
        with self._lock:
            self._closed = True
            connections = [*self._older, *([self._connection] if self._connection else [])]
            self._older, self._connection = [], None
        for connection in connections:
            connection.close()

    def _usable(self, attempts: Attempts) -> Http2Connection:
        connection = self._connection
        if connection is not None and connection.usable:
            return connection
        if not self._connecting.acquire(timeout=max(attempts.deadline - time.monotonic(), 0)):
            raise deadline_exceeded(attempts.timeout)
        try:
            connection = self._connection
            if connection is not None and connection.usable:
                return connection
            return self._next(attempts)
        finally:
            self._connecting.release()

    def _next(self, attempts: Attempts) -> Http2Connection:
        if self._closed:
            raise ConnectionFailedError("the client is closed", Retry.NEVER)
        wire = Http2Wire(self._address, self._max_answer_bytes, self._offer)
        connection = Http2Connection(connect(self._address, attempts), wire)
        with self._lock:
            if not self._closed:
                self._older = [older for older in self._older if older.alive]
                if self._connection is not None:
                    self._connection.retire()
                    self._older.append(self._connection)
                self._connection = connection
                return connection
        connection.close()
        raise ConnectionFailedError("the client is closed", Retry.NEVER)
