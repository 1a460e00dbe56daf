"""gRPC on asyncio: a channel of grpcio, asked with bytes."""

import time
from typing import Any, TypeVar

import grpc
import grpc.aio

from mcp2026.api.batching_negotiation import BatchingOffer, NegotiatedBatching
from mcp2026.client.addresses import Address
from mcp2026.client.errors import ConnectionFailedError, Retry
from mcp2026.client.exchange import GrpcResponse, Operation
from mcp2026.client.grpc_calls import channel_options, error_of, metadata_of, texts
from mcp2026.client.negotiation import header_of
from mcp2026.client.retries import Attempts

Answer = TypeVar("Answer")


class GrpcTransport:
    """One channel to a server; grpcio makes and renews its connection."""

    def __init__(self, address: Address, max_answer_bytes: int, offer: BatchingOffer | None) -> None:
        self._channel = grpc.aio.insecure_channel(address.grpc_target, channel_options(max_answer_bytes))
        self._batch_capable = header_of(offer)
        self._methods: dict[str, Any] = {}
        self._closed = False
        self.batching: NegotiatedBatching | None = None
        """What was negotiated for the last call."""

    async def ask(self, operation: Operation[Answer], attempts: Attempts) -> Answer:
        """Return the answer to `operation`, asked once."""
        if self._closed:
            raise ConnectionFailedError("the client is closed", Retry.NEVER)
        left = attempts.timeout_to_send(time.monotonic())
        request = operation.grpc_request(left)
        method = self._methods.get(request.method)
        if method is None:
            method = self._methods[request.method] = self._channel.unary_unary(request.method)
        sent = metadata_of(request, self._batch_capable)
        call = method(request.message, timeout=left, metadata=sent)
        try:
            message = await call
            metadata = texts(await call.initial_metadata()) | texts(await call.trailing_metadata())
        except grpc.aio.AioRpcError as error:
            raise error_of(error, attempts.timeout) from error
        response = GrpcResponse(message, metadata)
        if request.batchable:
            self.batching = response.batching
        return operation.grpc_answer(response)

    def offer(self, offer: BatchingOffer) -> None:
        """Offer this with calls from now on."""
        self._batch_capable = header_of(offer)

    async def close(self) -> None:
        """Close the channel; calls without an answer fail."""
        self._closed = True
        await self._channel.close()
