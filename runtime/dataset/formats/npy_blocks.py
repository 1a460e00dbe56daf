"""The header of an array in NumPy's format, and its rows read or mapped.

Source: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

import math
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from mcp2026.runtime.dataset.errors import InputRefusedError
from mcp2026.runtime.execution.tensor_cache import Array

_SAVE_AGAIN = "Save it by numpy.save"


class Header(NamedTuple):
    """Of one array."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize


def read_header(file: BinaryIO, what: str) -> Header:
    """Read the header at the file's position; the data follows.

    Raises:
        InputRefusedError: it is no array of numbers or text with a dimension of rows.

    """
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            header = Header(*np.lib.format.read_array_header_1_0(file))
        elif version == (2, 0):
            header = Header(*np.lib.format.read_array_header_2_0(file))
        else:
            raise InputRefusedError(what, f"it has version {version} of the format", _SAVE_AGAIN)
    except ValueError as error:
        raise InputRefusedError(what, f"it is no NumPy array ({error})", _SAVE_AGAIN) from error
    if header.dtype.hasobject:
        raise InputRefusedError(
            what, "it holds Python objects", "Save text with a fixed width (astype('U'), astype('S'))"
        )
    if header.dtype.kind not in "biufSU":
        raise InputRefusedError(
            what, f"its type is {header.dtype}", "Numbers, truth values and text are read"
        )
    if not header.shape:
        raise InputRefusedError(what, "it is a single value", "Its first dimension has to count rows")
    return header


def mapped(path: str, offset: int, header: Header, what: str) -> Array:
    """Map the array whose data begins at `offset` of the file.

    Raises:
        InputRefusedError: the file is shorter than the header says.

    """
    if 0 in header.shape or header.dtype.itemsize == 0:
        return np.empty(header.shape, header.dtype)
    try:
        return np.memmap(path, header.dtype, "r", offset, header.shape, order="F" if header.fortran else "C")
    except ValueError as error:
        raise InputRefusedError(what, "the file is truncated", "Copy it again") from error


def native(array: Array) -> Array:
    """Copy `array` into memory, in this machine's byte order."""
    return np.array(array, array.dtype.newbyteorder("="), order="C")


def write_header(file: BinaryIO, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Write the header of an array in row-major order, in the oldest version that can hold it."""
    document = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": shape,
    }
    np.lib.format.write_array_header_1_0(file, document)
