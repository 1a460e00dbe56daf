"""Arrays as the protocol's tensors, and back.

The wire is little-endian, row-major and without padding. An element of BYTES is its length as uint32 and then
its bytes. https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol
"""

import struct
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mcp2026.client.errors import InvalidRequestError, ProtocolError

Array = npt.NDArray[Any]
Buffer = bytes | bytearray | memoryview

DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "INT8": np.dtype("<i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "UINT8": np.dtype("<u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
}
"""How elements lie on the wire. BF16 and BYTES have no dtype of numpy's."""

_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_LENGTH = struct.Struct("<I")
_ALLOWED = f"arrays of {', '.join(DTYPES)}; str, bytes or objects for BYTES; Tensor(array, 'BF16')"


class Tensor(NamedTuple):
    """An array that says which datatype of the protocol it is: for BF16, which numpy does not have."""

    array: npt.ArrayLike
    datatype: str
    """`BF16` takes numbers and rounds them; any other must be the datatype that the array has anyway."""


class WireTensor(NamedTuple):
    """A tensor as it travels."""

    datatype: str
    shape: tuple[int, ...]
    content: Buffer
    """A view of the array where that is possible, valid as long as it is."""


def to_wire(name: str, value: npt.ArrayLike | Tensor) -> WireTensor:
    """Return the input `name` as a tensor; numbers that lie right are not copied.

    Raises:
        InvalidRequestError: the protocol has no such elements.

    """
    if isinstance(value, Tensor):
        array = np.asarray(value.array)
        if value.datatype == "BF16" and array.dtype.name != "bfloat16":
            return WireTensor("BF16", array.shape, _bytes_of(_bf16_bits(name, array)))
        tensor = to_wire(name, array)
        if tensor.datatype != value.datatype:
            raise InvalidRequestError(
                f"{name}: {value.datatype!r} is not the datatype of an array of {array.dtype}",
                field=name,
                allowed=f"{tensor.datatype}, or BF16 for numbers",
            )
        return tensor
    array = np.asarray(value)
    if array.dtype in _NAMES:
        return WireTensor(_NAMES[array.dtype], array.shape, _bytes_of(array))
    if array.dtype.kind in "OSU":
        return WireTensor("BYTES", array.shape, _strings_to_wire(name, array))
    if array.dtype.name == "bfloat16":  # of ml_dtypes, which need not be installed
        return WireTensor("BF16", array.shape, _bytes_of(array.view(np.uint16)))
    datatype = _NAMES.get(array.dtype.newbyteorder("<"))
    if datatype is None:
        raise InvalidRequestError(
            f"{name}: an array of {array.dtype} is no tensor", field=name, allowed=_ALLOWED
        )
    return WireTensor(datatype, array.shape, _bytes_of(array.astype(DTYPES[datatype], copy=False)))


def from_wire(name: str, datatype: str, shape: Sequence[int], content: Buffer) -> Array:
    """Return the output `name`: numbers that lie right are a view of `content`, writable if that is.

    BF16 comes as float32, BYTES as an array of `bytes`.

    Raises:
        ProtocolError: `content` is not a tensor of this datatype and shape.

    """
    if any(size < 0 for size in shape):
        raise ProtocolError(f"output {name} has the shape {list(shape)}")
    count = prod(shape)
    if datatype == "BYTES":
        return _strings_from_wire(name, content, count).reshape(shape)
    dtype = np.dtype("<u2") if datatype == "BF16" else DTYPES.get(datatype)
    if dtype is None:
        raise ProtocolError(f"output {name} has the unknown datatype {datatype!r}")
    if len(content) != count * dtype.itemsize:
        expected = f"{datatype} {list(shape)} has {count * dtype.itemsize}"
        raise ProtocolError(f"output {name} has {len(content)} bytes, but {expected}")
    flat: Array = np.frombuffer(content, dtype)
    if datatype == "BF16":
        flat = (flat.astype(np.uint32) << np.uint32(16)).view(np.float32)
    elif datatype == "BOOL":
        flat = np.frombuffer(content, np.uint8) != 0
    elif not flat.flags.aligned:
        flat = flat.copy()
    return flat.reshape(shape)


def from_json(name: str, datatype: str, shape: Sequence[int], values: object) -> Array:
    """Return the output `name` of a server that answers with numbers in JSON, nested or flat.

    Raises:
        ProtocolError: the values are not those of a tensor of this datatype and shape.

    """
    try:
        if datatype == "BYTES":
            texts = np.array(values, dtype=object).reshape(tuple(shape))
            filled: Array = np.empty(texts.shape, dtype=object)
            filled.ravel()[:] = [
                text.encode() if isinstance(text, str) else str(text).encode() for text in texts.ravel()
            ]
            return filled
        dtype = np.dtype(np.float32) if datatype == "BF16" else DTYPES[datatype]
        return np.array(values, dtype=dtype).reshape(tuple(shape))
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise ProtocolError(f"output {name} is not {datatype} {list(shape)}: {error}") from error


def _bytes_of(array: Array) -> Buffer:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b""


def _bf16_bits(name: str, array: Array) -> Array:
    """Return the bits of the BF16 numbers next to `array`; halfway between two, the even one."""
    if array.dtype.kind not in "fiu":
        raise InvalidRequestError(
            f"{name}: an array of {array.dtype} is not BF16", field=name, allowed="numbers"
        )
    numbers = np.ascontiguousarray(array, np.float32)
    bits = numbers.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    # A NaN must not be rounded up to infinity: its sign and highest bits stay, made quiet.
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    return np.where(np.isnan(numbers), quiet, rounded).astype("<u2")


def _strings_to_wire(name: str, array: Array) -> bytes:
    parts: list[bytes] = []
    for element in array.ravel().tolist():
        if isinstance(element, str):
            content = element.encode()
        elif isinstance(element, bytes):
            content = element
        else:
            raise InvalidRequestError(
                f"{name}: an element is a {type(element).__name__}", field=name, allowed="str or bytes"
            )
        parts += (_LENGTH.pack(len(content)), content)
    return b"".join(parts)


def _strings_from_wire(name: str, content: Buffer, count: int) -> Array:
    if len(content) < 4 * count:  # before anything is allocated for a count that cannot be true
        raise ProtocolError(f"output {name} has {len(content)} bytes, too few for {count} elements of BYTES")
    strings: Array = np.empty(count, dtype=object)
    position = 0
    for index in range(count):
        start = position + 4
        if start > len(content):
            raise ProtocolError(f"output {name} ends inside element {index} of {count}")
        position = start + _LENGTH.unpack_from(content, position)[0]
        if position > len(content):
            raise ProtocolError(f"output {name} ends inside element {index} of {count}")
        strings[index] = bytes(content[start:position])
    if position != len(content):
        raise ProtocolError(f"output {name} has {len(content) - position} bytes after its last element")
    return strings
