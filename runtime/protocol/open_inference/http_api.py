"""The protocol over HTTP: every path below /v2, mounted beside the REST API."""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from mcp2026.runtime.errors import ErrorCode, RequestError, invalid
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.inference import Call
from mcp2026.runtime.protocol.context_headers import carrying
from mcp2026.runtime.protocol.exchange import Cancel, RequestHead, Respond, Response
from mcp2026.runtime.protocol.open_inference.administration import Changed
from mcp2026.runtime.protocol.open_inference.compression import (
    AT_ONCE,
    ENCODINGS,
    SMALLEST,
    accepted,
    encoding_of,
)
from mcp2026.runtime.protocol.open_inference.endpoint import Endpoint
from mcp2026.runtime.protocol.open_inference.errors import INTERNAL, error_response, error_text
from mcp2026.runtime.protocol.open_inference.http_answers import HttpAnswers
from mcp2026.runtime.protocol.open_inference.http_codec import (
    compressed,
    decode_infer,
    encode_infer,
    misfit,
)
from mcp2026.runtime.protocol.open_inference.http_plans import HttpPlans
from mcp2026.runtime.protocol.open_inference.packed_bodies import PackedBodies
from mcp2026.runtime.protocol.open_inference.parameters import Value
from mcp2026.runtime.protocol.open_inference.paths import PATHS, ROOT, PathTable, Resource, Target
from mcp2026.runtime.protocol.open_inference.requests import InferRequest
from mcp2026.runtime.protocol.scheduling_labels import STICKY_KEY, SchedulingLabels, entitled

log = logging.getLogger(__name__)

_Handler = Callable[[Target, RequestHead, bytes, Respond], Cancel | None]

_EMPTY = Response(200, b"")


class _LoadDocument(msgspec.Struct):
    parameters: dict[str, Any] | None = None


class _IndexDocument(msgspec.Struct):
    ready: bool = False


class _RegisterDocument(msgspec.Struct):
    key: str
    byte_size: int
    offset: int = 0


_Settings = dict[str, Value | list[str] | None]


class OpenInferenceApi(Endpoint):
    """Answers the requests whose path begins with /v2."""

    def __post_init__(self) -> None:
        """Open the paths."""
        super().__post_init__()
        self._paths = PathTable()
        self._known = HttpPlans()
        self._packed = PackedBodies(self.limits.max_tensor_bytes, self.limits.room)
        self._routes: dict[Resource, dict[str, _Handler]] = {
            Resource.SERVER: {"GET": self._server},
            Resource.LIVE: {"GET": self._live},
            Resource.READY: {"GET": self._ready},
            Resource.MODEL: {"GET": self._metadata},
            Resource.MODEL_READY: {"GET": self._model_ready},
            Resource.CONFIG: {"GET": self._config},
            Resource.STATISTICS: {"GET": self._statistics},
            Resource.ALL_STATISTICS: {"GET": self._statistics},
            Resource.INFER: {"POST": self._infer},
            Resource.INDEX: {"POST": self._index},
            Resource.LOAD: {"POST": self._load},
            Resource.UNLOAD: {"POST": self._unload},
            Resource.SYSTEM_STATUS: {"GET": self._system_status},
            Resource.SYSTEM_REGISTER: {"POST": self._system_register},
            Resource.SYSTEM_UNREGISTER: {"POST": self._system_unregister},
            Resource.CUDA_STATUS: {"GET": self._cuda_status},
            Resource.CUDA_REGISTER: {"POST": self._cuda_register},
            Resource.CUDA_UNREGISTER: {"POST": self._cuda_unregister},
            Resource.TRACE: {"GET": self._trace, "POST": self._trace},
            Resource.LOGGING: {"GET": self._logging, "POST": self._logging},
        }

    def serves(self, path: str) -> bool:
        """Return whether a path belongs to this protocol, whether or not anything is there."""
        return path.startswith(ROOT) and path[len(ROOT) : len(ROOT) + 1] in ("", "/")

    def admit(self, head: RequestHead) -> Response | None:
        """Refuse unknown paths, wrong verbs, large bodies and unknown encodings before the body is read."""
        target = self._paths.find(head.path)
        if target is None:
            return error_response(
                RequestError(
                    ErrorCode.NOT_FOUND, f"nothing at {head.path[:200]}; there are {', '.join(PATHS)}"
                )
            )
        verbs = self._routes[target.resource]
        if head.method not in verbs and not (head.method == "HEAD" and "GET" in verbs):
            error = RequestError(
                ErrorCode.METHOD_NOT_ALLOWED, f"{head.path[:200]} does not take {head.method}"
            )
            return error_response(error, ((b"allow", ", ".join(verbs).encode()),))
        length = head.headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > self.limits.max_tensor_bytes:
            # Connections refuse it too, but not in words that clients of this protocol can read.
            limit = self.limits.max_tensor_bytes
            error = RequestError(ErrorCode.BODY_TOO_LARGE, f"the body is larger than {limit} bytes")
            return error_response(error)
        encoding = head.headers.get(b"content-encoding")
        if encoding is not None:
            try:
                encoding_of(encoding)
            except RequestError as error:
                return error_text(415, error.message, ((b"accept-encoding", ", ".join(ENCODINGS).encode()),))
        if head.refused_offer is not None:
            return error_text(400, str(head.refused_offer))
        return None

    def begin(self, head: RequestHead, body: bytes, respond: Respond) -> Cancel | None:
        """Serve one request that was admitted. Whatever goes wrong in here, it is answered."""
        if b"content-encoding" not in head.headers:
            target = self._paths.find(head.path)
            if target is not None and target.resource is Resource.INFER:
                head.handler = partial(self._infer, target)
                return self._infer(target, head, body, respond)
            return self._serve(head, body, respond)
        encoding = encoding_of(head.headers[b"content-encoding"])
        if encoding is None:
            return self._serve(head, body, respond)

        arrived_ns = time.monotonic_ns()

        def fail(error: RequestError) -> None:
            self.failures.failed(error.code)
            context = self.observer.refused(error, self.contexts.of(head.headers), arrived_ns)
            respond(error_response(error, context=context))

        return self._packed.unpack(body, encoding, lambda content: self._serve(head, content, respond), fail)

    def _serve(self, head: RequestHead, body: bytes, respond: Respond) -> Cancel | None:
        try:
            target = self._paths.find(head.path)
            assert target is not None
            handler = self._routes[target.resource]["GET" if head.method == "HEAD" else head.method]
            return handler(target, head, body, respond)
        except RequestError as error:
            respond(error_response(error))
        except Exception:
            log.exception("%s %s failed", head.method, head.path[:200])
            self._broke(respond)
        return None

    def _broke(self, respond: Respond) -> None:
        """Answer for an exception that nobody expected."""
        self.failures.failed(ErrorCode.INTERNAL)
        respond(error_response(INTERNAL))

    # --- inference

    def _infer(self, target: Target, head: RequestHead, body: bytes, respond: Respond) -> Cancel | None:
        arrived_ns = time.monotonic_ns()
        assert target.name is not None
        counters = self.failures
        context = self.contexts.of(head.headers)
        if context is not None:
            respond = carrying(respond, context)
        try:
            if context is not None:
                self.contexts.admit(context)
            model = self.store.model(target.name)
            counters = model.metrics
            version = model.version(target.version, head.headers.get(STICKY_KEY))
            request = decode_infer(
                body,
                head.headers,
                version,
                self.regions,
                self.limits,
                model.config.priorities.levels,
                self._known,
            )
        except RequestError as error:
            counters.failed(error.code)
            context = self.observer.refused(error, context, arrived_ns, target.name, target.version or "")
            respond(error_response(error, context=context))
            return None
        except Exception:
            log.exception("%s %s failed", head.method, head.path[:200])
            self.failures.failed(ErrorCode.INTERNAL)
            context = self.observer.refused(INTERNAL, context, arrived_ns, target.name)
            respond(error_response(INTERNAL, context=context))
            return None
        wanted = request.wanted
        labels = SchedulingLabels(wanted.priority, wanted.tenant)
        if context is not None:
            labels = entitled(labels, context, model.config.priorities.levels)
        return self.service.submit(
            _HttpCall(
                version,
                request.inputs,
                request.rows,
                arrived_ns,
                wanted.timeout_ns,
                labels.priority,
                labels.tenant,
                request,
                respond,
                head.headers.get(b"accept-encoding"),
                context=context,
                batching=None if head.batching is None else head.batching.negotiated,
            )
        )

    # --- server and models

    def _server(self, _target: Target, _head: RequestHead, _body: bytes, respond: Respond) -> None:
        respond(_json(self.administration.server()))

    def _live(self, _target: Target, _head: RequestHead, _body: bytes, respond: Respond) -> None:
        respond(_EMPTY)

    def _ready(self, _target: Target, _head: RequestHead, _body: bytes, respond: Respond) -> None:
        if self.health.ready:
            respond(_EMPTY)
        else:
            respond(error_text(503 if self.health.leaving else 400, f"the server is {self.health.phase}"))

    def _model_ready(self, target: Target, _head: RequestHead, _body: bytes, respond: Respond) -> None:
        assert target.name is not None
        if self.health.leaving:
            respond(error_text(503, f"the server is {self.health.phase}"))
        elif self.administration.ready(target.name, target.version):
            respond(_EMPTY)
        else:
            respond(error_text(400, f"model {target.name[:64]!r} is not ready"))

    def _metadata(self, target: Target, _head: RequestHead, _body: bytes, respond: Respond) -> None:
        assert target.name is not None
        respond(_json(self.administration.metadata(target.name, target.version)))

    def _config(self, target: Target, _head: RequestHead, _body: bytes, respond: Respond) -> None:
        assert target.name is not None
        respond(_json(self.administration.config(target.name, target.version)))

    def _statistics(self, target: Target, _head: RequestHead, _body: bytes, respond: Respond) -> None:
        respond(_json(self.administration.statistics(target.name, target.version)))

    # --- the repository

    def _index(self, _target: Target, _head: RequestHead, body: bytes, respond: Respond) -> None:
        document = _decode(body, _IndexDocument)
        respond(_json(self.administration.index(ready_only=document.ready)))

    def _load(self, target: Target, _head: RequestHead, body: bytes, respond: Respond) -> None:
        assert target.name is not None
        document = _decode(body, _LoadDocument)
        self.administration.load(target.name, document.parameters, _told(respond))

    def _unload(self, target: Target, _head: RequestHead, body: bytes, respond: Respond) -> None:
        assert target.name is not None
        _decode(body, _LoadDocument)
        self.administration.unload(target.name, _told(respond))

    # --- shared memory

    def _system_status(self, target: Target, _head: RequestHead, _body: bytes, respond: Respond) -> None:
        respond(_json(self.administration.regions(target.name)))

    def _system_register(self, target: Target, _head: RequestHead, body: bytes, respond: Respond) -> None:
        assert target.name is not None
        document = _decode(body, _RegisterDocument)
        self.administration.register(
            target.name, document.key, document.offset, document.byte_size, _told(respond)
        )

    def _system_unregister(self, target: Target, _head: RequestHead, _body: bytes, respond: Respond) -> None:
        self.administration.unregister(target.name, _told(respond))

    def _cuda_status(self, target: Target, _head: RequestHead, _body: bytes, respond: Respond) -> None:
        respond(_json(self.administration.cuda_regions(target.name)))

    def _cuda_register(self, _target: Target, _head: RequestHead, _body: bytes, _respond: Respond) -> None:
        self.administration.register_cuda()

    def _cuda_unregister(self, _target: Target, _head: RequestHead, _body: bytes, respond: Respond) -> None:
        respond(_EMPTY)

    # --- settings

    def _trace(self, target: Target, _head: RequestHead, body: bytes, respond: Respond) -> None:
        respond(_json(self.administration.trace_settings(_decode(body, _Settings), target.name)))

    def _logging(self, _target: Target, _head: RequestHead, body: bytes, respond: Respond) -> None:
        respond(_json(self.administration.log_settings(_decode(body, _Settings))))


class _HttpCall(Call):
    request: InferRequest[HttpAnswers]
    respond: Respond
    accept: bytes | None
    """The header Accept-Encoding."""

    def encode(self, outputs: list[Array]) -> Callable[[], None]:
        response = encode_infer(self.request, outputs)
        if self.accept is not None and len(response.body) >= SMALLEST:
            encoding = accepted(self.accept)
            if encoding is not None:
                return partial(_respond_compressed, response, encoding, self.respond)
        return partial(self.respond, response)

    def fail(self, error: RequestError) -> None:
        self.respond(error_response(error, context=self.context))


def _respond_compressed(response: Response, encoding: str, respond: Respond) -> None:
    if len(response.body) <= AT_ONCE:
        respond(compressed(response, encoding))
        return
    work = asyncio.get_running_loop().run_in_executor(None, compressed, response, encoding)
    work.add_done_callback(lambda done: respond(response if done.exception() else done.result()))


def _json(document: Any) -> Response:
    return Response(200, msgspec.json.encode(document))


def _told(respond: Respond) -> Changed:
    """Return what answers a request for a change, when it is made."""
    return lambda error: respond(_EMPTY if error is None else error_response(error))


def _decode(body: bytes, form: Any) -> Any:
    """Return the JSON in `body`; an empty body is an empty object.

    Raises:
        RequestError: it is not of this form.

    """
    try:
        return msgspec.json.decode(body or b"{}", type=form)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise misfit(error) from error
    except RecursionError as error:
        raise invalid("body", "is nested too deeply", "one JSON object") from error
