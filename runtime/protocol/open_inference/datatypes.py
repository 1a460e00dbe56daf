"""The protocol's datatypes: their names, their bytes on the wire, and how arrays hold them.

The wire is little-endian, row-major and without padding. An element of BYTES is its length as uint32 and
then its bytes. BF16 is held as its bits in uint16, BYTES as an array of Python objects.
"""

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from mcp2026.runtime.errors import invalid
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.model.signature import STRING

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class DataType:
    """One datatype of the protocol."""

    name: str
    dtype: np.dtype[Any]
    config_name: str
    """Its name in a model configuration."""

    @property
    def element_bytes(self) -> int:
        """Bytes of one element; of BYTES the least."""
        return 4 if self.name == "BYTES" else self.dtype.itemsize


def _datatype(name: str, dtype: Any, config_name: str = "") -> DataType:
    return DataType(name, np.dtype(dtype), config_name or f"TYPE_{name}")


DATATYPES: dict[str, DataType] = {
    datatype.name: datatype
    for datatype in (
        _datatype("BOOL", np.bool_),
        _datatype("INT8", np.int8),
        _datatype("INT16", np.int16),
        _datatype("INT32", np.int32),
        _datatype("INT64", np.int64),
        _datatype("UINT8", np.uint8),
        _datatype("UINT16", np.uint16),
        _datatype("UINT32", np.uint32),
        _datatype("UINT64", np.uint64),
        _datatype("FP16", np.float16),
        _datatype("BF16", np.uint16),
        _datatype("FP32", np.float32),
        _datatype("FP64", np.float64),
        _datatype("BYTES", STRING, "TYPE_STRING"),
    )
}

_LENGTH = struct.Struct("<I")
_SMALL = 4_096
"""Bytes that are copied in less time than a view of them takes."""


def from_wire(datatype: DataType, content: Buffer, count: int, field: str) -> Array:
    """Return the `count` elements in `content` as a flat array; numbers are a view of it.

    Raises:
        RequestError: `content` does not hold exactly so many elements.

    """
    if datatype.name == "BYTES":
        return _strings_from_wire(content, count, field)
    expected = count * datatype.dtype.itemsize
    if len(content) != expected:
        raise invalid(
            field, f"has {len(content)} bytes", f"{expected} bytes: {count} elements of {datatype.name}"
        )
    if datatype.name == "BOOL":  # any other byte than 0 and 1 would be no truth value to ONNX Runtime
        truths: Array = np.frombuffer(content, np.uint8) != 0
        return truths
    return np.frombuffer(content, datatype.dtype)


def to_wire(datatype: str, array: Array) -> list[Buffer]:
    """Return the bytes of `array` in parts; many numbers are a view of it, valid as long as it is."""
    if datatype == "BYTES":
        parts: list[Buffer] = []
        for element in array.ravel().tolist():
            content = as_bytes(element)
            parts += (_LENGTH.pack(len(content)), content)
        return [b"".join(parts)]
    if not array.size:
        return []
    return [as_buffer(array)]


def as_buffer(numbers: Array) -> Buffer:
    """Return the bytes of `numbers`; a view of them if they are many, valid as long as the array is."""
    if numbers.nbytes <= _SMALL:
        return numbers.tobytes()
    return np.ascontiguousarray(numbers).data.cast("B")


def as_bytes(element: object) -> bytes:
    """Return one element of BYTES; ONNX Runtime gives strings."""
    return element if isinstance(element, bytes) else str(element).encode()


def bf16_from_fp32(array: Array) -> Array:
    """Return the bits of the BF16 numbers next to `array`; halfway between two, the even one."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    # A NaN must not be rounded up to infinity: its sign and highest bits stay, made quiet.
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    return np.where(np.isnan(array), quiet, rounded).astype(np.uint16)


def fp32_from_bf16(bits: Array) -> Array:
    """Return the numbers that `bits` stand for; exact."""
    return (np.ascontiguousarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)


def _strings_from_wire(content: Buffer, count: int, field: str) -> Array:
    if len(content) < 4 * count:  # before anything is allocated for a count that cannot be true
        raise invalid(field, f"has {len(content)} bytes", f"at least 4 for each of {count} elements")
    strings = np.empty(count, STRING)
    position, end = 0, len(content)
    for index in range(count):
        start = position + 4
        if start > end:
            raise invalid(field, f"ends inside the length of element {index}", f"{count} elements")
        position = start + _LENGTH.unpack_from(content, position)[0]
        if position > end:
            raise invalid(
                field,
                f"element {index} has {position - start} bytes, but {end - start} are left",
                "uint32 lengths, little-endian, each with its bytes after it",
            )
        strings[index] = bytes(content[start:position])
    if position != end:
        raise invalid(field, f"has {end - position} bytes after element {count}", f"{count} elements")
    return strings
