"""An ONNX model as the protobuf message it is: walked, and its tensors exchanged, without parsing the whole.

A model of many GiB is a small graph around large tensors. Here the message is read field by field over a
mapping of the file, so that only the parts that are asked for are touched, and fields that this code does
not know are carried over as they stand. Field numbers: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

EXTERNAL = 1
"""`TensorProto.data_location` of a tensor whose values are not in the message."""
STRING = 8
"""`TensorProto.data_type` of strings."""
ELEMENT_BITS = {
    **dict.fromkeys((2, 3, 9, 17, 18, 19, 20, 24), 8),
    **dict.fromkeys((4, 5, 10, 16), 16),
    **dict.fromkeys((1, 6, 12), 32),
    **dict.fromkeys((7, 11, 13, 14), 64),
    15: 128,
    **dict.fromkeys((21, 22, 23), 4),
}
"""`TensorProto.data_type` to the bits of one element; strings have no fixed size."""
ELEMENT_NAMES = {
    1: "float",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "double",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
}
"""Names as in ONNX Runtime's `tensor(…)`; types that are only stored have none."""

_MODEL_GRAPH, _MODEL_OPSET = 7, 8
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_INPUT, _GRAPH_OUTPUT = 1, 5, 11, 12
_NODE_ATTRIBUTE = 5
_ATTRIBUTE_TENSOR, _ATTRIBUTE_GRAPH, _ATTRIBUTE_TENSORS, _ATTRIBUTE_GRAPHS = 5, 6, 10, 11
_TENSOR_DIMS, _TENSOR_TYPE, _TENSOR_NAME, _TENSOR_RAW = 1, 2, 8, 9
_TENSOR_EXTERNAL, _TENSOR_LOCATION = 13, 14
_TENSOR_DATA = {4, 5, 6, 7, _TENSOR_RAW, 10, 11, _TENSOR_EXTERNAL, _TENSOR_LOCATION}
_DEEPEST = 64
"""Graphs in graphs; more are no model but an attack on the stack."""


class WireError(Exception):
    """The bytes are not the message that they should be."""


class Field(NamedTuple):
    """One field of a message, by its place in the buffer."""

    number: int
    wire_type: int
    start: int
    """Where its key begins."""
    begin: int
    """Where its content begins."""
    end: int
    value: int
    """Of a varint; else 0."""


def fields(buffer: memoryview, begin: int, end: int) -> Iterator[Field]:
    """Yield the fields of the message at `begin`.

    Raises:
        WireError: the bytes are no message, or it ends too early.

    """
    position = begin
    while position < end:
        start = position
        key, position = _varint(buffer, position, end)
        number, wire_type = key >> 3, key & 7
        content = position
        value = 0
        if number == 0:
            raise WireError(f"field number 0 at offset {start}")
        if wire_type == VARINT:
            value, position = _varint(buffer, position, end)
        elif wire_type == BYTES:
            length, content = _varint(buffer, position, end)
            position = content + length
        elif wire_type in (FIXED32, FIXED64):
            position += 4 if wire_type == FIXED32 else 8
        else:
            raise WireError(f"wire type {wire_type} at offset {start}")
        if position > end:
            raise WireError(f"the field at offset {start} ends after its message")
        yield Field(number, wire_type, start, content, position, value)


@dataclass(frozen=True, slots=True)
class Value:
    """One input or output as the graph declares it."""

    name: str
    element_type: int
    """`TensorProto.data_type`; 0 if it is no tensor."""
    shape: tuple[int | str | None, ...] | None
    """A number, a dynamic dimension's name, or None for one without; None as a whole: the rank is unknown."""


@dataclass(frozen=True, slots=True)
class Values:
    """What a graph takes and gives; constants are no inputs."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    opsets: dict[str, int]
    outside: bool = False
    """Some of its constants are in other files."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A constant of a graph, by where its values are."""

    name: str
    element_type: int
    dims: tuple[int, ...]
    raw: tuple[int, int] | None
    """Begin and end of its little-endian bytes in the message; None if they are not there in that form."""
    external: dict[str, str] | None
    """`location`, `offset`, `length`, if the values are outside."""
    in_attribute: bool
    """A node's attribute holds it, not a graph."""

    @property
    def byte_size(self) -> int | None:
        """Bytes that its values take, None for strings and types that are not known."""
        bits = ELEMENT_BITS.get(self.element_type)
        return None if bits is None else size_of(bits, self.dims)


def size_of(bits: int, dims: tuple[int, ...]) -> int:
    """Return the bytes of a tensor; elements of 4 bits are packed in pairs."""
    elements = 1
    for dim in dims:
        elements *= dim
    return (elements * bits + 7) // 8


def mapped(path: str) -> memoryview:
    """Return the content of a file, mapped for reading; the mapping ends with the last view of it.

    Raises:
        OSError: it cannot be read.

    """
    with Path(path).open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return memoryview(b"")
        # Not closed by hand: an error on its way holds views, and a mapping with views cannot be closed.
        return memoryview(mmap(file.fileno(), 0, access=ACCESS_READ))


Exchange = Callable[[Tensor], bytes | None]
"""Returns the fields that take the place of a tensor's values, None to leave it as it is."""


def read_values(model: memoryview) -> Values:
    """Return the inputs and outputs of a `ModelProto`.

    Raises:
        WireError: it is none.

    """
    inputs: list[Value] = []
    outputs: list[Value] = []
    constants: set[str] = set()
    outside = False
    opsets: dict[str, int] = {}
    for field in fields(model, 0, len(model)):
        if field.number == _MODEL_OPSET and field.wire_type == BYTES:
            domain, version = "", 0
            for part in fields(model, field.begin, field.end):
                if part.number == 1:
                    domain = _text(model, part)
                elif part.number == 2:
                    version = part.value
            opsets[domain] = version
        if field.number != _MODEL_GRAPH or field.wire_type != BYTES:
            continue
        for entry in fields(model, field.begin, field.end):
            if entry.number == _GRAPH_INPUT:
                inputs.append(_value(model, entry))
            elif entry.number == _GRAPH_OUTPUT:
                outputs.append(_value(model, entry))
            elif entry.number == _GRAPH_INITIALIZER:
                constant = _tensor(model, entry, in_attribute=False)
                constants.add(constant.name)
                outside = outside or constant.external is not None
    given = tuple(value for value in inputs if value.name not in constants)
    return Values(given, tuple(outputs), opsets, outside)


def exchange_tensors(model: memoryview, exchange: Exchange) -> bytes:
    """Return `model` with the values of its tensors exchanged, in the order in which they stand in it.

    Raises:
        WireError: it is no `ModelProto`.

    """
    parts: list[bytes | memoryview] = []
    for field in fields(model, 0, len(model)):
        if field.number == _MODEL_GRAPH and field.wire_type == BYTES:
            parts += _nested(_MODEL_GRAPH, _graph(model, field, exchange, 0))
        else:
            parts.append(model[field.start : field.end])
    return b"".join(parts)


def external_data(location: str, offset: int, length: int) -> bytes:
    """Return the fields of a tensor whose values are in a file beside the model."""
    entries = (("location", location), ("offset", str(offset)), ("length", str(length)))
    return _LOCATION_EXTERNAL + b"".join(
        _message(_TENSOR_EXTERNAL, _message(1, key.encode()) + _message(2, value.encode()))
        for key, value in entries
    )


def no_data() -> bytes:
    """Return the fields of a tensor whose values are outside, at a place that the message does not tell."""
    return _LOCATION_EXTERNAL


_Parts = list[bytes | memoryview]


def _graph(model: memoryview, graph: Field, exchange: Exchange, depth: int) -> _Parts:
    if depth > _DEEPEST:
        raise WireError("graphs are nested too deeply")
    parts: _Parts = []
    for field in fields(model, graph.begin, graph.end):
        if field.number == _GRAPH_INITIALIZER and field.wire_type == BYTES:
            parts += _exchanged(model, field, exchange, in_attribute=False)
        elif field.number == _GRAPH_NODE and field.wire_type == BYTES:
            parts += _node(model, field, exchange, depth)
        else:
            parts.append(model[field.start : field.end])
    return parts


def _node(model: memoryview, node: Field, exchange: Exchange, depth: int) -> _Parts:
    parts: _Parts = []
    for field in fields(model, node.begin, node.end):
        if field.number != _NODE_ATTRIBUTE or field.wire_type != BYTES:
            parts.append(model[field.start : field.end])
            continue
        inner: _Parts = []
        for part in fields(model, field.begin, field.end):
            if part.wire_type == BYTES and part.number in (_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS):
                inner += _nested(part.number, _graph(model, part, exchange, depth + 1))
            elif part.wire_type == BYTES and part.number in (_ATTRIBUTE_TENSOR, _ATTRIBUTE_TENSORS):
                inner += _exchanged(model, part, exchange, in_attribute=True)
            else:
                inner.append(model[part.start : part.end])
        parts += _nested(_NODE_ATTRIBUTE, inner)
    return _nested(_GRAPH_NODE, parts)


def _exchanged(model: memoryview, field: Field, exchange: Exchange, *, in_attribute: bool) -> _Parts:
    values = exchange(_tensor(model, field, in_attribute=in_attribute))
    if values is None:
        return [model[field.start : field.end]]
    kept: _Parts = [
        model[part.start : part.end]
        for part in fields(model, field.begin, field.end)
        if part.number not in _TENSOR_DATA
    ]
    return _nested(field.number, [*kept, values])


def _tensor(model: memoryview, field: Field, *, in_attribute: bool) -> Tensor:
    name, element_type, location = "", 0, 0
    dims: list[int] = []
    raw: tuple[int, int] | None = None
    external: dict[str, str] = {}
    for part in fields(model, field.begin, field.end):
        if part.number == _TENSOR_DIMS:
            dims += [part.value] if part.wire_type == VARINT else _packed(model, part)
        elif part.number == _TENSOR_TYPE:
            element_type = part.value
        elif part.number == _TENSOR_NAME:
            name = _text(model, part)
        elif part.number == _TENSOR_RAW:
            raw = (part.begin, part.end)
        elif part.number == _TENSOR_LOCATION:
            location = part.value
        elif part.number == _TENSOR_EXTERNAL:
            entry = {inner.number: _text(model, inner) for inner in fields(model, part.begin, part.end)}
            external[entry.get(1, "")] = entry.get(2, "")
    if any(dim >= 1 << 62 for dim in dims):
        raise WireError(f"constant {name[:64]!r} has a negative dimension")
    outside = external if location == EXTERNAL else None
    return Tensor(name, element_type, tuple(dims), raw, outside, in_attribute)


def _value(model: memoryview, field: Field) -> Value:
    name, element_type = "", 0
    shape: tuple[int | str | None, ...] | None = None
    for part in fields(model, field.begin, field.end):
        if part.number == 1:
            name = _text(model, part)
        elif part.number == 2:  # TypeProto
            for tensor in (entry for entry in fields(model, part.begin, part.end) if entry.number == 1):
                for inner in fields(model, tensor.begin, tensor.end):
                    if inner.number == 1:
                        element_type = inner.value
                    elif inner.number == 2:
                        shape = tuple(_dimension(model, dim) for dim in fields(model, inner.begin, inner.end))
    return Value(name, element_type, shape)


def _dimension(model: memoryview, field: Field) -> int | str | None:
    for part in fields(model, field.begin, field.end):
        if part.number == 1 and part.wire_type == VARINT:
            return part.value if 0 < part.value < 1 << 63 else None
        if part.number == 2:
            return _text(model, part) or None
    return None


def _text(model: memoryview, field: Field) -> str:
    if field.wire_type != BYTES:
        raise WireError(f"no text at offset {field.start}")
    return bytes(model[field.begin : field.end]).decode(errors="replace")


def _packed(model: memoryview, field: Field) -> list[int]:
    values = []
    position = field.begin
    while position < field.end:
        value, position = _varint(model, position, field.end)
        values.append(value)
    return values


def _varint(buffer: memoryview, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end and shift < 70:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise WireError(f"a number at offset {position} does not end")


def _nested(number: int, parts: _Parts) -> _Parts:
    return [_prefix(number, sum(len(part) for part in parts)), *parts]


def _message(number: int, content: bytes) -> bytes:
    return _prefix(number, len(content)) + content


def _prefix(number: int, length: int) -> bytes:
    return _encoded(number << 3 | BYTES) + _encoded(length)


def _encoded(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_LOCATION_EXTERNAL = _encoded(_TENSOR_LOCATION << 3 | VARINT) + _encoded(EXTERNAL)
