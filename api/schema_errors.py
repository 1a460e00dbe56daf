"""Turns msgspec's complaint about a document into one that names the field and what it may hold.

msgspec says ``Expected `int` <= 128 - at `$.batching.maxBatchSize```; a user wants to read
``spec.batching.maxBatchSize: 200 is out of range; allowed: an integer from 4 to 128, default 32``.
"""

import re
from typing import Any

import msgspec
import msgspec.inspect as shape

from mcp2026.api.errors import InvalidResourceError

_LOCATION = re.compile(r" - at (?P<key>`key` in )?`\$(?P<path>[^`]*)`$")
_STEP = re.compile(r"\.(?P<field>\w+)|\[(?P<index>\d+|\.\.\.)\]")
_NAMED_FIELD = re.compile(r"^Object (?P<what>missing required|contains unknown) field `(?P<field>[^`]+)`")
_UNTOLD = object()
"""A value that msgspec does not tell: it names no key of a map."""


def explain(error: msgspec.ValidationError, document: Any, expected: type, root: str) -> InvalidResourceError:
    """Return `error`, met in converting `document` to `expected`, as an error that says what is allowed.

    `root` is the path of the document itself, for instance ``spec``.
    """
    message = str(error)
    location = _LOCATION.search(message)
    path = location["path"] if location else ""
    problem = message[: location.start()] if location else message
    field_type, default, value = _follow(path, shape.type_info(expected), document)
    field = f"{root}{path}"
    if location and location["key"]:
        return InvalidResourceError(field, "has a key that is not allowed", f"as keys {_keys(field_type)}")
    if named := _NAMED_FIELD.match(problem):
        children = _fields(field_type)
        if named["what"] == "contains unknown":
            return InvalidResourceError(
                f"{field}.{named['field']}", "is not a field", f"{', '.join(sorted(children))}"
            )
        child = children.get(named["field"])
        allowed = _allowed(child.type, msgspec.NODEFAULT) if child else "a value"
        return InvalidResourceError(f"{field}.{named['field']}", "is required", allowed)
    return InvalidResourceError(field, _said(value, field_type), _allowed(field_type, default))


def _follow(path: str, start: shape.Type, document: Any) -> tuple[shape.Type, Any, Any]:
    """Return the type and the default of the field at `path`, and the value that `document` has there."""
    here, default, value = start, msgspec.NODEFAULT, document
    for step in _STEP.finditer(path):
        here = _plain(here)
        if name := step["field"]:
            member = _fields(here).get(name)
            if member is None:
                return here, msgspec.NODEFAULT, value
            here, default = member.type, member.default
            value = value.get(name) if isinstance(value, dict) else value
        else:
            here, default = _item(here), msgspec.NODEFAULT
            if step["index"] == "...":
                value = value if step.end() == len(path) else _UNTOLD
            elif isinstance(value, list | tuple):
                value = value[int(step["index"])]
    return here, default, value


def _plain(kind: shape.Type) -> shape.Type:
    """Return `kind` without its description and without the None beside it."""
    if isinstance(kind, shape.Metadata):
        return _plain(kind.type)
    if isinstance(kind, shape.UnionType):
        others = [member for member in kind.types if not isinstance(member, shape.NoneType)]
        return _plain(others[0]) if len(others) == 1 else kind
    return kind


def _fields(kind: shape.Type) -> dict[str, shape.Field]:
    plain = _plain(kind)
    return {f.encode_name: f for f in plain.fields} if isinstance(plain, shape.StructType) else {}


def _item(kind: shape.Type) -> shape.Type:
    if isinstance(kind, shape.VarTupleType):
        return kind.item_type
    if isinstance(kind, shape.DictType):
        return kind.value_type
    return kind


def _keys(kind: shape.Type) -> str:
    plain = _plain(kind)
    return _values(plain.key_type) if isinstance(plain, shape.DictType) else "texts"


def _said(value: Any, kind: shape.Type) -> str:
    if value is _UNTOLD:
        return "a value is not allowed"
    numbers = int | float if isinstance(_plain(kind), shape.FloatType) else int
    is_number = isinstance(value, numbers) and not isinstance(value, bool)
    if is_number and isinstance(_plain(kind), shape.IntType | shape.FloatType):
        return f"{value} is out of range"
    if isinstance(value, list | tuple):
        return f"{len(value)} entries"
    return f"{value!r} is not allowed"


def _allowed(kind: shape.Type, default: Any) -> str:
    text = _values(kind)
    given = isinstance(default, str | int | float)
    return (
        f"{text}, default {str(default).lower() if isinstance(default, bool) else default}" if given else text
    )


def _values(kind: shape.Type) -> str:
    """Say in words what `kind` accepts."""
    if isinstance(kind, shape.Metadata):
        described = (kind.extra_json_schema or {}).get("description")
        return str(described) if described else _values(kind.type)
    if isinstance(kind, shape.UnionType):
        members = [member for member in kind.types if not isinstance(member, shape.NoneType)]
        return " or ".join(_values(member) for member in members)
    plain = _plain(kind)
    if isinstance(plain, shape.IntType):
        return _range("an integer", plain.ge, plain.le)
    if isinstance(plain, shape.FloatType):
        return _range("a number", plain.ge, plain.le)
    if isinstance(plain, shape.VarTupleType):
        return _range("a list with a number of entries", plain.min_length, plain.max_length)
    if isinstance(plain, shape.LiteralType):
        return " or ".join(str(value) for value in plain.values)
    if isinstance(plain, shape.StrType):
        if plain.pattern:
            return f"a string that matches {plain.pattern}"
        if plain.min_length is None and plain.max_length is None:
            return "a string"
        return _range("a string with a number of characters", plain.min_length, plain.max_length)
    if isinstance(plain, shape.BoolType):
        return "true or false"
    return "an object"


def _range(what: str, low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f"{what} from {low} to {high}"
    if high is not None:
        return f"{what} of at most {high}"
    return what if low is None else f"{what} of at least {low}"
