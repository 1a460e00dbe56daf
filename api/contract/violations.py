"""What is wrong with a document: where, which rule, and in words what would be right.

Validators only find violations, pairs of a place and a rule. Which of several is told, and how it is put, is
decided here, so that all of them say the same. Texts come from the schemas.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from mcp2026.api.contract.documents import Schema, reference, resolved, schema
from mcp2026.api.errors import ApiError

Path = tuple[str | int, ...]
"""Keys and indexes from the body to a value."""

RULES = (
    "propertyNames",
    "additionalProperties",
    "type",
    "required",
    "not",
    "minProperties",
    "minItems",
    "maxItems",
    "uniqueItems",
    "enum",
    "minLength",
    "maxLength",
    "minimum",
    "exclusiveMinimum",
    "maximum",
    "format",
    "pattern",
)
"""JSON Schema's keywords that the contract uses, in the order in which their violations are told."""

_MAX_SHOWN = 64
_FORMATS = {"email": "an email address", "uuid": "a UUID", "uri": "a URI"}
_PLURALS = {"string": "texts", "integer": "whole numbers", "number": "numbers", "boolean": "booleans"}
_TYPES = {"string": "a text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}


class Violation(NamedTuple):
    """One rule that one value breaks."""

    path: Path
    """Of a missing field, and of one that is not known: where it is, or should be."""
    rule: str
    """JSON Schema's keyword."""
    value: Any = None
    """What is there; of a list or object, for `type`, any of its kind."""


class ContractError(ApiError):
    """A document or a message breaks a rule of the contract."""

    def __init__(self, field: str, rule: str, problem: str, allowed: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        """Path of the field, such as ``inputs.x.shape[0]``; ``body`` is the whole body."""
        self.rule = rule
        """JSON Schema's keyword."""
        self.allowed = allowed
        """What would have been accepted, for people."""
        self.problem = problem
        self.message = str(self)


def first(violations: Iterable[Violation]) -> Violation:
    """Return the one that is told: by the order of `RULES`, then of paths. The order of keys has no say."""
    return min(violations, key=order)


def contract_error(schema_name: str, violation: Violation) -> ContractError:
    """Return a violation of the schema `schema_name` as an error in words."""
    path, rule, value = violation
    start = schema(schema_name)
    if rule == "additionalProperties":
        return ContractError(field_of(path), rule, "is not a field", _names(_at(start, path[:-1])))
    if rule == "required":
        return ContractError(field_of(path), rule, "is missing", _allowed(_at(start, path)))
    if rule == "not":
        holder = _at(start, path[:-1])
        return ContractError(field_of(path), rule, _reason(holder, path), _sentence(holder))
    return ContractError(field_of(path), rule, _problem(rule, value), _allowed(_at(start, path)))


def field_of(path: Path) -> str:
    """Return `path` as text: ``inputs.x.shape[0]``; ``body`` if it is empty."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step[:_MAX_SHOWN]}" for step in path)
    return text.removeprefix(".") or "body"


def order(violation: Violation) -> tuple[int, list[tuple[bool, str | int]]]:
    """Return what violations are sorted by."""
    return RULES.index(violation.rule), [(isinstance(step, str), step) for step in violation.path]


def _at(start: Schema, path: Path) -> Schema:
    part = resolved(start)
    for step in path:
        if isinstance(step, int):
            part = resolved(part.get("items", {}))
        else:
            others = part.get("additionalProperties")
            part = resolved(
                part.get("properties", {}).get(step) or (others if isinstance(others, dict) else {})
            )
    return part


def _names(part: Schema) -> str:
    return ", ".join(part.get("properties", {})) or "no fields"


def _reason(holder: Schema, path: Path) -> str:
    """Return what the schema says of a field that may not be where it is."""
    name = path[-1]
    branches = [holder.get(branch, {}).get("properties", {}) for branch in ("then", "else")]
    return str(next(one[name]["not"]["description"] for one in branches if name in one))


def _sentence(part: Schema) -> str:
    text = " ".join(str(part["description"]).split())
    return text.rstrip(".")


def _problem(rule: str, value: Any) -> str:
    if rule == "type":
        return _kind(value)
    if rule in ("minimum", "exclusiveMinimum", "maximum"):
        return f"{_number(value)} is out of range"
    if rule in ("minLength", "maxLength"):
        return f"has {len(value)} characters"
    if rule in ("minItems", "maxItems", "minProperties"):
        return f"has {len(value)} elements"
    if rule == "uniqueItems":
        return "names one twice"
    if rule == "propertyNames":
        return "has a member without a name"
    return f"{value[:_MAX_SHOWN]!r} is not accepted"


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return f"is {str(value).lower()}"
    if isinstance(value, int | float):
        return f"{_number(value)} is not accepted"
    if isinstance(value, str):
        return "is a text"
    if isinstance(value, list):
        return "is a list"
    return "is null" if value is None else "is an object"


def _number(value: float) -> str:
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length()} bits"
    whole = abs(value) < 2**53 and value == int(value)
    return repr(int(value) if whole else value)


def _allowed(part: Schema) -> str:
    """Say in words what `part` accepts."""
    if "x-allowed" in part:
        return str(part["x-allowed"])
    if "enum" in part:
        return ", ".join(str(value) for value in part["enum"])
    kind = part.get("type")
    if kind in ("integer", "number"):
        return _range(_TYPES[kind], part)
    if kind == "string":
        return _FORMATS.get(part.get("format", "")) or _lengths("a text", part, "Length", "characters")
    if kind == "array":
        different = "different " if part.get("uniqueItems") else ""
        return _lengths(f"a list of {different}{_many(resolved(part['items']))}", part, "Items", "elements")
    if kind == "object":
        named = reference(part.get("additionalProperties") or {})
        if named is None:
            return f"an object with {_names(part)}"
        inner = f"objects with {_names(schema(named))}"
        return _lengths(f"an object of {inner}", part, "Properties", "elements")
    return " or ".join(_TYPES[one] for one in (kind if isinstance(kind, list) else [str(kind)]))


def _many(part: Schema) -> str:
    kind = part.get("type")
    if isinstance(kind, list):
        return " or ".join(_PLURALS[one] for one in kind)
    plural = _PLURALS.get(str(kind))
    return "objects" if plural is None else _range(plural, part)


def _range(what: str, part: Schema) -> str:
    low, above, high = part.get("minimum"), part.get("exclusiveMinimum"), part.get("maximum")
    if above is not None:
        return f"{what} above {above}" + ("" if high is None else f", up to {high}")
    if low is not None and high is not None:
        return f"{what} from {low} to {high}"
    return what if low is None else f"{what} from {low}"


def _lengths(what: str, part: Schema, keyword: str, unit: str) -> str:
    low, high = part.get(f"min{keyword}"), part.get(f"max{keyword}")
    if high is not None:
        return f"{what}, {low or 0} to {high} {unit}"
    return what if low is None else f"{what}, {low} or more"
