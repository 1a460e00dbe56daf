"""The blocking client."""

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self, TypeVar

import numpy.typing as npt

from mcp2026.api.batching_negotiation import BatchingOffer, NegotiatedBatching, check_offer
from mcp2026.client.addresses import Transport
from mcp2026.client.blocking.grpc import GrpcTransport
from mcp2026.client.blocking.http1 import Http1Transport
from mcp2026.client.blocking.http2 import Http2Transport
from mcp2026.client.calls import DEFAULT_ANSWER_BYTES, DEFAULT_CONNECTIONS, DEFAULT_TIMEOUT, Calls
from mcp2026.client.datatypes import Tensor
from mcp2026.client.errors import (
    ClientError,
    ConnectionFailedError,
    DeadlineExceededError,
    ModelNotFoundError,
    OverloadedError,
)
from mcp2026.client.exchange import Operation
from mcp2026.client.operations.inference import InferenceResult
from mcp2026.client.operations.models import ModelMetadata, ModelState
from mcp2026.client.operations.versions import RegisteredVersion, RetiredVersion
from mcp2026.client.retries import Attempts, RetryPolicy

Answer = TypeVar("Answer")


class _Transport(Protocol):
    @property
    def batching(self) -> NegotiatedBatching | None: ...

    def ask(self, operation: Operation[Answer], attempts: Attempts) -> Answer: ...

    def offer(self, offer: BatchingOffer) -> None: ...

    def close(self) -> None: ...


class Client:
    """Asks one server; any number of threads may share a client.

    Every call is over when its timeout is: waiting for a connection, retries and the answer are all in it.
    Close it, or use it in `with`, to give its connections back.
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
        """Make a client; it connects when it is first asked.

        Args:
            url: `http://host:8080`, `h2://host:8080` (HTTP/2 with prior knowledge), `grpc://host:8081`,
                `unix:///path`, `h2+unix:///path` or `grpc+unix:///path`.
            http2: speak HTTP/2 where `url` says `http` or `unix`.
            timeout: of calls that name none, in s.
            batching: what to offer for requests to share batches with others, which may make them wait; True
                is 50 ms and 3 rows. By default HTTP/2 offers that, HTTP/1.1 and gRPC offer nothing.
            retry: how often to try again, and how soon.
            headers: sent with every request, over gRPC as metadata.
            max_connections: most at a time over HTTP/1.1; HTTP/2 and gRPC need one.
            max_answer_bytes: a larger answer is a `ProtocolError`.

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
        self._transport = _transport(self._calls)

    def infer(
        self,
        inputs: Mapping[str, npt.ArrayLike | Tensor],
        *,
        model: str,
        version: str | None = None,
        outputs: Sequence[str] | None = None,
        timeout: float | None = None,
        priority: int | None = None,
        tenant: str | None = None,
        request_id: str | None = None,
        traceparent: str | None = None,
        batchable: bool = True,
    ) -> InferenceResult:
        """Return the outputs of `model` for `inputs`.

        Args:
            inputs: an array for each input by name, in the shape that the model takes, rows first. Its dtype
                is the model's: bool, int8 to int64, uint8 to uint64, float16, float32, float64; str, bytes or
                objects for BYTES; `Tensor(array, "BF16")` or an array of `ml_dtypes.bfloat16` for BF16.
            model: its name.
            version: its id; by the server's weights, or its newest, if missing.
            outputs: names of the outputs wanted; all if missing.
            timeout: longest until the answer, in s. The server is told and gives up then, too.
            priority: 1 is served first; the server's default if missing.
            tenant: who is charged for it, 1 to 63 characters.
            request_id: comes back as `InferenceResult.request_id`.
            traceparent: W3C Trace Context. If missing, that of OpenTelemetry's current span is sent where
                the program has imported OpenTelemetry.
            batchable: False: do not let this request wait for others, whatever was negotiated.

        Raises:
            InvalidRequestError: the server does not accept it; `field` and `allowed` say why.
            ModelNotFoundError: there is no such model or version.
            OverloadedError: the server takes no more now.
            DeadlineExceededError: the timeout passed.
            ServerError: the execution failed.
            ConnectionFailedError: the server is not there.
            ProtocolError: the answer makes no sense, or is too large.

        """
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
        return self._ask(question, timeout)

    def models(self, *, timeout: float | None = None) -> list[ModelState]:
        """Return every version of every model that the server knows, also those that are not ready.

        Raises:
            ClientError: as for `infer`; a server without Triton's repository extension has no list.

        """
        return self._ask(self._calls.list_models(), timeout)

    def model(self, model: str, *, version: str | None = None, timeout: float | None = None) -> ModelMetadata:
        """Return names, datatypes and shapes of what `model` takes and gives.

        Raises:
            ClientError: as for `infer`.

        """
        return self._ask(self._calls.describe(model, version), timeout)

    def register_version(
        self,
        model: str,
        version: str,
        uri: str,
        *,
        weight: int,
        owner_email: str,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> RegisteredVersion:
        """Have a version of `model` loaded, warmed up and served; of our own API, not Triton's.

        Args:
            model: its name.
            version: the id that the new version gets.
            uri: `pvc://claim/path` or `file:///path` of its file, where the server sees it.
            weight: percent of the requests that name no version, 0 to 100; the other versions share the rest.
            owner_email: who answers for it.
            request_id: a UUID; the same one again is the same request. Made if missing.
            timeout: longest until it is served, in s: loading can take longer than an inference.

        Raises:
            ClientError: as for `infer`.

        """
        question = self._calls.register(
            model, version, uri, weight=weight, owner_email=owner_email, request_id=request_id
        )
        return self._ask(question, timeout)

    def retire_version(self, model: str, version: str, *, timeout: float | None = None) -> RetiredVersion:
        """Have a version of `model` served no more; what it has taken is answered. Of our own API.

        Raises:
            ClientError: as for `infer`; the last version of a model cannot be retired.

        """
        return self._ask(self._calls.retire(model, version), timeout)

    def ready(
        self, model: str | None = None, *, version: str | None = None, timeout: float | None = None
    ) -> bool:
        """Return whether the server, or `model`, answers inferences; False also if nothing answers in time.

        It is asked once, without retries.

        Raises:
            ProtocolError: something answers, but not in this protocol.

        """
        question = self._calls.ask_ready(model, version)
        try:
            return self._transport.ask(question, self._calls.attempts(question, timeout))
        except (ConnectionFailedError, DeadlineExceededError, ModelNotFoundError, OverloadedError):
            return False

    @property
    def batching(self) -> NegotiatedBatching | None:
        """What was negotiated: over HTTP/2 for the connection, over gRPC for the last inference.

        None: nothing was, or not yet. Over HTTP/1.1 it is told by each `InferenceResult.batching` alone.
        """
        return self._transport.batching

    def renegotiate(self, offer: BatchingOffer) -> None:
        """Offer something else for the requests that begin from now on; over HTTP/2 by a SETTINGS frame.

        Raises:
            ValueError: a value of `offer` is out of its range.

        """
        check_offer(offer)
        self._transport.offer(offer)

    def close(self) -> None:
        """Close all connections; over HTTP/1.1 requests that are on their way are still answered."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(self, operation: Operation[Answer], timeout: float | None) -> Answer:
        attempts = self._calls.attempts(operation, timeout)
        while True:
            try:
                return self._transport.ask(operation, attempts)
            except ClientError as error:
                pause = attempts.pause_after(error, time.monotonic())
            time.sleep(pause)


def _transport(calls: Calls) -> _Transport:
    match calls.address.transport:
        case Transport.HTTP1:
            return Http1Transport(calls.address, calls.max_connections, calls.max_answer_bytes, calls.offer)
        case Transport.HTTP2:
            return Http2Transport(calls.address, calls.max_answer_bytes, calls.offer)
        case Transport.GRPC:
            return GrpcTransport(calls.address, calls.max_answer_bytes, calls.offer)
