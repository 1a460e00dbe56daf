"""The native API over gRPC: every operation of the contract, as messages of the same content."""

import logging
from functools import partial

from google.protobuf.message import DecodeError

from mcp2026.api.contract.messages import document_of, message_class, message_of
from mcp2026.api.contract.violations import ContractError
from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.health import Health
from mcp2026.runtime.metrics.runtime_metrics import RuntimeMetrics
from mcp2026.runtime.protocol.exchange import Cancel
from mcp2026.runtime.protocol.grpc.service import CallHead, Reply, Respond, StreamMethod, UnaryMethod
from mcp2026.runtime.protocol.native.control_api import MAX_REQUEST_BYTES, ControlApi, Document
from mcp2026.runtime.protocol.native.errors import INTERNAL, error_reply, refused, unreadable
from mcp2026.runtime.protocol.native.operations import Operation, operations
from mcp2026.runtime.protocol.native.tasks import Tasks

log = logging.getLogger(__name__)


class NativeService:
    """The methods, by path. Satisfies `GrpcService`."""

    def __init__(self, health: Health, metrics: RuntimeMetrics, api: ControlApi, infer: UnaryMethod) -> None:
        """Serve inference by `infer`, all else by `api`."""
        self._health = health
        self._metrics = metrics
        self._api = api
        self._tasks = Tasks()
        inference = next(one for one in operations() if one.operation_id == "infer")
        self._unary: dict[str, UnaryMethod] = {
            inference.call: infer,
            **{one.call: partial(self._begin, one) for one in api.operations},
        }
        self.names = tuple(sorted({one.service for one in (inference, *api.operations)}))
        """Full names of the services."""

    @property
    def closing(self) -> bool:
        """Connections should end when their calls are done."""
        return self._health.leaving

    def unary(self, path: str) -> UnaryMethod | None:
        """Return the unary method at `path`."""
        return self._unary.get(path)

    def streaming(self, _path: str) -> StreamMethod | None:
        """Return nothing: no method is a stream."""
        return None

    def _begin(
        self, operation: Operation, _head: CallHead, content: bytes, respond: Respond
    ) -> Cancel | None:
        return self._tasks.start(self._serve(operation, content, respond))

    async def _serve(self, operation: Operation, content: bytes, respond: Respond) -> None:
        try:
            answer = await self._api.call(operation, _read(operation.request, content))
            reply = Reply(message_of(operation.response, answer).SerializeToString())
        except RequestError as error:
            reply = error_reply(error)
        except Exception:
            log.exception("%s failed", operation.operation_id)
            self._metrics.version().failed(ErrorCode.INTERNAL)
            reply = error_reply(INTERNAL)
        respond(reply)


def _read(schema: str, content: bytes) -> Document:
    if len(content) > MAX_REQUEST_BYTES:
        raise RequestError(
            ErrorCode.BODY_TOO_LARGE,
            f"the body has {len(content)} bytes",
            "body",
            f"at most {MAX_REQUEST_BYTES} bytes",
        )
    try:
        return document_of(message_class(schema).FromString(content))
    except DecodeError as error:
        raise unreadable(schema, error) from error
    except ContractError as error:
        raise refused(error) from error
