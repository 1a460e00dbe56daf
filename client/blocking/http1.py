"""HTTP/1.1 on blocking sockets: a bounded pool of connections that are kept."""

import socket
import threading
import time
from typing import TypeVar

from mcp2026.api.batching_negotiation import BatchingOffer
from mcp2026.client.addresses import Address
from mcp2026.client.blocking.sockets import connect, is_deadline, is_quiet, time_left
from mcp2026.client.errors import ClientError, ConnectionFailedError, Retry
from mcp2026.client.exchange import HttpRequest, HttpResponse, Operation
from mcp2026.client.negotiation import header_of
from mcp2026.client.retries import Attempts, deadline_exceeded
from mcp2026.client.wire.http1 import Http1Wire

Answer = TypeVar("Answer")

_READ_BYTES = 131_072


class Http1Connection:
    """A socket and the state of what was said on it."""

    def __init__(self, connection: socket.socket, wire: Http1Wire) -> None:
        self._socket = connection
        self._wire = wire

    @property
    def reusable(self) -> bool:
        """Whether another request can be sent here; false as soon as the server has closed."""
        return self._wire.reusable and is_quiet(self._socket)

    def exchange(self, request: HttpRequest, batch_capable: str, attempts: Attempts) -> HttpResponse:
        """Return the response to `request`.

        Raises:
            ConnectionFailedError, DeadlineExceededError, ProtocolError: there is none.

        """
        try:
            return self._exchange(request, batch_capable, attempts)
        except ClientError:
            raise
        except OSError as error:
            if is_deadline(error):
                raise deadline_exceeded(attempts.timeout) from None
            raise self._wire.lost(f"the connection broke: {error}") from error

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _exchange(self, request: HttpRequest, batch_capable: str, attempts: Attempts) -> HttpResponse:
        unsent: OSError | None = None
        try:
            for part in self._wire.ask(request, batch_capable):
                self._socket.settimeout(time_left(attempts))
                self._socket.sendall(part)
        except (BrokenPipeError, ConnectionResetError) as error:
            unsent = error  # a server that refuses a body may answer and close before it has read it
        while True:
            self._socket.settimeout(time_left(attempts))
            data = self._socket.recv(_READ_BYTES)
            if not data and unsent is not None:
                raise unsent
            response = self._wire.receive(data)
            if response is not None:
                return response


class Http1Transport:
    """Connections to one server: at most so many at a time, each for one request at a time."""

    def __init__(
        self, address: Address, max_connections: int, max_answer_bytes: int, offer: BatchingOffer | None
    ) -> None:
        self._address = address
        self._max_answer_bytes = max_answer_bytes
        self._batch_capable = header_of(offer, early_hints=True)
        self._slots = threading.BoundedSemaphore(max_connections)
        self._idle: list[Http1Connection] = []
        self._lock = threading.Lock()
        self._closed = False
        self.batching = None
        """HTTP/1.1 has nothing that holds for a connection."""

    def ask(self, operation: Operation[Answer], attempts: Attempts) -> Answer:
        """Return the answer to `operation`, asked once."""
        if not self._slots.acquire(timeout=max(attempts.deadline - time.monotonic(), 0)):
            raise deadline_exceeded(attempts.timeout)
        try:
            connection = self._take() or Http1Connection(connect(self._address, attempts), self._new_wire())
            try:
                request = operation.http_request(attempts.timeout_to_send(time.monotonic()))
                response = connection.exchange(request, self._batch_capable, attempts)
            except BaseException:
                connection.close()
                raise
            self._give_back(connection)
        finally:
            self._slots.release()
        return operation.http_answer(response)

    def offer(self, offer: BatchingOffer) -> None:
        """Offer this with requests from now on."""
        self._batch_capable = header_of(offer, early_hints=True)

    def close(self) -> None:
        """Close idle connections now and used ones when their requests are answered."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _new_wire(self) -> Http1Wire:
        return Http1Wire(self._address, self._max_answer_bytes)

    def _take(self) -> Http1Connection | None:
        """Return the connection that was used last, if any is left that the server has not closed."""
        while True:
            with self._lock:
                if self._closed:
                    raise ConnectionFailedError("the client is closed", Retry.NEVER)
                connection = self._idle.pop() if self._idle else None
            if connection is None or connection.reusable:
                return connection
            connection.close()

    def _give_back(self, connection: Http1Connection) -> None:
        with self._lock:
            keep = not self._closed and connection.reusable
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()
