"""The contract as data, read once: the document that servers show, and the schemas in it."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

Schema = dict[str, Any]
_REFERENCE = "#/components/schemas/"


@cache
def document_text() -> bytes:
    """Return the OpenAPI document, in JSON, as it is served."""
    return (files(__package__) / "openapi.json").read_bytes()


@cache
def document() -> dict[str, Any]:
    """Return the OpenAPI document. It is shared: nobody may change it."""
    read: dict[str, Any] = json.loads(document_text())
    return read


def schema(name: str) -> Schema:
    """Return the schema `name`, for instance `InferRequest`.

    Raises:
        KeyError: the contract has no such schema.

    """
    found: Schema = document()["components"]["schemas"][name]
    return found


def reference(part: Schema) -> str | None:
    """Return the name of the schema that `part` refers to, None if it is one itself."""
    target: str | None = part.get("$ref")
    return None if target is None else target.removeprefix(_REFERENCE)


def resolved(part: Schema) -> Schema:
    """Return `part` with what it refers to; what it says itself wins."""
    name = reference(part)
    return part if name is None else {**resolved(schema(name)), **part}
