"""Questions about the server and its models."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from mcp2026.client.errors import ProtocolError
from mcp2026.client.exchange import GrpcRequest, GrpcResponse, Header, HttpRequest, HttpResponse
from mcp2026.client.open_inference import open_inference_pb2 as messages
from mcp2026.client.operations.answers import json_object, parsed, succeeded

_SERVICE = "/inference.GRPCInferenceService/"


class TensorMetadata(NamedTuple):
    """One input or output of a model."""

    name: str
    datatype: str
    """`FP32`, `BYTES`, …"""
    shape: tuple[int, ...]
    """-1: any size."""


class ModelMetadata(NamedTuple):
    """What a model takes and gives."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]


class ModelState(NamedTuple):
    """One version of a model that the server knows."""

    name: str
    version: str
    state: str
    """`READY`, `UNAVAILABLE`, …"""
    reason: str
    """Why it is not ready."""


class ListModels:
    """Which models there are: the repository index of Triton's extension."""

    idempotent = True

    def __init__(self, headers: tuple[Header, ...]) -> None:
        self._headers = headers

    def http_request(self, _timeout: float) -> HttpRequest:
        """Return the question."""
        headers = (("content-type", "application/json"), *self._headers)
        return HttpRequest("POST", "/v2/repository/index", headers, (b"{}",))

    def http_answer(self, response: HttpResponse) -> list[ModelState]:
        """Return the models; raise `ClientError` if there is no list of them."""
        try:
            entries = msgspec.json.decode(succeeded(response).body, type=list)
            return [_state(entry) for entry in entries]
        except (
            msgspec.DecodeError,
            UnicodeDecodeError,
            RecursionError,
            AttributeError,
            KeyError,
            TypeError,
        ) as error:
            raise ProtocolError(f"the answer is no list of models: {error!r}") from error

    def grpc_request(self, _timeout: float) -> GrpcRequest:
        """Return the question."""
        return GrpcRequest(f"{_SERVICE}RepositoryIndex", b"", self._headers)

    def grpc_answer(self, response: GrpcResponse) -> list[ModelState]:
        """Return the models; raise `ProtocolError` if there is no list of them."""
        answer = parsed(messages.RepositoryIndexResponse(), response.message)
        return [ModelState(entry.name, entry.version, entry.state, entry.reason) for entry in answer.models]


class DescribeModel:
    """What one model takes and gives."""

    idempotent = True

    def __init__(self, model: str, version: str | None, headers: tuple[Header, ...]) -> None:
        self._model = model
        self._version = version or ""
        self._headers = headers

    def http_request(self, _timeout: float) -> HttpRequest:
        """Return the question."""
        return HttpRequest("GET", model_path(self._model, self._version), self._headers)

    def http_answer(self, response: HttpResponse) -> ModelMetadata:
        """Return the description; raise `ClientError` if it is none."""
        document = json_object(succeeded(response).body)
        try:
            return ModelMetadata(
                str(document["name"]),
                tuple(str(version) for version in document.get("versions") or ()),
                str(document.get("platform") or ""),
                _tensors(document["inputs"] or ()),
                _tensors(document["outputs"] or ()),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"the answer is no description of a model: {error!r}") from error

    def grpc_request(self, _timeout: float) -> GrpcRequest:
        """Return the question."""
        request = messages.ModelMetadataRequest(name=self._model, version=self._version)
        return GrpcRequest(f"{_SERVICE}ModelMetadata", request.SerializeToString(), self._headers)

    def grpc_answer(self, response: GrpcResponse) -> ModelMetadata:
        """Return the description; raise `ProtocolError` if it is none."""
        answer = parsed(messages.ModelMetadataResponse(), response.message)
        return ModelMetadata(
            answer.name,
            tuple(answer.versions),
            answer.platform,
            tuple(TensorMetadata(spec.name, spec.datatype, tuple(spec.shape)) for spec in answer.inputs),
            tuple(TensorMetadata(spec.name, spec.datatype, tuple(spec.shape)) for spec in answer.outputs),
        )


class AskReady:
    """Whether the server, or one model of it, answers inferences."""

    idempotent = True

    def __init__(self, model: str | None, version: str | None, headers: tuple[Header, ...]) -> None:
        self._model = model or ""
        self._version = version or ""
        self._headers = headers

    def http_request(self, _timeout: float) -> HttpRequest:
        """Return the question."""
        path = f"{model_path(self._model, self._version)}/ready" if self._model else "/v2/health/ready"
        return HttpRequest("GET", path, self._headers)

    def http_answer(self, response: HttpResponse) -> bool:
        """Return whether the response says yes; every other one is a no."""
        return response.status == 200

    def grpc_request(self, _timeout: float) -> GrpcRequest:
        """Return the question."""
        if not self._model:
            return GrpcRequest(f"{_SERVICE}ServerReady", b"", self._headers)
        request = messages.ModelReadyRequest(name=self._model, version=self._version)
        return GrpcRequest(f"{_SERVICE}ModelReady", request.SerializeToString(), self._headers)

    def grpc_answer(self, response: GrpcResponse) -> bool:
        """Return whether the response says yes."""
        # Both messages have one field, a bool of number 1.
        return parsed(messages.ServerReadyResponse(), response.message).ready


def model_path(model: str, version: str = "") -> str:
    """Return the path of a model, or of one version of it."""
    path = f"/v2/models/{quote(model, safe='')}"
    return f"{path}/versions/{quote(version, safe='')}" if version else path


def _state(entry: Mapping[str, Any]) -> ModelState:
    return ModelState(
        str(entry["name"]),
        str(entry.get("version") or ""),
        str(entry.get("state") or ""),
        str(entry.get("reason") or ""),
    )


def _tensors(specs: Sequence[Mapping[str, Any]]) -> tuple[TensorMetadata, ...]:
    return tuple(
        TensorMetadata(str(spec["name"]), str(spec["datatype"]), tuple(int(size) for size in spec["shape"]))
        for spec in specs
    )
