"""The general validator: any document against any schema of the contract, JSON Schema 2020-12 with formats.

For control calls, and the measure of the check that inference has of its own. The validator's module is
imported with the first document: it takes 24 ms and 9 MB, which a server that only infers need not spend.
"""

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from mcp2026.api.contract.documents import document as contract
from mcp2026.api.contract.violations import Path, Violation, contract_error, first

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator, ValidationError


def check(schema_name: str, document: object) -> None:
    """Raise unless `document`, as a parser of JSON returns it, is what `schema_name` describes.

    A whole number may be a float (``1.0``), as JSON Schema has it.

    Raises:
        ContractError: it breaks a rule; of several the first by the order of `violations.RULES`.
        KeyError: the contract has no such schema.

    """
    found = violations(schema_name, document)
    if found:
        raise contract_error(schema_name, first(found))


def violations(schema_name: str, document: object) -> list[Violation]:
    """Return all that is wrong with `document`."""
    return [
        violation
        for error in _validator(schema_name).iter_errors(document)
        for violation in _violations_of(error, document)
    ]


@cache
def _validator(schema_name: str) -> "Draft202012Validator":
    from jsonschema_rs import Draft202012Validator, RegexOptions

    components = contract()["components"]
    if schema_name not in components["schemas"]:
        raise KeyError(schema_name)
    return Draft202012Validator(
        {"$ref": f"#/components/schemas/{schema_name}", "components": components},
        validate_formats=True,
        pattern_options=RegexOptions(),
    )


def _violations_of(error: "ValidationError", document: object) -> Iterator[Violation]:
    from jsonschema_rs import ValidationErrorKind

    path, kind = _path(error.instance_path, document), error.kind
    match kind:
        case ValidationErrorKind.Required():
            yield Violation((*path, kind.property), "required")
        case ValidationErrorKind.AdditionalProperties():
            for name in kind.unexpected:
                yield Violation((*path, name), "additionalProperties")
        case ValidationErrorKind.FalseSchema():  # of an object that may have no fields
            for name in _value(document, path):
                yield Violation((*path, name), "additionalProperties")
        case _:
            yield Violation(path, kind.name, error.instance)


def _value(document: Any, path: Path) -> Any:
    for step in path:
        document = document[step]
    return document


def _path(steps: list[str | int], document: Any) -> Path:
    """Return the path that the validator tells, which has numbers for keys that look like them.

    It leaves out empty keys. Those are told of first wherever they may not be, so it is of no account where
    such a path ends.
    """
    path: list[str | int] = []
    for step in steps:
        key: Any = step if isinstance(document, list) else str(step)
        try:
            document = document[key]
        except (LookupError, TypeError):
            break
        path.append(key)
    return tuple(path)
