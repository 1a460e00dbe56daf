"""Versions that come and go while a server runs: control calls of our own API (api/openapi.yaml)."""

import uuid
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from mcp2026.api.contract import native_pb2 as messages
from mcp2026.client.errors import ProtocolError
from mcp2026.client.exchange import GrpcRequest, GrpcResponse, Header, HttpRequest, HttpResponse
from mcp2026.client.operations.answers import json_object, parsed, succeeded

_SERVICE = "/mcp2026.v1.ModelService/"


class RegisteredVersion(NamedTuple):
    """A version that is served now."""

    request_id: str
    model: str
    version: str
    weight: int
    """Percent of the requests that name no version."""
    revision: int
    """Of the serving configuration that has it."""


class RetiredVersion(NamedTuple):
    """A version that is not served any more."""

    model: str
    version: str
    revision: int
    """Of the serving configuration that lacks it."""


class RegisterVersion:
    """Load one more version of a model. The same `request_id` again is the same request."""

    idempotent = True

    def __init__(
        self,
        model: str,
        version: str,
        uri: str,
        *,
        weight: int,
        owner_email: str,
        request_id: str | None,
        headers: tuple[Header, ...],
    ) -> None:
        self._document: dict[str, Any] = {
            "request_id": request_id or str(uuid.uuid4()),
            "model": model,
            "version_id": version,
            "uri": uri,
            "weight": weight,
            "owner_email": owner_email,
        }
        self._headers = headers

    def http_request(self, _timeout: float) -> HttpRequest:
        """Return the question."""
        headers = (("content-type", "application/json"), *self._headers)
        return HttpRequest("POST", "/v1/models", headers, (msgspec.json.encode(self._document),))

    def http_answer(self, response: HttpResponse) -> RegisteredVersion:
        """Return the version; raise `ClientError` if it is not served."""
        document = json_object(succeeded(response).body)
        try:
            return RegisteredVersion(
                str(document["request_id"]),
                str(document["model"]),
                str(document["version_id"]),
                int(document["weight"]),
                int(document["revision"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"the answer is no registered version: {error!r}") from error

    def grpc_request(self, _timeout: float) -> GrpcRequest:
        """Return the question."""
        request = messages.RegisterVersionRequest(**self._document)
        return GrpcRequest(f"{_SERVICE}RegisterVersion", request.SerializeToString(), self._headers)

    def grpc_answer(self, response: GrpcResponse) -> RegisteredVersion:
        """Return the version; raise `ProtocolError` if there is none."""
        answer = parsed(messages.RegisteredVersion(), response.message)
        return RegisteredVersion(
            answer.request_id, answer.model, answer.version_id, answer.weight, answer.revision
        )


class RetireVersion:
    """Serve a version no more."""

    idempotent = False
    """A second time it is not there any more."""

    def __init__(self, model: str, version: str, headers: tuple[Header, ...]) -> None:
        self._model = model
        self._version = version
        self._headers = headers

    def http_request(self, _timeout: float) -> HttpRequest:
        """Return the question."""
        path = f"/v1/models/{quote(self._model, safe='')}/versions/{quote(self._version, safe='')}"
        return HttpRequest("DELETE", path, self._headers)

    def http_answer(self, response: HttpResponse) -> RetiredVersion:
        """Return what was retired; raise `ClientError` if nothing was."""
        document = json_object(succeeded(response).body)
        try:
            return RetiredVersion(
                str(document["model"]), str(document["version_id"]), int(document["revision"])
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"the answer is no retired version: {error!r}") from error

    def grpc_request(self, _timeout: float) -> GrpcRequest:
        """Return the question."""
        request = messages.RetireVersionRequest(model=self._model, version_id=self._version)
        return GrpcRequest(f"{_SERVICE}RetireVersion", request.SerializeToString(), self._headers)

    def grpc_answer(self, response: GrpcResponse) -> RetiredVersion:
        """Return what was retired; raise `ProtocolError` if that is not said."""
        answer = parsed(messages.RetiredVersion(), response.message)
        return RetiredVersion(answer.model, answer.version_id, answer.revision)
