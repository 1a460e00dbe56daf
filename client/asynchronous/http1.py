"""HTTP/1.1 on asyncio: a bounded pool of connections that are kept."""

import asyncio
import time
from typing import TypeVar

from mcp2026.api.batching_negotiation import BatchingOffer
from mcp2026.client.addresses import Address
from mcp2026.client.errors import ClientError, ConnectionFailedError, Retry
from mcp2026.client.exchange import HttpRequest, HttpResponse, Operation
from mcp2026.client.negotiation import header_of
from mcp2026.client.retries import Attempts
from mcp2026.client.wire.http1 import Http1Wire

Answer = TypeVar("Answer")

_READ_BYTES = 262_144


class Http1Connection:
    """A connection and the state of what was said on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wire: Http1Wire) -> None:
        self._reader = reader
        self._writer = writer
        self._wire = wire

    @property
    def reusable(self) -> bool:
        """Whether another request can be sent here; false as soon as the server has closed."""
        return self._wire.reusable and not self._reader.at_eof() and not self._writer.is_closing()

    async def exchange(self, request: HttpRequest, batch_capable: str) -> HttpResponse:
        """Return the response to `request`.

        Raises:
            ConnectionFailedError, ProtocolError: there is none.

        """
        try:
            return await self._exchange(request, batch_capable)
        except ClientError:
            raise
        except OSError as error:
            raise self._wire.lost(f"the connection broke: {error}") from error

    def close(self) -> None:
        """Close the connection at once."""
        self._writer.transport.abort()

    async def _exchange(self, request: HttpRequest, batch_capable: str) -> HttpResponse:
        unsent: OSError | None = None
        try:
            for part in self._wire.ask(request, batch_capable):
                self._writer.write(part)
                await self._writer.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            unsent = error  # a server that refuses a body may answer and close before it has read it
        while True:
            data = await self._reader.read(_READ_BYTES)
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
        self._slots = asyncio.Semaphore(max_connections)
        self._idle: list[Http1Connection] = []
        self._closed = False
        self.batching = None
        """HTTP/1.1 has nothing that holds for a connection."""

    async def ask(self, operation: Operation[Answer], attempts: Attempts) -> Answer:
        """Return the answer to `operation`, asked once."""
        async with self._slots:
            connection = self._take() or await self._connect()
            try:
                request = operation.http_request(attempts.timeout_to_send(time.monotonic()))
                response = await connection.exchange(request, self._batch_capable)
            except BaseException:
                connection.close()
                raise
            if connection.reusable and not self._closed:
                self._idle.append(connection)
            else:
                connection.close()
        return operation.http_answer(response)

    def offer(self, offer: BatchingOffer) -> None:
        """Offer this with requests from now on."""
        self._batch_capable = header_of(offer, early_hints=True)

    async def close(self) -> None:
        """Close idle connections now and used ones when their requests are answered."""
        self._closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        await asyncio.sleep(0)  # the loop closes sockets in its next turn

    def _take(self) -> Http1Connection | None:
        """Return the connection that was used last, if any is left that the server has not closed."""
        if self._closed:
            raise ConnectionFailedError("the client is closed", Retry.NEVER)
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable:
                return connection
            connection.close()
        return None

    async def _connect(self) -> Http1Connection:
        address = self._address
        try:
            if address.unix_path:
                reader, writer = await asyncio.open_unix_connection(address.unix_path, limit=_READ_BYTES)
            else:
                reader, writer = await asyncio.open_connection(address.host, address.port, limit=_READ_BYTES)
        except OSError as error:
            raise ConnectionFailedError(f"cannot connect to {address}: {error}", Retry.ALWAYS) from error
        return Http1Connection(reader, writer, Http1Wire(address, self._max_answer_bytes))
