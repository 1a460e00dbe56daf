"""gRPC on a blocking client: a channel of grpcio, asked with bytes."""

import threading
import time
from typing import Any, TypeVar

import grpc

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
        self._channel = grpc.insecure_channel(address.grpc_target, channel_options(max_answer_bytes))
        self._batch_capable = header_of(offer)
        self._methods: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._closed = False
        self.batching: NegotiatedBatching | None = None
        """What was negotiated for the last call."""

    def ask(self, operation: Operation[Answer], attempts: Attempts) -> Answer:
        """Return the answer to `operation`, asked once."""
        left = attempts.timeout_to_send(time.monotonic())
        request = operation.grpc_request(left)
        metadata = metadata_of(request, self._batch_capable)
        try:
            message, call = self._method(request.method).with_call(
                request.message, timeout=left, metadata=metadata
            )
        except grpc.RpcError as error:
            raise error_of(error, attempts.timeout) from error
        response = GrpcResponse(message, texts(call.initial_metadata()) | texts(call.trailing_metadata()))
        if request.batchable:
            self.batching = response.batching
        return operation.grpc_answer(response)

    def offer(self, offer: BatchingOffer) -> None:
        """Offer this with calls from now on."""
        self._batch_capable = header_of(offer)

    def close(self) -> None:
        """Close the channel; calls without an answer fail."""
        with self._lock:
            self._closed = True
        self._channel.close()

    def _method(self, name: str) -> Any:
        with self._lock:
            if self._closed:
                raise ConnectionFailedError("the client is closed", Retry.NEVER)
            if name not in self._methods:
                self._methods[name] = self._channel.unary_unary(name)
            return self._methods[name]
