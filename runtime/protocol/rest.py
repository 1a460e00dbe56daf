"""The REST API: paths, verbs, status codes and error bodies. Everything else lies behind it."""

import logging
import time
from collections.abc import Callable
from functools import partial

from mcp2026.api.scheduling_context import SchedulingContext
from mcp2026.runtime.context.observer import RequestObserver, plain_observer
from mcp2026.runtime.errors import ErrorCode, RequestError, invalid
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.health import Health
from mcp2026.runtime.inference import Call, InferenceService
from mcp2026.runtime.metrics.runtime_metrics import RuntimeMetrics, VersionMetrics
from mcp2026.runtime.model.signature import STRING
from mcp2026.runtime.model.store import ModelStore
from mcp2026.runtime.protocol.context_headers import carrying
from mcp2026.runtime.protocol.exchange import Cancel, Handler, RequestHead, Respond, Response
from mcp2026.runtime.protocol.json_codec import InferRequest, JsonCodec
from mcp2026.runtime.protocol.json_turns import LARGE_BODY, LARGE_VALUES, InTurns, Turns, at_once
from mcp2026.runtime.protocol.observability import Observability, error_response, internal_error
from mcp2026.runtime.protocol.scheduling_labels import STICKY_KEY, entitled, scheduling_labels

log = logging.getLogger(__name__)

INFER_PATH = "/v1/infer"


class RestApi(Observability):
    """Inference besides health and metrics."""

    def __init__(
        self,
        health: Health,
        metrics: RuntimeMetrics,
        store: ModelStore,
        service: InferenceService,
        max_timeout_ns: int,
        observer: RequestObserver | None = None,
        paths_beside: tuple[str, ...] = (),
    ) -> None:
        super().__init__(health, metrics)
        self._paths_beside = paths_beside
        self._observer = observer or plain_observer()
        self._contexts = self._observer.contexts
        self._store = store
        self._service = service
        self._codec = JsonCodec(store, max_timeout_ns)
        self._turns = Turns()
        self._routes |= {INFER_PATH: {"POST": self.infer}}

    def admit(self, head: RequestHead) -> Response | None:
        """Refuse unknown paths, wrong verbs and compressed bodies before their body is read."""
        encoding = head.headers.get(b"content-encoding")
        if encoding is not None and head.path == INFER_PATH and encoding.lower() != b"identity":
            problem = f"{encoding[:32].decode('latin-1')!r} is not taken here"
            return error_response(invalid("content-encoding", problem, "none; /v2 takes gzip and deflate"))
        if head.refused_offer is not None:
            offer = head.refused_offer
            return error_response(invalid(offer.field, offer.problem, offer.allowed, offer.rule))
        return super().admit(head)

    def handler(self, head: RequestHead) -> Handler:
        """Return what serves requests with such a head, which was admitted."""
        return self.infer if head.path == INFER_PATH else self.begin

    def infer(self, head: RequestHead, body: bytes, respond: Respond) -> Cancel | None:
        """Serve one inference request. Whatever goes wrong in here, it is answered."""
        arrived_ns = time.monotonic_ns()
        context = self._contexts.of(head.headers)
        if context is not None:
            respond = carrying(respond, context)
        if len(body) > LARGE_BODY:
            return self._infer_in_turns(head, body, respond, arrived_ns, context)
        try:
            return self._submit(
                self._codec.decode(body, head.headers.get(STICKY_KEY)), head, respond, arrived_ns, context
            )
        except RequestError as error:
            self._fail(error, respond, arrived_ns, context)
        except Exception:
            log.exception("%s %s failed", head.method, head.path)
            self._fail(internal_error(), respond, arrived_ns, context)
        return None

    def _infer_in_turns(
        self,
        head: RequestHead,
        body: bytes,
        respond: Respond,
        arrived_ns: int,
        context: SchedulingContext | None,
    ) -> Cancel:
        cancel: Cancel | None = None

        def read() -> InTurns[None]:
            nonlocal cancel
            try:
                request = yield from self._codec.decode_in_turns(body, head.headers.get(STICKY_KEY))
                cancel = self._submit(request, head, respond, arrived_ns, context)
            except RequestError as error:
                self._fail(error, respond, arrived_ns, context)
            except Exception:
                log.exception("a large body could not be read")
                self._fail(internal_error(), respond, arrived_ns, context)

        work = read()
        if not self._turns.add(work, len(body)):
            error = RequestError(ErrorCode.QUEUE_FULL, "too many large bodies wait already")
            self._fail(error, respond, arrived_ns, context)
        return lambda: work.close() if cancel is None else cancel()

    def _submit(
        self,
        request: InferRequest,
        head: RequestHead,
        respond: Respond,
        arrived_ns: int,
        context: SchedulingContext | None,
    ) -> Cancel:
        config = request.model.config
        labels = scheduling_labels(head.headers, config)
        if context is not None:
            self._contexts.admit(context)
            labels = entitled(labels, context, config.priorities.levels)
        return self._service.submit(
            _RestCall(
                request.version,
                request.inputs,
                request.rows,
                arrived_ns,
                request.timeout_ns,
                labels.priority,
                labels.tenant,
                request,
                respond,
                self._codec,
                self._turns,
                context=context,
                batching=None if head.batching is None else head.batching.negotiated,
            )
        )

    def _counters(self) -> VersionMetrics:
        """Return what counts a refused request: those of the model if there is only one."""
        models = self._store.models()
        return models[0].metrics if len(models) == 1 else self._failures

    def _fail(
        self, error: RequestError, respond: Respond, arrived_ns: int, context: SchedulingContext | None
    ) -> None:
        self._counters().failed(error.code)
        context = self._observer.refused(error, context, arrived_ns)
        respond(error_response(error, context=context))


class _RestCall(Call):
    request: InferRequest
    respond: Respond
    codec: JsonCodec
    turns: Turns

    def encode(self, outputs: list[Array]) -> Callable[[], None]:
        for array in outputs:
            if array.size > LARGE_VALUES and array.dtype != STRING:
                return partial(self._send_in_turns, [array.copy() for array in outputs])
        return partial(self.respond, Response(200, self.codec.encode(self.request, outputs)))

    def fail(self, error: RequestError) -> None:
        self.respond(error_response(error, context=self.context))

    def _send_in_turns(self, outputs: list[Array]) -> None:
        size = sum(array.nbytes for array in outputs)
        if not self.turns.add(self._write(outputs), size):
            at_once(self._write(outputs))

    def _write(self, outputs: list[Array]) -> InTurns[None]:
        try:
            body = yield from self.codec.encode_in_turns(self.request, outputs)
        except RequestError as error:
            self.fail(error)
        else:
            self.respond(Response(200, body))
