"""Which rule of the contract a refused body of `POST /v1/infer` breaks.

The codec's compiled types refuse with the first thing that they meet; the contract has one choice among all
that is wrong, the same for every transport. So a body that was refused, for whatever reason, is looked at
again here: what the contract has against it goes before what the model has. Property tests hold this to the
schema.

Of a large body no more is held in memory than reading it takes anyway: of several unknown members the first
in the body is told, and values with texts or lists among them are left to the model.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from mcp2026.api.contract.violations import Path, Violation, contract_error, first
from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.model.signature import MAX_DIMENSIONS, MAX_ELEMENTS
from mcp2026.runtime.protocol.json_turns import LARGE_BODY, InTurns, slices_of_list

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_VALUES = msgspec.json.Decoder(list[int | float | str | bool])
_KINDS = {b'"': "string", b"[": "array", b"{": "object", b"n": "null", b"t": "boolean", b"f": "boolean"}
_MISSING = msgspec.Raw()
_UNKNOWN = re.compile(r"^Object contains unknown field `(.*)`$")
_NO_VALUE = re.compile(r"got `(null|array|object)` - at `\$\[(\d+)\]`$")
_EMPTY: dict[str, Any] = {"array": [], "object": {}, "null": None, "string": ""}

_MAX_TIMEOUT_MS = 3_600_000

Check = Callable[[bytes, Path], InTurns[list[Violation]]]


class _BodyMembers(msgspec.Struct, forbid_unknown_fields=True):
    model: msgspec.Raw = _MISSING
    version_id: msgspec.Raw = _MISSING
    input: msgspec.Raw = _MISSING
    shape: msgspec.Raw = _MISSING
    inputs: msgspec.Raw = _MISSING
    outputs: msgspec.Raw = _MISSING
    timeout_ms: msgspec.Raw = _MISSING
    id: msgspec.Raw = _MISSING


class _TensorMembers(msgspec.Struct, forbid_unknown_fields=True):
    data: msgspec.Raw = _MISSING
    shape: msgspec.Raw = _MISSING


def broken_rule(body: bytes) -> InTurns[RequestError | None]:
    """Return what the contract has against `body`; None if it has nothing, or the body is no JSON."""
    try:
        found = yield from _object(body, (), _BODY, _required_of_body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not found:
        return None
    error = contract_error("InferRequest", first(found))
    return RequestError(ErrorCode.INVALID_ARGUMENT, error.message, error.field, error.allowed, error.rule)


def _object(
    text: bytes, path: Path, checks: dict[str, Check], required: Callable[[dict[str, Any]], list[Violation]]
) -> InTurns[list[Violation]]:
    if _kind(text) != "object":
        return [_type(text, path)]
    members = _members(text, _LARGE_BODY if checks is _BODY else _LARGE_TENSOR)
    found = [Violation((*path, *rest), rule) for rest, rule, _ in required(members)]
    for name, value in members.items():
        check = checks.get(name)
        if check is None:
            found.append(Violation((*path, name), "additionalProperties"))
        else:
            found += yield from check(bytes(value), (*path, name))
    return found


def _members(text: bytes, large: msgspec.json.Decoder[Any]) -> dict[str, msgspec.Raw]:
    if len(text) <= LARGE_BODY:
        return _MEMBERS.decode(text)
    try:
        known = large.decode(text)
    except msgspec.ValidationError as error:
        unknown = _UNKNOWN.match(str(error))
        if unknown is None:
            raise
        return {unknown[1]: _MISSING}
    members = {name: getattr(known, name) for name in known.__struct_fields__}
    return {name: value for name, value in members.items() if value is not _MISSING}


def _required_of_body(members: dict[str, Any]) -> list[Violation]:
    flat = ("input", "shape")
    if "inputs" in members:
        return [Violation((name,), "not") for name in flat if name in members]
    return [Violation((name,), "required") for name in flat if name not in members]


def _required_of_input(members: dict[str, Any]) -> list[Violation]:
    return [Violation((name,), "required") for name in ("data", "shape") if name not in members]


def _text(text: bytes, path: Path) -> InTurns[list[Violation]]:
    yield from ()
    if _kind(text) != "string":
        return [_type(text, path)]
    msgspec.json.decode(text)  # a text may still be no UTF-8
    return []


def _timeout(text: bytes, path: Path) -> InTurns[list[Violation]]:
    yield from ()
    if _kind(text) != "number":
        return [_type(text, path)]
    value = msgspec.json.decode(text)
    if value <= 0:
        return [Violation(path, "exclusiveMinimum", value)]
    return [Violation(path, "maximum", value)] if value > _MAX_TIMEOUT_MS else []


def _outputs(text: bytes, path: Path) -> InTurns[list[Violation]]:
    yield from ()
    if _kind(text) != "array":
        return [_type(text, path)]
    names = msgspec.json.decode(text)
    if not names:
        return [Violation(path, "minItems", [])]
    for place, name in enumerate(names):
        if not isinstance(name, str):
            return [Violation((*path, place), "type", name)]
    return [] if len(set(names)) == len(names) else [Violation(path, "uniqueItems", names)]


def _shape(text: bytes, path: Path) -> InTurns[list[Violation]]:
    yield from ()
    if _kind(text) != "array":
        return [_type(text, path)]
    sizes = msgspec.json.decode(text)
    found = {"maxItems": Violation(path, "maxItems", sizes)} if len(sizes) > MAX_DIMENSIONS else {}
    for place, size in enumerate(sizes):
        rule = _rule_of_size(size)
        if rule is not None:
            found.setdefault(rule, Violation((*path, place), rule, size))
    return list(found.values())


def _rule_of_size(size: object) -> str | None:
    """Return the rule that `size` breaks."""
    if isinstance(size, bool) or not isinstance(size, int | float) or size != size // 1:
        return "type"
    if size < 1:
        return "minimum"
    return "maximum" if size > MAX_ELEMENTS else None


def _values(text: bytes, path: Path) -> InTurns[list[Violation]]:
    """Look for what is no number, boolean or text; of many values only if none is a text or a list."""
    if _kind(text) != "array":
        return [_type(text, path)]
    seen = 0
    for piece in (text,) if len(text) <= LARGE_BODY else slices_of_list(text) or ():
        try:
            seen += len(_VALUES.decode(piece))
        except msgspec.ValidationError as error:
            odd = _NO_VALUE.search(str(error))
            # A number that no type can hold is left to the model, whose type it does not fit.
            return [Violation((*path, seen + int(odd[2])), "type", _EMPTY[odd[1]])] if odd else []
        yield
    return []


def _inputs(text: bytes, path: Path) -> InTurns[list[Violation]]:
    if _kind(text) != "object":
        return [_type(text, path)]
    members = _MEMBERS.decode(text)
    found = [] if members else [Violation(path, "minProperties", {})]
    if "" in members:
        found.append(Violation(path, "propertyNames"))
    for name, value in members.items():
        found += yield from _object(bytes(value), (*path, name), _INPUT, _required_of_input)
    return found


def _kind(text: bytes) -> str:
    """Return the type of a value in JSON, by its first letter."""
    return _KINDS.get(text.lstrip()[:1], "number")


def _type(text: bytes, path: Path) -> Violation:
    kind = _kind(text)
    return Violation(path, "type", _EMPTY[kind] if kind in _EMPTY else msgspec.json.decode(text))


_BODY: dict[str, Check] = {
    "model": _text,
    "version_id": _text,
    "input": _values,
    "shape": _shape,
    "inputs": _inputs,
    "outputs": _outputs,
    "timeout_ms": _timeout,
    "id": _text,
}
_INPUT: dict[str, Check] = {"data": _values, "shape": _shape}
_LARGE_BODY = msgspec.json.Decoder(_BodyMembers)
_LARGE_TENSOR = msgspec.json.Decoder(_TensorMembers)
