"""The usual form of JSON, per version: what need not be worked out anew for each request.

Most requests have one input, all in the same few shapes, and want one output. What is known of a shape that
was served before is kept here: how many values it has, how they are packed, and what stands around the
numbers of the answer. Everything else, and every error, is left to `json_codec.py`.
"""

import struct
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
import orjson

from mcp2026.api.serving import ServingConfig
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.model.loaded import LoadedVersion
from mcp2026.runtime.model.signature import TensorSpec
from mcp2026.runtime.protocol.open_inference.datatypes import fp32_from_bf16
from mcp2026.runtime.protocol.open_inference.json_data import texts

_MAX_SHAPES = 256
_CODES = {"f2": "e", "f4": "f", "f8": "d"} | dict(zip(("i1", "i2", "i4", "i8"), "bhiq", strict=True))
_CODES |= dict(zip(("u1", "u2", "u4", "u8", "b1"), "BHIQ?", strict=True))
"""numpy's name of a type to the letter of `struct`."""
HELD_OTHERWISE = ("BF16", "BYTES")
_N, _E = ord("n"), ord("e")
_TWICE_ROUNDED = b"7.038531e-26"
"""The only shortest digits of a float32 that do not bring it back by way of a float64 (all were tried)."""
_ONCE_ROUNDED = b"7.0385307e-26"

Value = TypeVar("Value")

MISSING: Any = None
"""A member that a body does not have. Its type is that of the member alone, so `null` itself is refused."""


class UsualBody(msgspec.Struct, Generic[Value], forbid_unknown_fields=True, gc=False):
    """The body of a request in the form for one input."""

    input: list[Value]
    shape: tuple[int, ...]
    outputs: list[str] = MISSING
    model: str = MISSING
    version_id: str = MISSING
    timeout_ms: float = MISSING
    id: str = MISSING


Decode = Callable[[bytes], UsualBody[Any]]

_OF_INTEGERS = msgspec.json.Decoder(UsualBody[int]).decode
DECODERS: dict[str, Decode] = {
    "f": msgspec.json.Decoder(UsualBody[float]).decode,
    "i": _OF_INTEGERS,
    "u": _OF_INTEGERS,
    "b": msgspec.json.Decoder(UsualBody[bool]).decode,
}
"""Per kind of element, numpy's letter."""


class KnownShape(NamedTuple):
    """A shape of the input that was served before."""

    values: int
    """How many there are."""
    rows: int
    pack: Callable[..., bytes]
    """Makes memory of values; raises `struct.error` or `OverflowError` for one that the type cannot hold."""


class UsualForm:
    """The usual form of one version under one configuration."""

    def __init__(self, version: LoadedVersion, config: ServingConfig) -> None:
        self.config = config
        spec = version.signature.inputs[0]
        packed = len(version.signature.inputs) == 1 and spec.datatype not in HELD_OTHERWISE
        self.dtype = spec.dtype
        self.decode = DECODERS[spec.dtype.kind] if packed else None
        """Decodes bodies for this version; None if it has no usual form."""
        self.known: dict[tuple[int, ...], KnownShape] = {}
        self.all_outputs = tuple(range(len(version.signature.outputs)))
        model, version_id = msgspec.json.encode(version.model), msgspec.json.encode(version.version_id)
        self.start = b'{"model":%b,"version_id":%b' % (model, version_id)
        """How every answer begins."""
        self.values = tuple(_writer(spec) for spec in version.signature.outputs)
        """Per output what writes its values, in row-major order."""
        self._names = tuple(msgspec.json.encode(spec.dtype_name) for spec in version.signature.outputs)
        self._ends: dict[tuple[int, tuple[int, ...]], bytes] = {}

    def learn(self, shape: tuple[int, ...], values: int, rows: int) -> None:
        """Take in a shape that fits this version."""
        if self.decode is None:
            return
        if len(self.known) >= _MAX_SHAPES:
            self.known.clear()
        self.known[shape] = KnownShape(values, rows, struct.Struct(layout(self.dtype, values)).pack)

    def end(self, output: int, shape: tuple[int, ...]) -> bytes:
        """Return what stands behind the numbers of an output: its shape and type."""
        end = self._ends.get((output, shape))
        if end is None:
            if len(self._ends) >= _MAX_SHAPES:
                self._ends.clear()
            end = b',"shape":%b,"dtype":%b}' % (msgspec.json.encode(shape), self._names[output])
            self._ends[output, shape] = end
        return end


def layout(dtype: np.dtype[Any], values: int) -> str:
    """Return `struct`'s format of an array.

    With `=` it refuses a number too large for float32, which it makes an infinity of without.
    """
    return f"={values}{_CODES[dtype.str[1:]]}"


def numbers(array: Array) -> bytes:
    """Return the values of `array`, in row-major order, as a list in JSON.

    Floats have the fewest digits that bring them back, read as their own type or as float64. What JSON has no
    number for becomes a string, as in protobuf.
    """
    flat = array.ravel()
    text = orjson.dumps(flat, option=orjson.OPT_SERIALIZE_NUMPY)
    if array.dtype.kind == "f":
        if _E in text and _TWICE_ROUNDED in text:
            text = text.replace(_TWICE_ROUNDED, _ONCE_ROUNDED)
        if _N in text:  # null
            values = text[1:-1].split(b",")
            for index in np.flatnonzero(~np.isfinite(flat)):
                values[index] = _word(flat[index])
            text = b"[%b]" % b",".join(values)
    return text


def _writer(spec: TensorSpec) -> Callable[[Array], bytes]:
    if spec.datatype == "BF16":
        return lambda array: numbers(fp32_from_bf16(array))
    if spec.datatype == "BYTES":
        return lambda array: msgspec.json.encode(texts(array, spec.name))
    return numbers


def _word(value: Any) -> bytes:
    if np.isnan(value):
        return b'"NaN"'
    return b'"Infinity"' if value > 0 else b'"-Infinity"'
