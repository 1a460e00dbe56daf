"""What the operations do, but for inference: documents in, documents out, both held against the contract."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from mcp2026.api.contract.validation import check
from mcp2026.api.contract.violations import ContractError
from mcp2026.runtime.changes import (
    RegisterVersion,
    RequestVersionChange,
    RetireVersion,
    VersionChange,
)
from mcp2026.runtime.errors import RequestError
from mcp2026.runtime.health import Health
from mcp2026.runtime.model.loaded import ServedModel, rows_of_a_run
from mcp2026.runtime.model.signature import TensorSpec
from mcp2026.runtime.model.store import ModelStore
from mcp2026.runtime.protocol.native.errors import INTERNAL, refused
from mcp2026.runtime.protocol.native.operations import Operation, operations

log = logging.getLogger(__name__)

Document = dict[str, Any]
MAX_REQUEST_BYTES = 64 * 1024
"""Of a control call, in either transport; a whole registration has 3 KiB at most."""


class ControlApi:
    """The control calls of one process."""

    def __init__(
        self,
        health: Health,
        store: ModelStore,
        change_versions: RequestVersionChange,
        more: dict[str, Callable[[], Document]] | None = None,
    ) -> None:
        """Serve also `more`: what answers further operations, by their ids, without asking anything."""
        self._health = health
        self._store = store
        self._change_versions = change_versions
        self._handlers: dict[str, Callable[[Document], Awaitable[Document]]] = {
            "listModels": self._list,
            "describeModel": self._describe,
            "registerVersion": self._register,
            "retireVersion": self._retire,
            "getHealth": self._get_health,
            **{name: _asking(answer) for name, answer in (more or {}).items()},
        }
        self.operations = tuple(one for one in operations() if one.operation_id in self._handlers)
        """What is served."""

    async def call(self, operation: Operation, request: Document) -> Document:
        """Return what `operation` answers.

        Raises:
            RequestError: the request breaks the contract, or cannot be served; the answer breaks it.

        """
        # In a thread: the validator is loaded with the first document.
        await asyncio.to_thread(_check_request, operation.request, request)
        answer = await self._handlers[operation.operation_id](request)
        try:
            await asyncio.to_thread(check, operation.response, answer)
        except ContractError as error:
            log.exception("an answer of %s breaks the contract", operation.operation_id)
            raise INTERNAL from error
        return answer

    async def _list(self, _request: Document) -> Document:
        return {"models": [_model(model) for model in self._store.models()]}

    async def _describe(self, request: Document) -> Document:
        return _model(self._store.model(request["model"]))

    async def _register(self, request: Document) -> Document:
        change = RegisterVersion(
            request["request_id"].lower(),  # a UUID is the same in capitals
            request["model"],
            request["version_id"],
            request["uri"],
            int(request["weight"]),  # JSON Schema takes 10.0 for an integer
            request["owner_email"],
        )
        revision = await self._change(change)
        return {
            "request_id": request["request_id"],
            "model": change.model,
            "version_id": change.version_id,
            "weight": change.weight,
            "revision": revision,
        }

    async def _retire(self, request: Document) -> Document:
        revision = await self._change(RetireVersion(request["model"], request["version_id"]))
        return {**request, "revision": revision}

    async def _get_health(self, _request: Document) -> Document:
        return {"phase": self._health.phase.value, "ready": self._health.ready}

    async def _change(self, change: VersionChange) -> int:
        """Return the revision that all workers serve when they have made `change`."""
        outcome: asyncio.Future[RequestError | int] = asyncio.get_running_loop().create_future()

        def changed(made: RequestError | int) -> None:
            if not outcome.done():  # the caller may have left
                outcome.set_result(made)

        self._change_versions(change, changed)
        made = await outcome
        if isinstance(made, RequestError):
            raise made
        return made


def _check_request(schema: str, request: Document) -> None:
    try:
        check(schema, request)
    except ContractError as error:
        raise refused(error) from error


def _asking(answer: Callable[[], Document]) -> Callable[[Document], Awaitable[Document]]:
    async def handler(_request: Document) -> Document:
        return answer()

    return handler


def _model(model: ServedModel) -> Document:
    return {
        "name": model.name,
        "revision": model.config.revision,
        "max_batch_size": rows_of_a_run(model.config),
        "versions": [_version(model, position) for position in range(len(model.config.versions))],
    }


def _version(model: ServedModel, position: int) -> Document:
    served = model.config.versions[position]
    signature = model.versions[served.version_id].signature
    described: Document = {
        "version_id": served.version_id,
        "weight": served.weight,
        "batched": signature.shared,
        "inputs": [_tensor(spec) for spec in signature.inputs],
        "outputs": [_tensor(spec) for spec in signature.outputs],
    }
    if isinstance(served.uri, str):
        described["uri"] = served.uri
    if isinstance(served.owner_email, str):
        described["owner_email"] = served.owner_email
    return described


def _tensor(spec: TensorSpec) -> Document:
    return {"name": spec.name, "dtype": spec.dtype_name, "shape": spec.wire_shape}
