"""HTTP/2 on asyncio: all calls share one connection."""

import asyncio
import contextlib
import time
from typing import TypeVar

from mcp2026.api.batching_negotiation import BatchingOffer, NegotiatedBatching
from mcp2026.client.addresses import Address
from mcp2026.client.errors import ClientError, ConnectionFailedError, Retry
from mcp2026.client.exchange import Operation
from mcp2026.client.retries import Attempts
from mcp2026.client.wire.http2 import Http2Wire, Outcome

Answer = TypeVar("Answer")


class Http2Connection(asyncio.Protocol):
    """A connection whose calls wait for futures."""

    def __init__(self, wire: Http2Wire) -> None:
        self._wire = wire
        self._transport: asyncio.Transport | None = None
        self._writable = True
        self._waiting: dict[int, asyncio.Future[Outcome]] = {}
        self._room = asyncio.Event()
        self.ended = asyncio.Event()

    @property
    def usable(self) -> bool:
        """Whether the connection takes new requests."""
        return self._wire.usable

    @property
    def batching(self) -> NegotiatedBatching | None:
        """What the settings of both sides come to."""
        return self._wire.batching

    async def ask(self, operation: Operation[Answer], attempts: Attempts) -> Answer:
        """Return the answer to `operation`, asked once."""
        while not self._wire.room:
            if not self._wire.usable:
                raise ConnectionFailedError("the connection takes no more requests", Retry.ALWAYS)
            self._room.clear()
            await self._room.wait()
        request = operation.http_request(attempts.timeout_to_send(time.monotonic()))
        stream_id = self._wire.open(request)
        answered = self._waiting[stream_id] = asyncio.get_running_loop().create_future()
        self._move()
        try:
            outcome = await answered
        finally:
            if self._waiting.pop(stream_id, None) is not None:
                self._wire.cancel(stream_id)
                self._move()
        if isinstance(outcome, ClientError):
            raise outcome
        return operation.http_answer(outcome)

    def offer(self, offer: BatchingOffer) -> None:
        """Renegotiate by a SETTINGS frame."""
        if self._wire.usable:
            self._wire.offer(offer)
            self._move()

    def retire(self) -> None:
        """Close when the last request is answered."""
        self._move()

    def close(self) -> None:
        """Fail what waits, say goodbye and close."""
        self._wire.close()
        self._move()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first frames."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._move()

    def data_received(self, data: bytes) -> None:
        """Take what came, and answer it."""
        self._wire.receive(data)
        self._move()

    def connection_lost(self, error: Exception | None) -> None:
        """Fail what waits."""
        self._wire.lost(f"the connection broke: {error}" if error else "the server closed the connection")
        self._move()
        self.ended.set()

    def pause_writing(self) -> None:
        """Leave bodies in the wire: the server does not read."""
        self._writable = False

    def resume_writing(self) -> None:
        """Go on."""
        self._writable = True
        self._move()

    def _move(self) -> None:
        """Write what can be written, settle what is finished, close what is over."""
        transport = self._transport
        if transport is None:
            return
        while self._writable and (data := self._wire.take()):
            if not transport.is_closing():
                transport.write(data)
        for stream_id, outcome in self._wire.finished().items():
            answered = self._waiting.pop(stream_id, None)
            if answered is not None and not answered.done():
                answered.set_result(outcome)
        if self._wire.room or not self._wire.usable:
            self._room.set()
        if self._wire.closed is not None:
            if self._writable:
                transport.close()
            else:
                transport.abort()
        elif not self._wire.usable and self._wire.idle:
            self._wire.close()
            self._move()


class Http2Transport:
    """One connection to a server, and the next one when it ends."""

    def __init__(self, address: Address, max_answer_bytes: int, offer: BatchingOffer | None) -> None:
        self._address = address
        self._max_answer_bytes = max_answer_bytes
        self._offer = offer
        self._connecting = asyncio.Lock()
        self._connection: Http2Connection | None = None
        self._older: list[Http2Connection] = []
        self._closed = False

    @property
    def batching(self) -> NegotiatedBatching | None:
        """What was negotiated on the present connection."""
        return self._connection.batching if self._connection is not None else None

    async def ask(self, operation: Operation[Answer], attempts: Attempts) -> Answer:
        """Return the answer to `operation`, asked once."""
        connection = self._connection
        if connection is None or not connection.usable:
            async with self._connecting:
                connection = self._connection
                if connection is None or not connection.usable:
                    connection = await self._next()
        return await connection.ask(operation, attempts)

    def offer(self, offer: BatchingOffer) -> None:
        """Offer this for requests from now on."""
        self._offer = offer
        if self._connection is not None:
            self._connection.offer(offer)

    async def close(self) -> None:
        """Close all connections; requests without an answer fail."""
        self._closed = True
        connections = [*self._older, *([self._connection] if self._connection else [])]
        self._older, self._connection = [], None
        for connection in connections:
            connection.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):  # the loop closes sockets in a later turn
                for connection in connections:
                    await connection.ended.wait()

    async def _next(self) -> Http2Connection:
        if self._closed:
            raise ConnectionFailedError("the client is closed", Retry.NEVER)
        address, loop = self._address, asyncio.get_running_loop()
        wire = Http2Wire(address, self._max_answer_bytes, self._offer)
        connection = Http2Connection(wire)
        try:
            if address.unix_path:
                await loop.create_unix_connection(lambda: connection, address.unix_path)
            else:
                await loop.create_connection(lambda: connection, address.host, address.port)
        except OSError as error:
            raise ConnectionFailedError(f"cannot connect to {address}: {error}", Retry.ALWAYS) from error
        self._older = [older for older in self._older if not older.ended.is_set()]
        if self._connection is not None:
            self._connection.retire()
            self._older.append(self._connection)
        if self._closed:
            connection.close()
            raise ConnectionFailedError("the client is closed", Retry.NEVER)
        self._connection = connection
        return connection
