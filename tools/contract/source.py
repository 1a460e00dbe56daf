"""The source of the contract, as data: operations and schemas, after every rule that OpenAPI itself has not.

An operation names its gRPC call, each property of a message its number, and what is sent refuses what it does
not know. Whatever is missing is named by its place in the document.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from openapi_spec_validator import OpenAPIV31SpecValidator

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "api" / "openapi.yaml"
METHODS = ("get", "put", "post", "delete", "patch")
_REFERENCE = "#/components/schemas/"
_NO_NUMBERS = range(19_000, 20_000)
"""What protobuf keeps for itself."""

Schema = dict[str, Any]


class SourceError(Exception):
    """The contract breaks a rule; the text says where, and which."""


@dataclass(frozen=True)
class Operation:
    """One operation in both transports."""

    operation_id: str
    summary: str
    service: str
    method: str
    request: str
    """Name of a schema."""
    response: str


@dataclass(frozen=True)
class Source:
    """The contract."""

    document: dict[str, Any]
    package: str
    error: str
    """Name of the schema of errors."""
    operations: tuple[Operation, ...]
    schemas: dict[str, Schema]


def read_source(path: Path = SOURCE) -> Source:
    """Return the contract in `path`.

    Raises:
        SourceError: it is no OpenAPI 3.1, or breaks a rule of ours.

    """
    return source_of(yaml.safe_load(path.read_text(encoding="utf-8")))


def source_of(document: dict[str, Any]) -> Source:
    """Return `document` as the contract.

    Raises:
        SourceError: it is no OpenAPI 3.1, or breaks a rule of ours.

    """
    for problem in OpenAPIV31SpecValidator(document).iter_errors():
        raise SourceError(f"is no OpenAPI 3.1: {problem}")
    schemas = document["components"]["schemas"]
    operations = tuple(_operations(document))
    calls = [(operation.service, operation.method) for operation in operations]
    for call in calls:
        if calls.count(call) > 1:
            raise SourceError(f"two operations are {call[0]}.{call[1]}")
    error = _text(document, "x-grpc-error", "the document")
    for name in (error, *(name for one in operations for name in (one.request, one.response))):
        if schemas.get(name, {}).get("type") != "object":
            raise SourceError(f"components.schemas.{name} is not there, or no object")
    return Source(document, _text(document, "x-grpc-package", "the document"), error, operations, schemas)


def reference(schema: Schema) -> str | None:
    """Return the name of the component that `schema` refers to.

    Raises:
        SourceError: it refers to something else than a schema of this document.

    """
    target = schema.get("$ref")
    if target is None:
        return None
    if not target.startswith(_REFERENCE):
        raise SourceError(f"$ref {target} does not begin with {_REFERENCE}")
    return str(target.removeprefix(_REFERENCE))


def number(message: str, name: str, schema: Schema) -> int:
    """Return the number of a property.

    Raises:
        SourceError: it has none, or one that protobuf does not take.

    """
    given = schema.get("x-proto-field")
    if not isinstance(given, int) or not 1 <= given < 2**29 or given in _NO_NUMBERS:
        raise SourceError(f"{message}.{name}: x-proto-field {given} is no number of a field")
    return given


def _operations(document: dict[str, Any]) -> Iterator[Operation]:
    for path, item in document["paths"].items():
        for verb in METHODS:
            if verb in item:
                yield _operation(f"{verb.upper()} {path}", item[verb])


def _operation(place: str, operation: dict[str, Any]) -> Operation:
    body = operation.get("requestBody")
    if body is None:
        request = _text(operation, "x-grpc-request", place)
    else:
        request = _schema_of(body, f"{place}: requestBody")
    good = [status for status in operation["responses"] if status.startswith("2")]
    if len(good) != 1:
        raise SourceError(f"{place}: has {len(good)} responses of success, not one")
    return Operation(
        _text(operation, "operationId", place),
        _text(operation, "summary", place),
        _text(operation, "x-grpc-service", place),
        _text(operation, "x-grpc-method", place),
        request,
        _schema_of(operation["responses"][good[0]], f"{place}: {good[0]}"),
    )


def _schema_of(content: dict[str, Any], place: str) -> str:
    name = reference(content.get("content", {}).get("application/json", {}).get("schema", {}))
    if name is None:
        raise SourceError(f"{place} does not refer to a schema of application/json")
    return name


def _text(holder: dict[str, Any], key: str, place: str) -> str:
    value = holder.get(key)
    if not isinstance(value, str) or not value:
        raise SourceError(f"{place}: {key} is missing")
    return value
