"""The client on asyncio."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self, TypeVar

import numpy.typing as npt

from mcp2026.api.batching_negotiation import BatchingOffer, NegotiatedBatching, check_offer
from mcp2026.client.addresses import Transport
from mcp2026.client.asynchronous.grpc import GrpcTransport
from mcp2026.client.asynchronous.http1 import Http1Transport
from mcp2026.client.asynchronous.http2 import Http2Transport
from mcp2026.client.calls import DEFAULT_ANSWER_BYTES, DEFAULT_CONNECTIONS, DEFAULT_TIMEOUT, Calls
from mcp2026.client.datatypes import Tensor
from mcp2026.client.errors import (
    ClientError,
    ConnectionFailedError,
    DeadlineExceededError,
    ModelNotFoundError,
    OverloadedError,
    Retry,
)
from mcp2026.client.exchange import Operation
from mcp2026.client.operations.inference import InferenceResult
from mcp2026.client.operations.models import ModelMetadata, ModelState
from mcp2026.client.operations.versions import RegisteredVersion, RetiredVersion
from mcp2026.client.retries import Attempts, RetryPolicy, deadline_exceeded

Answer = TypeVar("Answer")


class _Transport(Protocol):
    @property
    def batching(self) -> NegotiatedBatching | None: ...

    async def ask(self, operation: Operation[Answer], attempts: Attempts) -> Answer: ...

    def offer(self, offer: BatchingOffer) -> None: ...

    async def close(self) -> None: ...


class AsyncClient:
    """Asks one server; any number of tasks of one loop may share a client.

    Arguments, answers and errors are those of `Client`. A call that is cancelled tells the server so.
    """

    def __init__(
        self,
        url: str,
        *,
        http2: bool = False,
        timeout: float = DEFAULT_TIMEOUT,
        batching: BatchingOffer | bool | None = None,
        retry: RetryPolicy | None = None,
        headers: Mapping[str, str] | None = None,
        max_connections: int = DEFAULT_CONNECTIONS,
        max_answer_bytes: int = DEFAULT_ANSWER_BYTES,
    ) -> None:
        """Make a client, with the arguments of `Client`; it belongs to the loop that first asks.

        Raises:
            ValueError: an argument is out of its range, or `url` of no known form.

        """
        self._calls = Calls(
            url,
            http2=http2,
            timeout=timeout,
            batching=batching,
            retry=retry,
            headers=headers,
            max_connections=max_connections,
            max_answer_bytes=max_answer_bytes,
        )
        self._transport: _Transport | None = None
        self._closed = False

    async def infer(
        self,
        inputs: Mapping[str, npt.ArrayLike | Tensor],
        *,
        model: str,
        version: str | None = None,
        outputs: Sequence[str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # it also travels to the server
        priority: int | None = None,
        tenant: str | None = None,
        request_id: str | None = None,
        traceparent: str | None = None,
        batchable: bool = True,
    ) -> InferenceResult:
        """Return the outputs of `model` for `inputs`, as `Client.infer` does, with the same errors."""
        question = self._calls.inference(
            inputs,
            model=model,
            version=version,
            outputs=outputs,
            priority=priority,
            tenant=tenant,
            request_id=request_id,
            traceparent_given=traceparent,
            batchable=batchable,
        )
        return await self._ask(question, timeout)

    async def models(self, *, timeout: float | None = None) -> list[ModelState]:  # noqa: ASYNC109  # the server gets it too
        """Return every version of every model that the server knows, as `Client.models` does."""
        return await self._ask(self._calls.list_models(), timeout)

    async def model(
        self,
        model: str,
        *,
        version: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # the server gets it too
    ) -> ModelMetadata:
        """Return names, datatypes and shapes of what `model` takes and gives, as `Client.model` does."""
        return await self._ask(self._calls.describe(model, version), timeout)

    async def register_version(
        self,
        model: str,
        version: str,
        uri: str,
        *,
        weight: int,
        owner_email: str,
        request_id: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # the server gets it too
    ) -> RegisteredVersion:
        """Have a version of `model` loaded, warmed up and served, as `Client.register_version` does."""
        question = self._calls.register(
            model, version, uri, weight=weight, owner_email=owner_email, request_id=request_id
        )
        return await self._ask(question, timeout)

    async def retire_version(
        self,
        model: str,
        version: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109  # the server gets it too
    ) -> RetiredVersion:
        """Have a version of `model` served no more, as `Client.retire_version` does."""
        return await self._ask(self._calls.retire(model, version), timeout)

    async def ready(
        self,
        model: str | None = None,
        *,
        version: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # the server gets it too
    ) -> bool:
        """Return whether the server, or `model`, answers inferences, as `Client.ready` does."""
        question = self._calls.ask_ready(model, version)
        try:
            return await self._ask_once(question, self._calls.attempts(question, timeout))
        except (ConnectionFailedError, DeadlineExceededError, ModelNotFoundError, OverloadedError):
            return False

    @property
    def batching(self) -> NegotiatedBatching | None:
        """What was negotiated, as `Client.batching` says it."""
        return self._transport.batching if self._transport is not None else None

    def renegotiate(self, offer: BatchingOffer) -> None:
        """Offer something else for the requests that begin from now on, as `Client.renegotiate` does."""
        check_offer(offer)
        self._calls.offer = offer
        if self._transport is not None:
            self._transport.offer(offer)

    async def close(self) -> None:
        """Close all connections; over HTTP/1.1 requests that are on their way are still answered."""
        self._closed = True
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _ask(self, operation: Operation[Answer], seconds: float | None) -> Answer:
        attempts = self._calls.attempts(operation, seconds)
        while True:
            try:
                return await self._ask_once(operation, attempts)
            except ClientError as error:
                pause = attempts.pause_after(error, time.monotonic())
            await asyncio.sleep(pause)

    async def _ask_once(self, operation: Operation[Answer], attempts: Attempts) -> Answer:
        if self._transport is None:
            if self._closed:
                raise ConnectionFailedError("the client is closed", Retry.NEVER)
            self._transport = _transport(self._calls)
        try:
            async with asyncio.timeout(attempts.deadline - time.monotonic()):
                return await self._transport.ask(operation, attempts)
        except DeadlineExceededError:
            raise
        except TimeoutError:
            raise deadline_exceeded(attempts.timeout) from None


def _transport(calls: Calls) -> _Transport:
    match calls.address.transport:
        case Transport.HTTP1:
            return Http1Transport(calls.address, calls.max_connections, calls.max_answer_bytes, calls.offer)
        case Transport.HTTP2:
            return Http2Transport(calls.address, calls.max_answer_bytes, calls.offer)
        case Transport.GRPC:
            return GrpcTransport(calls.address, calls.max_answer_bytes, calls.offer)
