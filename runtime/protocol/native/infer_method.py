"""`InferenceService.Infer`: the request of `/v1/infer` as a message."""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import msgspec
from google.protobuf.message import DecodeError

from mcp2026.api.contract.messages import document_of
from mcp2026.api.contract.native_pb2 import InferRequest
from mcp2026.api.contract.violations import ContractError
from mcp2026.api.scheduling_context import SchedulingContext
from mcp2026.runtime.context.observer import RequestObserver, plain_observer
from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.inference import Call, InferenceService
from mcp2026.runtime.metrics.runtime_metrics import RuntimeMetrics, VersionMetrics
from mcp2026.runtime.model.signature import STRING
from mcp2026.runtime.model.store import ModelStore
from mcp2026.runtime.protocol.context_headers import carrying_reply
from mcp2026.runtime.protocol.exchange import Cancel
from mcp2026.runtime.protocol.grpc.service import CallHead, Reply, Respond
from mcp2026.runtime.protocol.json_codec import InferRequest as JsonRequest
from mcp2026.runtime.protocol.json_codec import JsonCodec
from mcp2026.runtime.protocol.json_turns import LARGE_BODY, LARGE_VALUES, InTurns, Turns, at_once
from mcp2026.runtime.protocol.native.errors import INTERNAL, error_reply, refused, unreadable
from mcp2026.runtime.protocol.native.infer_messages import Inference, answer, fitting
from mcp2026.runtime.protocol.native.tasks import Tasks
from mcp2026.runtime.protocol.scheduling_labels import STICKY_KEY, entitled, scheduling_labels

log = logging.getLogger(__name__)


class InferMethod:
    """Serves the calls of one process."""

    def __init__(
        self,
        metrics: RuntimeMetrics,
        store: ModelStore,
        service: InferenceService,
        max_timeout_ns: int,
        observer: RequestObserver | None = None,
    ) -> None:
        self._observer = observer or plain_observer()
        self._contexts = self._observer.contexts
        self._store = store
        self._service = service
        self._max_timeout_ns = max_timeout_ns
        self._codec = JsonCodec(store, max_timeout_ns)
        self._turns = Turns()
        self._tasks = Tasks()
        self._failures = metrics.version()
        """Counts requests that failed before their model was known."""

    def __call__(self, head: CallHead, content: bytes, respond: Respond) -> Cancel | None:
        """Serve one call. Whatever goes wrong in here, it is answered."""
        arrived_ns = time.monotonic_ns()
        context = self._contexts.of(head.metadata)
        if context is not None:
            respond = carrying_reply(respond, context)
        asked = _Asked(head, respond, arrived_ns, context)
        try:
            message = _parsed(content)
            inference = self._fitting(message, head.metadata.get(STICKY_KEY))
            if inference is None and len(content) > LARGE_BODY:
                return self._tasks.start(self._look_closely_in_turns(message, asked))
            return self._submit(inference or self._look_closely(message), asked)
        except RequestError as error:
            self._fail(error, asked)
        except Exception:
            log.exception("an inference failed")
            self._broke(asked)
        return None

    def _fitting(self, message: InferRequest, sticky_key: bytes | None) -> Inference | None:
        try:
            model = self._store.only(message.model if message.HasField("model") else None)
            version_id = message.version_id if message.HasField("version_id") else None
            version = model.version(version_id, sticky_key)
        except RequestError:
            return None  # there may be something else that is told first
        inference = fitting(message, model, version, self._max_timeout_ns)
        if inference is None:
            message.version_id = version.version_id  # its turn by weight is taken
        return inference

    def _look_closely(self, message: InferRequest) -> Inference:
        return _inference_of(self._codec.decode(_body_of(message)))

    async def _look_closely_in_turns(self, message: InferRequest, asked: "_Asked") -> None:
        """Do the same without holding up the event loop for long, and go on to the answer."""
        loop = asyncio.get_running_loop()
        read: asyncio.Future[Inference] = loop.create_future()
        cancel: Cancel | None = None
        try:
            body = await asyncio.to_thread(_body_of, message)
            if not self._turns.add(self._read(body, read), len(body)):
                self._fail(RequestError(ErrorCode.QUEUE_FULL, "too many large bodies wait already"), asked)
                return
            inference = await read
            answered = asyncio.Event()

            def told(reply: Reply) -> None:
                asked.respond(reply)
                answered.set()

            cancel = self._submit(inference, asked._replace(respond=told))
            await answered.wait()
        except asyncio.CancelledError:  # the caller has gone
            if cancel is not None:
                cancel()
            raise
        except RequestError as error:
            self._fail(error, asked)
        except Exception:
            log.exception("an inference failed")
            self._broke(asked)

    def _read(self, body: bytes, read: "asyncio.Future[Inference]") -> InTurns[None]:
        try:
            inference = _inference_of((yield from self._codec.decode_in_turns(body)))
        except Exception as error:
            if not read.done():  # the caller may have gone
                read.set_exception(error)
        else:
            if not read.done():
                read.set_result(inference)

    def _submit(self, inference: Inference, asked: "_Asked") -> Cancel:
        version, context, terms = inference.version, asked.context, asked.head.batching
        labels = scheduling_labels(asked.head.metadata, version.config)
        if context is not None:
            self._contexts.admit(context)
            labels = entitled(labels, context, version.config.priorities.levels)
        timeout_ns = inference.timeout_ns
        if asked.head.timeout_ns is not None:
            timeout_ns = min(timeout_ns, asked.head.timeout_ns)
        return self._service.submit(
            _MessageCall(
                version,
                inference.inputs,
                inference.rows,
                asked.arrived_ns,
                timeout_ns,
                labels.priority,
                labels.tenant,
                inference,
                asked.respond,
                self._turns,
                context=context,
                batching=None if terms is None else terms.negotiated,
            )
        )

    def _counters(self) -> VersionMetrics:
        """Return what counts a refused request: those of the model if there is only one."""
        models = self._store.models()
        return models[0].metrics if len(models) == 1 else self._failures

    def _fail(self, error: RequestError, asked: "_Asked") -> None:
        self._counters().failed(error.code)
        context = self._observer.refused(error, asked.context, asked.arrived_ns)
        asked.respond(error_reply(error, context))

    def _broke(self, asked: "_Asked") -> None:
        self._failures.failed(ErrorCode.INTERNAL)
        asked.respond(error_reply(INTERNAL, asked.context))


class _Asked(NamedTuple):
    """A call, and how it is answered."""

    head: CallHead
    respond: Respond
    arrived_ns: int
    context: SchedulingContext | None


class _MessageCall(Call):
    inference: Inference
    respond: Respond
    turns: Turns

    def encode(self, outputs: list[Array]) -> Callable[[], None]:
        for array in outputs:
            if array.size > LARGE_VALUES and array.dtype != STRING:
                return partial(self._send_in_turns, [array.copy() for array in outputs])
        return partial(self.respond, Reply(at_once(answer(self.inference, outputs))))

    def fail(self, error: RequestError) -> None:
        self.respond(error_reply(error, self.context))

    def _send_in_turns(self, outputs: list[Array]) -> None:
        size = sum(array.nbytes for array in outputs)
        if not self.turns.add(self._write(outputs), size):
            at_once(self._write(outputs))

    def _write(self, outputs: list[Array]) -> InTurns[None]:
        try:
            message = yield from answer(self.inference, outputs)
        except RequestError as error:
            self.fail(error)
        else:
            self.respond(Reply(message))


def _parsed(content: bytes) -> InferRequest:
    try:
        return InferRequest.FromString(content)
    except DecodeError as error:
        raise unreadable("InferRequest", error) from error


def _inference_of(read: JsonRequest) -> Inference:
    return Inference(
        read.version, read.inputs, read.rows, read.outputs, read.timeout_ns, read.id, read.simple
    )


def _body_of(message: Any) -> bytes:
    """Return the body that `message` stands for."""
    try:
        return msgspec.json.encode(document_of(message))
    except ContractError as error:
        raise refused(error) from error
