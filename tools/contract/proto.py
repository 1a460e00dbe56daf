"""The proto that follows from the contract: a message for each object, a service for each that is named.

Fields of a scalar type are `optional`, so that one that is missing is told from one that is 0. A list has no
such thing: where an empty one must be told from a missing one, the schema makes a message of it
(`x-proto-items`).
"""

import textwrap
from collections.abc import Iterator

from tools.contract.source import Schema, Source, SourceError, number, reference

_SCALARS = {"string": "string", "integer": "int64", "number": "double", "boolean": "bool"}
_VALUES = (
    ("double", "numbers", 1, "Numbers with a fraction, or out of the range of the lists of integers."),
    ("int64", "integers", 2, "Whole numbers."),
    ("uint64", "unsigned_integers", 3, "Whole numbers of which one is 2^63 or more."),
    ("bool", "booleans", 4, ""),
    ("string", "strings", 5, ""),
)
_WIDTH = 110
_HEAD = "// Generated from api/openapi.yaml: run `make generate`.\n"


def proto_of(source: Source) -> str:
    """Return the text of the proto.

    Raises:
        SourceError: a schema says what a proto cannot.

    """
    parts = [f'{_HEAD}syntax = "proto3";\n\npackage {source.package};\n']
    parts += [_service(source, name) for name in dict.fromkeys(one.service for one in source.operations)]
    parts += [_message(source, name) for name in messages(source)]
    return "\n".join(parts)


def messages(source: Source) -> list[str]:
    """Return the names of the schemas that are messages, in the order in which operations reach them."""
    roots = [name for one in source.operations for name in (one.request, one.response)]
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        schema = source.schemas.get(name)
        if schema is None:
            raise SourceError(f"components.schemas.{name} is not there")
        if name in found or not _is_message(schema):
            return
        found[name] = None
        for part in _parts(schema):
            inner = reference(part)
            if inner is not None:
                visit(inner)

    for name in [*roots, source.error]:
        visit(name)
    return list(found)


def _is_message(schema: Schema) -> bool:
    return schema.get("type") == "object" or "x-proto-values" in schema or "x-proto-items" in schema


def _parts(schema: Schema) -> Iterator[Schema]:
    for part in schema.get("properties", {}).values():
        yield part
        for inner in (part.get("items"), part.get("additionalProperties")):
            if isinstance(inner, dict):
                yield inner


def _service(source: Source, name: str) -> str:
    calls = [one for one in source.operations if one.service == name]
    lines = [
        f"{_comment(one.summary, '  ')}  rpc {one.method}({one.request}) returns ({one.response});\n"
        for one in calls
    ]
    return f"service {name} {{\n{''.join(lines)}}}\n"


def _message(source: Source, name: str) -> str:
    schema = source.schemas[name]
    comment = _comment(schema.get("description", ""), "")
    if "x-proto-values" in schema:
        fields = [
            _comment(text, "  ") + f"  repeated {kind} {field} = {place};\n"
            for kind, field, place, text in _VALUES
        ]
        return f"{comment}// At most one of the lists has elements.\nmessage {name} {{\n{''.join(fields)}}}\n"
    if "x-proto-items" in schema:
        element = _element(source, schema["items"], name)
        return f"{comment}message {name} {{\n  repeated {element} {schema['x-proto-items']} = 1;\n}}\n"
    if schema.get("additionalProperties") is not False:
        raise SourceError(f"{name}: additionalProperties is not false")
    return f"{comment}message {name} {{\n{''.join(_fields(source, name, schema))}}}\n"


def _fields(source: Source, message: str, schema: Schema) -> Iterator[str]:
    reserved: list[int] = schema.get("x-proto-reserved", [])
    if reserved:
        yield f"  reserved {', '.join(str(place) for place in sorted(reserved))};\n"
    taken: dict[int, str] = {}
    for name, part in schema.get("properties", {}).items():
        place = number(message, name, part)
        if place in taken or place in reserved:
            holder = taken.get(place, "x-proto-reserved")
            raise SourceError(f"{message}.{name}: {place} is the number of {holder} already")
        taken[place] = name
        kind = _field_type(source, part, f"{message}.{name}")
        yield f"{_comment(part.get('description', ''), '  ')}  {kind} {name} = {place};\n"


def _field_type(source: Source, part: Schema, place: str) -> str:
    name = reference(part)
    if name is not None:
        return name if _is_message(source.schemas[name]) else f"optional {_element(source, part, place)}"
    if part.get("type") == "array":
        return f"repeated {_element(source, part['items'], place)}"
    if part.get("type") == "object":
        return f"map<string, {_element(source, part.get('additionalProperties') or {}, place)}>"
    return f"optional {_element(source, part, place)}"


def _element(source: Source, schema: Schema, place: str) -> str:
    name = reference(schema)
    if name is not None:
        target = source.schemas[name]
        return name if _is_message(target) else _element(source, target, place)
    kind = schema.get("type")
    if not isinstance(kind, str) or kind not in _SCALARS:
        raise SourceError(f"{place}: type {kind} has no type in a proto; it may need a schema of its own")
    return _SCALARS[kind]


def _comment(text: str, indent: str) -> str:
    lines = textwrap.wrap(" ".join(text.split()), _WIDTH - len(indent) - 3)
    return "".join(f"{indent}// {line}\n" for line in lines)
