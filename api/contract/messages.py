"""Messages of the contract and the documents that they stand for, both ways.

A message is checked as its document: by the same validator, with the same errors (docs/decisions/0080).
What a message can say and a document cannot is refused here: fields whose numbers the contract does not
know, NaN and infinities where JSON has none, values in two lists. protobuf does not tell an empty list or
map from a missing one; it is an empty one where the schema requires it, else a missing one.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from mcp2026.api.contract import native_pb2
from mcp2026.api.contract.documents import schema
from mcp2026.api.contract.values import list_of, values_of
from mcp2026.api.contract.violations import ContractError, Path, Violation, contract_error, field_of, order

Document = dict[str, Any]

_INT64 = range(-(2**63), 2**63)


def document_of(message: Message, *, answer: bool = False) -> Document:
    """Return the document that `message` stands for, to be checked by `validation.check`.

    The name of the message is that of its schema. With `answer`, NaN and infinities of tensors are the words
    that JSON has for them; otherwise they are refused.

    Raises:
        ContractError: it says what no document can.

    """
    reader = _Reader(message, answer)
    document: Document = reader.read(message, ())
    reader.problems.tell()
    return document


def message_of(schema_name: str, document: Document) -> Any:
    """Return the message that stands for `document`.

    It need not have been checked: whatever a message can say is taken.

    Raises:
        ContractError: a field is not known, or has a value that its type in the message cannot have.
        KeyError: `schema_name` is no message of the contract.

    """
    message = message_class(schema_name)()
    writer = _Writer(schema_name)
    writer.write(message, document, ())
    writer.problems.tell()
    return message


def message_class(schema_name: str) -> Any:
    """Return the class of the messages of a schema.

    Raises:
        KeyError: it is no message of the contract.

    """
    if schema_name not in native_pb2.DESCRIPTOR.message_types_by_name:
        raise KeyError(schema_name)
    return getattr(native_pb2, schema_name)


class _Problems:
    """What is wrong, until all is known that is."""

    def __init__(self, schema_name: str) -> None:
        self._schema_name = schema_name
        self._found: list[tuple[Violation, ContractError]] = []

    def breaks(self, path: Path, rule: str, value: object = None) -> None:
        violation = Violation(path, rule, value)
        self._found.append((violation, contract_error(self._schema_name, violation)))

    def no_value(self, path: Path, problem: str, allowed: str) -> None:
        self._found.append((Violation(path, "type"), ContractError(field_of(path), "type", problem, allowed)))

    def tell(self) -> None:
        """Raise the first problem, if there is one."""
        if self._found:
            raise min(self._found, key=lambda pair: order(pair[0]))[1]


class _Reader:
    """Makes a document of a message."""

    def __init__(self, message: Message, answer: bool) -> None:
        self.problems = _Problems(message.DESCRIPTOR.name)
        self._answer = answer

    def read(self, message: Any, path: Path) -> Any:
        part = schema(message.DESCRIPTOR.name)
        for unknown in sorted({field.field_number for field in _unknown_fields(message)}):
            self.problems.breaks((*path, f"#{unknown}"), "additionalProperties")
        if "x-proto-values" in part:
            try:
                return list_of(message, answer=self._answer)
            except ValueError as error:
                place, problem, allowed = error.args
                self.problems.no_value((*path, *place), problem, allowed)
                return []
        if "x-proto-items" in part:
            return list(getattr(message, part["x-proto-items"]))
        return dict(self._fields(message, part.get("required", []), path))

    def _fields(self, message: Any, required: list[str], path: Path) -> Iterator[tuple[str, Any]]:
        for field in message.DESCRIPTOR.fields:
            value, here = getattr(message, field.name), (*path, field.name)
            if field.is_repeated:
                if value or field.name in required:
                    yield field.name, self._repeated(field, value, here)
            elif message.HasField(field.name):
                if field.message_type is not None:
                    value = self.read(value, here)
                elif isinstance(value, float) and not math.isfinite(value):
                    self.problems.no_value(here, f"{value} is not accepted", "a finite number")
                yield field.name, value

    def _repeated(self, field: Any, value: Any, path: Path) -> Any:
        if field.message_type is None:
            return list(value)
        if field.message_type.GetOptions().map_entry:
            return {key: self.read(value[key], (*path, key)) for key in sorted(value)}
        return [self.read(element, (*path, index)) for index, element in enumerate(value)]


class _Writer:
    """Makes a message of a document."""

    def __init__(self, schema_name: str) -> None:
        self.problems = _Problems(schema_name)

    def write(self, message: Any, value: Any, path: Path, *, numbers: bool = False) -> None:
        """Write `value` into `message`; `numbers`: what looks like texts may be NaN and infinities."""
        part = schema(message.DESCRIPTOR.name)
        if "x-proto-values" in part or "x-proto-items" in part:
            if not isinstance(value, list):
                self.problems.breaks(path, "type", value)
            elif "x-proto-items" in part:
                self._list(message, message.DESCRIPTOR.fields_by_name[part["x-proto-items"]], value, path)
            else:
                self._values(message, value, path, numbers)
            return
        if not isinstance(value, dict):
            self.problems.breaks(path, "type", value)
            return
        numbers = value.get("dtype", "string") != "string"
        for name, inner in value.items():
            field = message.DESCRIPTOR.fields_by_name.get(name)
            if field is None:
                self.problems.breaks((*path, name), "additionalProperties")
            else:
                self._field(message, field, inner, (*path, name), numbers)

    def _field(self, message: Any, field: Any, value: Any, path: Path, numbers: bool) -> None:
        if not field.is_repeated:
            if field.message_type is not None:
                part = getattr(message, field.name)
                part.SetInParent()
                self.write(part, value, path, numbers=numbers)
            elif self._fits(field, value, path):
                setattr(message, field.name, _converted(field, value))
        elif field.message_type is not None and field.message_type.GetOptions().map_entry:
            if not isinstance(value, dict):
                self.problems.breaks(path, "type", value)
                return
            for key, inner in value.items():
                self.write(getattr(message, field.name)[key], inner, (*path, key))
        elif isinstance(value, list):
            self._list(message, field, value, path)
        else:
            self.problems.breaks(path, "type", value)

    def _list(self, message: Any, field: Any, values: list[Any], path: Path) -> None:
        target = getattr(message, field.name)
        for index, value in enumerate(values):
            here = (*path, index)
            if field.message_type is not None:
                self.write(target.add(), value, here)
            elif self._fits(field, value, here):
                target.append(_converted(field, value))

    def _values(self, message: Any, values: list[Any], path: Path, numbers: bool) -> None:
        odd = [index for index, value in enumerate(values) if not isinstance(value, str | int | float | bool)]
        if odd:
            self.problems.breaks((*path, odd[0]), "type", values[odd[0]])
            return
        try:
            values_of(values, message, numbers=numbers)
        except ValueError as error:
            self.problems.no_value(path, *error.args)

    def _fits(self, field: Any, value: Any, path: Path) -> bool:
        """Return whether a field of a scalar type can have `value`."""
        if field.cpp_type == field.CPPTYPE_STRING:
            fits = isinstance(value, str)
        elif field.cpp_type == field.CPPTYPE_BOOL:
            fits = isinstance(value, bool)
        else:
            fits = isinstance(value, int | float) and not isinstance(value, bool)
            whole = field.cpp_type == field.CPPTYPE_INT64
            if fits and whole and isinstance(value, float):
                fits = value.is_integer()
            if fits and (int(value) not in _INT64 if whole else abs(value) > sys.float_info.max):
                self.problems.breaks(path, "maximum" if value > 0 else "minimum", value)
                return False
        if not fits:
            self.problems.breaks(path, "type", value)
        return fits


def _unknown_fields(message: Message) -> Sequence[Any]:
    fields: Any = UnknownFieldSet(message)  # its type stub lacks iteration
    return tuple(fields)


def _converted(field: Any, value: Any) -> Any:
    return int(value) if field.cpp_type == field.CPPTYPE_INT64 else value
