"""Inference as messages of the contract: packed lists to tensors and back.

A request that fits its model in every way is read here, floats without touching each number. Whatever does
not fit is left to who makes a document of it and reads it as the body that it stands for: so there is one
place that says what is wrong, in the same words over both transports.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from mcp2026.api.contract.native_pb2 import InferRequest, InferResponse, OutputShape, OutputTensor, Values
from mcp2026.runtime.errors import RequestError
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.model.loaded import LoadedVersion, ServedModel, rows_of_a_run
from mcp2026.runtime.model.signature import STRING, TensorSpec, check_shape, count_rows
from mcp2026.runtime.protocol.json_turns import LARGE_VALUES, InTurns
from mcp2026.runtime.protocol.open_inference.datatypes import fp32_from_bf16
from mcp2026.runtime.protocol.open_inference.json_data import texts

_NUMBERS, _BOOLEANS = 1, 4
"""Numbers of the lists of Values that are read or written by hand."""
_OUTPUT, _OUTPUTS, _DATA, _KEY, _VALUE = 4, 7, 1, 1, 2
"""Numbers of the fields that hold values, from InferResponse down."""
_OF_BYTES = 2
"""How protobuf writes packed lists, texts and messages."""
_LARGEST_SIGNED = 2**63 - 1
_LARGEST = {np.dtype(kind): float(np.finfo(kind).max) for kind in (np.float16, np.float32, np.float64)}


class Inference(msgspec.Struct, frozen=True, gc=False):
    """A request that fits its model."""

    version: LoadedVersion
    inputs: tuple[Array, ...]
    rows: int
    outputs: tuple[int, ...]
    """Indexes of the outputs asked for."""
    timeout_ns: int
    id: str | None
    simple: bool
    """It was asked in the form for one input, and is answered in the form for one output if it can be."""


def fitting(
    message: InferRequest, model: ServedModel, version: LoadedVersion, max_timeout_ns: int
) -> Inference | None:
    """Return what `message` asks of `version`; None if it does not fit, or has to be looked at closely."""
    signature = version.signature
    simple = not message.inputs
    outputs = _indexes(message.outputs, signature.outputs)
    timeout_ns = message.timeout_ms * 1e6 if message.HasField("timeout_ms") else max_timeout_ns
    if outputs is None or not 0 < timeout_ns <= max_timeout_ns or _has_unknown_fields(message):
        return None
    if {message.HasField("input"), message.HasField("shape")} != {simple}:
        return None
    arrays = _one_input(message, signature.inputs) if simple else _inputs(message, signature.inputs)
    if arrays is None:
        return None
    try:
        rows = count_rows(signature, arrays, rows_of_a_run(model.config))
    except RequestError:
        return None
    asked_id = message.id if message.HasField("id") else None
    return Inference(version, tuple(arrays), rows, outputs, max(1, int(timeout_ns)), asked_id, simple)


def answer(inference: Inference, outputs: list[Array]) -> InTurns[bytes]:
    """Return the InferResponse with `outputs`, which must stay as they are meanwhile.

    Raises:
        RequestError: a text is not UTF-8.

    """
    version = inference.version
    head = InferResponse(model=version.model, version_id=version.version_id)
    if inference.id is not None:
        head.id = inference.id
    alone = inference.simple and len(inference.outputs) == 1
    pieces: list[bytes] = []
    for index in inference.outputs:
        spec, array = version.signature.outputs[index], outputs[index]
        values = yield from _values(spec, array)
        shape = OutputShape(sizes=array.shape)
        if alone:
            head.shape.CopyFrom(shape)
            head.dtype = spec.dtype_name
            pieces += [head.SerializeToString(), _field(_OUTPUT, values)]
        else:
            rest = OutputTensor(shape=shape, dtype=spec.dtype_name).SerializeToString()
            named = _field(_KEY, spec.name.encode()) + _field(_VALUE, _field(_DATA, values) + rest)
            pieces.append(_field(_OUTPUTS, named))
    return b"".join(pieces) if alone else head.SerializeToString() + b"".join(pieces)


def _one_input(message: InferRequest, specs: tuple[TensorSpec, ...]) -> list[Array] | None:
    if len(specs) != 1:
        return None
    array = _array(specs[0], message.input, message.shape)
    return None if array is None else [array]


def _inputs(message: InferRequest, specs: tuple[TensorSpec, ...]) -> list[Array] | None:
    if len(message.inputs) != len(specs) or not all(spec.name in message.inputs for spec in specs):
        return None
    arrays = []
    for spec in specs:
        tensor = message.inputs[spec.name]
        complete = tensor.HasField("data") and tensor.HasField("shape") and not _has_unknown_fields(tensor)
        array = _array(spec, tensor.data, tensor.shape) if complete else None
        if array is None:
            return None
        arrays.append(array)
    return arrays


def _array(spec: TensorSpec, values: Values, shape: Any) -> Array | None:
    flat = _flat(spec, values)
    if flat is None or _has_unknown_fields(shape):
        return None
    sizes = list(shape.sizes)
    try:
        check_shape(spec, sizes, flat.size, "shape")
    except RequestError:
        return None
    return flat.reshape(sizes)


def _flat(spec: TensorSpec, values: Values) -> Array | None:
    """Return the values as a flat array of the type of `spec`; None if they are not of its kind or range."""
    if spec.datatype == "BF16":
        return None
    if spec.dtype.kind == "f" and values.numbers:
        packed = _only_field(values.SerializeToString(), _NUMBERS)
        if packed is None:
            return None
        wide = np.frombuffer(packed, "<f8")
        largest = _LARGEST[spec.dtype]
        fits = -largest <= wide.min() and wide.max() <= largest  # neither is true of NaN
        return wide.astype(spec.dtype) if fits else None
    filled = [one for one in _lists(values) if one]
    if len(filled) != 1 or _has_unknown_fields(values):
        return None
    (found,) = filled
    kind = spec.dtype.kind
    if kind == "O" and found is values.strings:
        strings = np.empty(len(found), STRING)
        strings[:] = [text.encode() for text in found]
        return strings
    if (kind == "b") != (found is values.booleans) or kind not in "fiub" or found is values.strings:
        return None
    if kind in "iu" and found is values.numbers:
        return None
    try:
        array: Array = np.array(found, spec.dtype)
    except OverflowError:
        return None
    return array if kind != "f" or np.isfinite(array).all() else None


def _lists(values: Values) -> tuple[Sequence[Any], ...]:
    return (values.numbers, values.integers, values.unsigned_integers, values.booleans, values.strings)


def _indexes(names: Sequence[str], specs: tuple[TensorSpec, ...]) -> tuple[int, ...] | None:
    if not names:
        return tuple(range(len(specs)))
    known = {spec.name: position for position, spec in enumerate(specs)}
    indexes = tuple(known[name] for name in names if name in known)
    return indexes if len(set(indexes)) == len(names) else None


def _values(spec: TensorSpec, array: Array) -> InTurns[bytes]:
    """Return the message Values with the values of `array` in row-major order."""
    flat = fp32_from_bf16(array).ravel() if spec.datatype == "BF16" else array.ravel()
    kind = flat.dtype.kind
    if not flat.size:
        return b""
    if kind == "f":
        return _field(_NUMBERS, flat.astype("<f8").tobytes())
    if kind == "b":
        return _field(_BOOLEANS, flat.astype(np.uint8).tobytes())
    if kind == "O":
        return Values(strings=texts(flat, spec.name)).SerializeToString()
    name = "unsigned_integers" if kind == "u" and int(flat.max()) > _LARGEST_SIGNED else "integers"
    pieces = []
    for start in range(0, flat.size, LARGE_VALUES):
        if start:
            yield
        some: Any = {name: flat[start : start + LARGE_VALUES].tolist()}
        pieces.append(Values(**some).SerializeToString())
    return b"".join(pieces)


def _has_unknown_fields(message: Message) -> bool:
    return len(UnknownFieldSet(message)) > 0


def _field(number: int, content: bytes) -> bytes:
    return bytes((number << 3 | _OF_BYTES,)) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def _only_field(message: bytes, number: int) -> memoryview | None:
    """Return the content of a field of bytes; None if the message has any other."""
    size = shift = 0
    for index in range(1, len(message)):
        size |= (message[index] & 0x7F) << shift
        shift += 7
        if message[index] < 0x80:
            whole = message[0] == number << 3 | _OF_BYTES and index + 1 + size == len(message)
            return memoryview(message)[index + 1 :] if whole else None
    return None
