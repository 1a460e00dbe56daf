"""The `data` of a tensor in JSON: flat or nested lists.

FP16 and BF16 are numbers like the others, rounded to the nearest. What JSON has no number for, infinities and
NaN, is refused.
"""

from typing import Annotated, Any

import msgspec
import numpy as np

from mcp2026.runtime.errors import invalid
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.model.signature import STRING
from mcp2026.runtime.protocol.open_inference.datatypes import (
    DataType,
    as_bytes,
    bf16_from_fp32,
    fp32_from_bf16,
)

MAX_DIMENSIONS = 64

_BIT = Annotated[int, msgspec.Meta(ge=0, le=1)]
_FLOATS, _INTEGERS, _TRUTHS, _STRINGS = list[float], list[int], list[bool | _BIT], list[str]
_FORMS: dict[str, tuple[Any, str]] = {
    "BOOL": (_TRUTHS, "true and false"),
    "BYTES": (_STRINGS, "strings"),
    **dict.fromkeys(("FP16", "BF16", "FP32", "FP64"), (_FLOATS, "finite numbers")),
    **dict.fromkeys(("INT8", "INT16", "INT32", "INT64"), (_INTEGERS, "whole numbers")),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32", "UINT64"), (_INTEGERS, "whole numbers from 0")),
}
_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    name: msgspec.json.Decoder(form) for name, (form, _) in _FORMS.items()
}


def list_decoder(datatype: DataType) -> msgspec.json.Decoder[list[Any]]:
    """Return what decodes a flat list of elements; their range is not checked."""
    return _DECODERS[datatype.name]


def from_json(datatype: DataType, data: msgspec.Raw, count: int, field: str) -> Array:
    """Return the `count` elements of a JSON list, nested or flat, as a flat array.

    Raises:
        RequestError: the list holds anything else, or not as many.

    """
    values = _values(datatype.name, data, field)
    if len(values) != count:
        raise invalid(field, f"holds {len(values)} values", f"{count} values, as the shape says")
    return to_array(datatype, values, field)


def to_array(datatype: DataType, values: list[Any], field: str) -> Array:
    """Return Python values of the right kind as a flat array.

    Raises:
        RequestError: the datatype cannot hold one of them.

    """
    name = datatype.name
    if name == "BYTES":
        strings = np.empty(len(values), STRING)
        strings[:] = [value.encode() if isinstance(value, str) else value for value in values]
        return strings
    if name in ("FP16", "BF16", "FP32", "FP64"):
        return _numbers(datatype, values, field)
    try:
        return np.array(values, datatype.dtype)
    except OverflowError:
        limits = np.iinfo(datatype.dtype)
        raise invalid(field, f"holds a number that {name} cannot", f"{limits.min} to {limits.max}") from None


def texts(array: Array, field: str) -> list[str]:
    """Return the elements of an array of BYTES in row-major order.

    Raises:
        RequestError: one is not UTF-8, which JSON cannot carry.

    """
    return [_text(element, field) for element in array.ravel().tolist()]


def _numbers(datatype: DataType, values: list[Any], field: str) -> Array:
    wide = np.array(values, np.float64)
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32 if datatype.name == "BF16" else datatype.dtype)
    if datatype.name == "BF16":
        bits = bf16_from_fp32(narrow)
        fits = bool(np.isfinite(fp32_from_bf16(bits)).all())
        narrow = bits
    else:
        fits = bool(np.isfinite(narrow).all())
    if not fits:
        raise invalid(field, f"holds a number too large for {datatype.name}", "finite numbers")
    return narrow


def _values(name: str, data: msgspec.Raw, field: str) -> list[Any]:
    form, kind = _FORMS[name]
    try:
        if _nested(data):
            values: list[Any] = msgspec.convert(_flat(msgspec.json.decode(data), field), form)
        else:
            values = _DECODERS[name].decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise invalid(field, str(error), f"a list of {kind}, flat or nested") from error
    except (RecursionError, OverflowError) as error:
        raise invalid(field, "is nested too deeply", f"at most {MAX_DIMENSIONS} dimensions") from error
    return values


def _nested(data: msgspec.Raw) -> bool:
    return bytes(memoryview(data)[:64]).lstrip()[1:].lstrip()[:1] == b"["


def _flat(values: Any, field: str) -> list[Any]:
    for _ in range(MAX_DIMENSIONS):
        if not values or not isinstance(values[0], list):
            return list(values)
        level = []
        for value in values:
            if not isinstance(value, list):
                raise invalid(field, "has lists beside values", "the same depth everywhere")
            level += value
        values = level
    raise invalid(field, "is nested too deeply", f"at most {MAX_DIMENSIONS} dimensions")


def _text(element: object, field: str) -> str:
    if isinstance(element, str):
        return element
    try:
        return as_bytes(element).decode()
    except UnicodeDecodeError:
        problem = "holds bytes that are not UTF-8, which JSON cannot carry"
        raise invalid(field, problem, '"binary_data": true for this output') from None
