"""The protocol over gRPC: the methods of `inference.GRPCInferenceService`."""

import logging
import time
from collections.abc import Callable
from typing import Any

from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError, Message

from mcp2026.api.scheduling_context import SchedulingContext
from mcp2026.runtime.errors import ErrorCode, RequestError, invalid
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.inference import Call
from mcp2026.runtime.metrics.runtime_metrics import RuntimeMetrics
from mcp2026.runtime.protocol.context_headers import carrying_reply, context_fields
from mcp2026.runtime.protocol.exchange import Cancel
from mcp2026.runtime.protocol.grpc.service import (
    CallHead,
    Inbound,
    Outbound,
    Reply,
    Respond,
    StreamMethod,
    UnaryMethod,
)
from mcp2026.runtime.protocol.open_inference import open_inference_pb2 as messages
from mcp2026.runtime.protocol.open_inference.administration import Changed
from mcp2026.runtime.protocol.open_inference.datatypes import Buffer
from mcp2026.runtime.protocol.open_inference.documents import Document
from mcp2026.runtime.protocol.open_inference.endpoint import Endpoint
from mcp2026.runtime.protocol.open_inference.errors import INTERNAL, error_reply
from mcp2026.runtime.protocol.open_inference.grpc_answers import GrpcAnswers
from mcp2026.runtime.protocol.open_inference.grpc_codec import (
    Inference,
    KnownMessages,
    decode_infer,
    encode_infer,
)
from mcp2026.runtime.protocol.open_inference.grpc_stream import InferStream
from mcp2026.runtime.protocol.open_inference.requests import InferRequest
from mcp2026.runtime.protocol.scheduling_labels import STICKY_KEY, SchedulingLabels, entitled

log = logging.getLogger(__name__)

SERVICE = "/inference.GRPCInferenceService/"

# Annotations of inner functions are evaluated at every call: they are plain names, which cost nothing.
_Parts = list[Buffer]
_Send = Callable[[], None]
_Fail = Callable[[RequestError, SchedulingContext | None], None]
_Ask = Callable[[Any], Message]
_Change = Callable[[Any, Changed], None]


class OpenInferenceService(Endpoint):
    """The methods, by path. Satisfies `GrpcService`."""

    def __post_init__(self) -> None:
        """Put the methods in place."""
        super().__post_init__()
        self._known = KnownMessages()
        pb = messages
        asks: dict[str, tuple[type[Message], _Ask]] = {
            "ServerLive": (pb.ServerLiveRequest, self._server_live),
            "ServerReady": (pb.ServerReadyRequest, self._server_ready),
            "ModelReady": (pb.ModelReadyRequest, self._model_ready),
            "ServerMetadata": (pb.ServerMetadataRequest, self._server_metadata),
            "ModelMetadata": (pb.ModelMetadataRequest, self._model_metadata),
            "ModelConfig": (pb.ModelConfigRequest, self._model_config),
            "ModelStatistics": (pb.ModelStatisticsRequest, self._model_statistics),
            "RepositoryIndex": (pb.RepositoryIndexRequest, self._index),
            "SystemSharedMemoryStatus": (pb.SystemSharedMemoryStatusRequest, self._system_status),
            "CudaSharedMemoryStatus": (pb.CudaSharedMemoryStatusRequest, self._cuda_status),
            "CudaSharedMemoryRegister": (pb.CudaSharedMemoryRegisterRequest, self._cuda_register),
            "CudaSharedMemoryUnregister": (pb.CudaSharedMemoryUnregisterRequest, self._cuda_unregister),
            "TraceSetting": (pb.TraceSettingRequest, self._trace),
            "LogSettings": (pb.LogSettingsRequest, self._log_settings),
        }
        changes: dict[str, tuple[type[Message], type[Message], _Change]] = {
            "RepositoryModelLoad": (
                pb.RepositoryModelLoadRequest,
                pb.RepositoryModelLoadResponse,
                self._load,
            ),
            "RepositoryModelUnload": (
                pb.RepositoryModelUnloadRequest,
                pb.RepositoryModelUnloadResponse,
                self._unload,
            ),
            "SystemSharedMemoryRegister": (
                pb.SystemSharedMemoryRegisterRequest,
                pb.SystemSharedMemoryRegisterResponse,
                self._system_register,
            ),
            "SystemSharedMemoryUnregister": (
                pb.SystemSharedMemoryUnregisterRequest,
                pb.SystemSharedMemoryUnregisterResponse,
                self._system_unregister,
            ),
        }
        self._unary: dict[str, UnaryMethod] = {
            SERVICE + "ModelInfer": self._infer,
            **{SERVICE + name: _answering(form, ask, self.metrics) for name, (form, ask) in asks.items()},
            **{
                SERVICE + name: _changing(form, answer, change, self.metrics)
                for name, (form, answer, change) in changes.items()
            },
        }
        self._streams: dict[str, StreamMethod] = {SERVICE + "ModelStreamInfer": self._stream}

    @property
    def closing(self) -> bool:
        """Connections should end when their calls are done."""
        return self.health.leaving

    def unary(self, path: str) -> UnaryMethod | None:
        """Return the unary method at `path`."""
        return self._unary.get(path)

    def streaming(self, path: str) -> StreamMethod | None:
        """Return the streaming method at `path`."""
        return self._streams.get(path)

    # --- inference

    def _infer(self, head: CallHead, content: bytes, respond: Respond) -> Cancel | None:
        context = self.contexts.of(head.metadata)
        if context is not None:
            respond = carrying_reply(respond, context)

        def answer(parts: _Parts) -> _Send:
            reply = Reply(b"".join(parts))
            return lambda: respond(reply)

        try:
            inference = Inference(content, self._known)
        except RequestError as error:
            respond(error_reply(error, self._refuse(error, context)))
            return None
        return self._submit(
            inference,
            head,
            context,
            answer,
            lambda error, context: respond(error_reply(error, context)),
            in_stream=False,
        )

    def _stream(self, head: CallHead, outbound: Outbound) -> Inbound:
        context = self.contexts.of(head.metadata)
        trailers = context_fields(context) if context is not None else ()

        def submit(
            inference: Inference, answer: Callable[[_Parts], _Send], fail: Callable[[RequestError], None]
        ) -> Cancel | None:
            return self._submit(
                inference,
                head,
                self.contexts.of(head.metadata),
                answer,
                lambda error, _context: fail(error),
                in_stream=True,
            )

        return InferStream(submit, self._known, self._refuse, trailers, outbound)

    def _refuse(self, error: RequestError, context: SchedulingContext | None = None) -> SchedulingContext:
        """Count and log a message that cannot be read; return the context for the answer."""
        self.failures.failed(error.code)
        return self.observer.refused(error, context, time.monotonic_ns())

    def _submit(
        self,
        inference: Inference,
        head: CallHead,
        context: SchedulingContext | None,
        answer: Callable[[_Parts], _Send],
        fail: _Fail,
        *,
        in_stream: bool,
    ) -> Cancel | None:
        """Give one request to the engine. Never raises."""
        arrived_ns = time.monotonic_ns()
        counters = self.failures
        names: tuple[str, str | None] = ("", None)
        try:
            if context is not None:
                self.contexts.admit(context)
            names = self._known.names(inference)
            model = self.store.model(names[0])
            counters = model.metrics
            version = model.version(names[1], head.metadata.get(STICKY_KEY))
            request = decode_infer(
                inference,
                head.metadata,
                version,
                self.regions,
                self.limits,
                model.config.priorities.levels,
                self._known,
            )
        except RequestError as error:
            counters.failed(error.code)
            fail(error, self.observer.refused(error, context, arrived_ns, names[0], names[1] or ""))
            return None
        except Exception:
            log.exception("an inference request failed")
            counters.failed(ErrorCode.INTERNAL)
            fail(INTERNAL, self.observer.refused(INTERNAL, context, arrived_ns, names[0]))
            return None
        wanted = request.wanted
        labels = SchedulingLabels(wanted.priority, wanted.tenant)
        if context is not None:
            labels = entitled(labels, context, model.config.priorities.levels)
        timeout_ns = wanted.timeout_ns
        if head.timeout_ns is not None:
            timeout_ns = min(timeout_ns, head.timeout_ns)
        return self.service.submit(
            _GrpcCall(
                version,
                request.inputs,
                request.rows,
                arrived_ns,
                timeout_ns,
                labels.priority,
                labels.tenant,
                request,
                answer,
                fail,
                in_stream,
                context=context,
                batching=None if head.batching is None else head.batching.negotiated,
            )
        )

    # --- server and models

    def _server_live(self, _request: Any) -> Message:
        return messages.ServerLiveResponse(live=True)

    def _server_ready(self, _request: Any) -> Message:
        return messages.ServerReadyResponse(ready=self.health.ready)

    def _model_ready(self, request: Any) -> Message:
        ready = not self.health.leaving and self.administration.ready(request.name, request.version or None)
        return messages.ModelReadyResponse(ready=ready)

    def _server_metadata(self, _request: Any) -> Message:
        return ParseDict(self.administration.server(), messages.ServerMetadataResponse())

    def _model_metadata(self, request: Any) -> Message:
        document = self.administration.metadata(request.name, request.version or None)
        return ParseDict(document, messages.ModelMetadataResponse())

    def _model_config(self, request: Any) -> Message:
        document = self.administration.config(request.name, request.version or None)
        return ParseDict({"config": document}, messages.ModelConfigResponse())

    def _model_statistics(self, request: Any) -> Message:
        document = self.administration.statistics(request.name or None, request.version or None)
        return ParseDict(document, messages.ModelStatisticsResponse())

    # --- the repository

    def _index(self, request: Any) -> Message:
        return ParseDict(
            {"models": self.administration.index(ready_only=request.ready)},
            messages.RepositoryIndexResponse(),
        )

    def _load(self, request: Any, changed: Changed) -> None:
        self.administration.load(request.model_name, request.parameters, changed)

    def _unload(self, request: Any, changed: Changed) -> None:
        self.administration.unload(request.model_name, changed)

    # --- shared memory

    def _system_status(self, request: Any) -> Message:
        regions = self.administration.regions(request.name or None)
        return ParseDict(_by_name(regions), messages.SystemSharedMemoryStatusResponse())

    def _system_register(self, request: Any, changed: Changed) -> None:
        self.administration.register(request.name, request.key, request.offset, request.byte_size, changed)

    def _system_unregister(self, request: Any, changed: Changed) -> None:
        self.administration.unregister(request.name or None, changed)

    def _cuda_status(self, request: Any) -> Message:
        regions = self.administration.cuda_regions(request.name or None)
        return ParseDict(_by_name(regions), messages.CudaSharedMemoryStatusResponse())

    def _cuda_register(self, _request: Any) -> Message:
        self.administration.register_cuda()
        return messages.CudaSharedMemoryRegisterResponse()

    def _cuda_unregister(self, _request: Any) -> Message:
        return messages.CudaSharedMemoryUnregisterResponse()

    # --- settings

    def _trace(self, request: Any) -> Message:
        settings = self.administration.trace_settings(request.settings, request.model_name)
        return ParseDict(
            {
                "settings": {
                    name: {"value": value if isinstance(value, list) else [value]}
                    for name, value in settings.items()
                }
            },
            messages.TraceSettingResponse(),
        )

    def _log_settings(self, request: Any) -> Message:
        settings = self.administration.log_settings(request.settings)
        kinds = {bool: "bool_param", int: "uint32_param", str: "string_param"}
        return ParseDict(
            {"settings": {name: {kinds[type(value)]: value} for name, value in settings.items()}},
            messages.LogSettingsResponse(),
        )


class _GrpcCall(Call):
    request: InferRequest[GrpcAnswers]
    answer: Callable[[_Parts], _Send]
    tell: _Fail
    in_stream: bool

    def encode(self, outputs: list[Array]) -> Callable[[], None]:
        return self.answer(encode_infer(self.request, outputs, final=self.in_stream))

    def fail(self, error: RequestError) -> None:
        self.tell(error, self.context)


def _answering(form: type[Message], ask: _Ask, metrics: RuntimeMetrics) -> UnaryMethod:
    """Return the method that answers at once with what `ask` returns."""

    def method(_head: CallHead, content: bytes, respond: Respond) -> None:
        try:
            reply = Reply(ask(_read(form, content)).SerializeToString())
        except RequestError as error:
            reply = error_reply(error)
        except Exception:
            log.exception("%s failed", form.DESCRIPTOR.name)
            metrics.version().failed(ErrorCode.INTERNAL)
            reply = error_reply(INTERNAL)
        respond(reply)

    return method


def _changing(
    form: type[Message], answer: type[Message], change: _Change, metrics: RuntimeMetrics
) -> UnaryMethod:
    """Return the method that answers when every process has made a change."""
    done = Reply(answer().SerializeToString())

    def method(_head: CallHead, content: bytes, respond: Respond) -> None:
        try:
            change(_read(form, content), lambda error: respond(done if error is None else error_reply(error)))
        except RequestError as error:
            respond(error_reply(error))
        except Exception:
            log.exception("%s failed", form.DESCRIPTOR.name)
            metrics.version().failed(ErrorCode.INTERNAL)
            respond(error_reply(INTERNAL))

    return method


def _read(form: type[Message], content: bytes) -> Message:
    try:
        return form.FromString(content)
    except DecodeError as error:
        raise invalid("message", f"cannot be read: {error}", f"a {form.DESCRIPTOR.name}") from error


def _by_name(regions: list[Document]) -> Document:
    return {"regions": {region["name"]: region for region in regions}}
