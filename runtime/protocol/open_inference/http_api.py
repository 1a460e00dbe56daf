"""The protocol over HTTP: every path below /v2, mounted beside the REST API."""

import logging
import time
from collections.abc import Callable
from typing import Any

import msgspec

from mcp2026.runtime.errors import ErrorCode, RequestError, invalid
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.health import Health
from mcp2026.runtime.inference import Call, InferenceService
from mcp2026.runtime.metrics.runtime_metrics import RuntimeMetrics
from mcp2026.runtime.model.store import ModelStore
from mcp2026.runtime.protocol.exchange import Cancel, RequestHead, Respond, Response
from mcp2026.runtime.protocol.open_inference.administration import Administration, Changed
from mcp2026.runtime.protocol.open_inference.compression import ENCODINGS, decompress, encoding_of
from mcp2026.runtime.protocol.open_inference.documents import server_metadata
from mcp2026.runtime.protocol.open_inference.errors import error_response, error_text
from mcp2026.runtime.protocol.open_inference.http_codec import decode_infer, encode_infer, misfit
from mcp2026.runtime.protocol.open_inference.parameters import Value
from mcp2026.runtime.protocol.open_inference.paths import ROOT, PathTable, Resource, Target
from mcp2026.runtime.protocol.open_inference.questions import KnownQuestions
from mcp2026.runtime.protocol.open_inference.requests import Limits
from mcp2026.runtime.shared_memory.regions import SharedMemoryRegions

log = logging.getLogger(__name__)

# Annotations of inner functions are evaluated at every call: they are plain names, which cost nothing.
_Arrays = list[Array]
_Send = Callable[[], None]
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


class OpenInferenceApi:
    """Answers the requests whose path begins with /v2."""

    def __init__(
        self,
        health: Health,
        metrics: RuntimeMetrics,
        service: InferenceService,
        store: ModelStore,
        regions: SharedMemoryRegions,
        administration: Administration,
        limits: Limits,
    ) -> None:
        self._health = health
        self._metrics = metrics
        self._service = service
        self._store = store
        self._regions = regions
        self._administration = administration
        self._limits = limits
        self._paths = PathTable()
        self._known = KnownQuestions()
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
        """Refuse unknown paths, wrong verbs and unknown encodings before their body is read."""
        target = self._paths.find(head.path)
        if target is None:
            return error_response(RequestError(ErrorCode.NOT_FOUND, f"nothing at {head.path[:200]}"))
        verbs = self._routes[target.resource]
        if head.method not in verbs and not (head.method == "HEAD" and "GET" in verbs):
            error = RequestError(
                ErrorCode.METHOD_NOT_ALLOWED, f"{head.path[:200]} does not take {head.method}"
            )
            return error_response(error, ((b"allow", ", ".join(verbs).encode()),))
        encoding = head.headers.get(b"content-encoding")
        if encoding is not None:
            try:
                encoding_of(encoding)
            except RequestError as error:
                return error_text(415, error.message, ((b"accept-encoding", ", ".join(ENCODINGS).encode()),))
        return None

    def begin(self, head: RequestHead, body: bytes, respond: Respond) -> Cancel | None:
        """Serve one request that was admitted. Whatever goes wrong in here, it is answered."""
        try:
            target = self._paths.find(head.path)
            assert target is not None
            handler = self._routes[target.resource]["GET" if head.method == "HEAD" else head.method]
            if b"content-encoding" in head.headers:
                body = self._decompressed(head, body)
            return handler(target, head, body, respond)
        except RequestError as error:
            respond(error_response(error))
        except Exception:
            log.exception("%s %s failed", head.method, head.path[:200])
            self._metrics.version().failed(ErrorCode.INTERNAL)
            respond(error_response(RequestError(ErrorCode.INTERNAL, "the server failed; its log says why")))
        return None

    def _decompressed(self, head: RequestHead, body: bytes) -> bytes:
        encoding = encoding_of(head.headers[b"content-encoding"])
        return body if encoding is None else decompress(body, encoding, self._limits.max_tensor_bytes)

    # --- inference

    def _infer(self, target: Target, head: RequestHead, body: bytes, respond: Respond) -> Cancel | None:
        arrived_ns = time.monotonic_ns()
        assert target.name is not None
        counters = self._metrics.version()
        try:
            model = self._store.model(target.name)
            counters = model.metrics
            version = model.version(target.version)
            request = decode_infer(
                body,
                head.headers,
                version,
                self._regions,
                self._limits,
                model.config.priorities.levels,
                self._known,
            )
        except RequestError as error:
            counters.failed(error.code)
            respond(error_response(error))
            return None
        accept_encoding = head.headers.get(b"accept-encoding", b"")

        def encode(outputs: _Arrays) -> _Send:
            response = encode_infer(request, outputs, accept_encoding)
            return lambda: respond(response)

        return self._service.submit(
            Call(
                version=version,
                inputs=request.inputs,
                rows=request.rows,
                arrived_ns=arrived_ns,
                timeout_ns=request.wanted.timeout_ns,
                encode=encode,
                fail=lambda error: respond(error_response(error)),
                priority=request.wanted.priority,
                tenant=request.wanted.tenant,
            )
        )

    # --- server and models

    def _server(self, _target: Target, _head: RequestHead, _body: bytes, respond: Respond) -> None:
        respond(_json(server_metadata()))

    def _live(self, _target: Target, _head: RequestHead, _body: bytes, respond: Respond) -> None:
        respond(_EMPTY)

    def _ready(self, _target: Target, _head: RequestHead, _body: bytes, respond: Respond) -> None:
        if self._health.ready:
            respond(_EMPTY)
        else:
            respond(error_text(503 if self._health.leaving else 400, f"the server is {self._health.phase}"))

    def _model_ready(self, target: Target, _head: RequestHead, _body: bytes, respond: Respond) -> None:
        assert target.name is not None
        if self._health.leaving:
            respond(error_text(503, f"the server is {self._health.phase}"))
        elif self._administration.ready(target.name, target.version):
            respond(_EMPTY)
        else:
            respond(error_text(400, f"model {target.name[:64]!r} is not ready"))

    def _metadata(self, target: Target, _head: RequestHead, _body: bytes, respond: Respond) -> None:
        assert target.name is not None
        respond(_json(self._administration.metadata(target.name, target.version)))

    def _config(self, target: Target, _head: RequestHead, _body: bytes, respond: Respond) -> None:
        assert target.name is not None
        respond(_json(self._administration.config(target.name, target.version)))

    def _statistics(self, target: Target, _head: RequestHead, _body: bytes, respond: Respond) -> None:
        respond(_json(self._administration.statistics(target.name, target.version)))

    # --- the repository

    def _index(self, _target: Target, _head: RequestHead, body: bytes, respond: Respond) -> None:
        document = _decode(body, _IndexDocument)
        respond(_json(self._administration.index(ready_only=document.ready)))

    def _load(self, target: Target, _head: RequestHead, body: bytes, respond: Respond) -> None:
        assert target.name is not None
        document = _decode(body, _LoadDocument)
        self._administration.load(target.name, document.parameters, _told(respond))

    def _unload(self, target: Target, _head: RequestHead, body: bytes, respond: Respond) -> None:
        assert target.name is not None
        _decode(body, _LoadDocument)
        self._administration.unload(target.name, _told(respond))

    # --- shared memory

    def _system_status(self, target: Target, _head: RequestHead, _body: bytes, respond: Respond) -> None:
        respond(_json(self._administration.regions(target.name)))

    def _system_register(self, target: Target, _head: RequestHead, body: bytes, respond: Respond) -> None:
        assert target.name is not None
        document = _decode(body, _RegisterDocument)
        self._administration.register(
            target.name, document.key, document.offset, document.byte_size, _told(respond)
        )

    def _system_unregister(self, target: Target, _head: RequestHead, _body: bytes, respond: Respond) -> None:
        self._administration.unregister(target.name, _told(respond))

    def _cuda_status(self, target: Target, _head: RequestHead, _body: bytes, respond: Respond) -> None:
        respond(_json(self._administration.cuda_regions(target.name)))

    def _cuda_register(self, _target: Target, _head: RequestHead, _body: bytes, _respond: Respond) -> None:
        self._administration.register_cuda()

    def _cuda_unregister(self, _target: Target, _head: RequestHead, _body: bytes, respond: Respond) -> None:
        respond(_EMPTY)

    # --- settings

    def _trace(self, target: Target, _head: RequestHead, body: bytes, respond: Respond) -> None:
        respond(_json(self._administration.trace_settings(_decode(body, _Settings), target.name)))

    def _logging(self, _target: Target, _head: RequestHead, body: bytes, respond: Respond) -> None:
        respond(_json(self._administration.log_settings(_decode(body, _Settings))))


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
