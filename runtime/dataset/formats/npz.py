"""NumPy's archive of arrays, each named as an input or an output."""

import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from mcp2026.runtime.dataset.errors import InputRefusedError, storage_errors
from mcp2026.runtime.dataset.formats.interface import Parts, Results
from mcp2026.runtime.dataset.formats.npy_blocks import Header, mapped, native, read_header
from mcp2026.runtime.dataset.formats.numpy_parts import copy_column, encode_columns, final_header, member
from mcp2026.runtime.dataset.rows import Rows, Wanted
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.model.signature import TensorSpec

_LOCAL_HEADER = struct.Struct("<26xHH")
"""Of an entry: lengths of its name and its extra field, the end of the fixed part."""
_SKIPPED = 4 * 1024 * 1024
_COPY_AGAIN = "Copy or save the file again"


class _MappedArray:
    """An array that lies in the archive as it is."""

    def __init__(self, path: Path, offset: int, header: Header, what: str) -> None:
        self.header = header
        self._array = mapped(str(path), offset, header, what)

    def read(self, first: int, rows: int) -> Array:
        return native(self._array[first : first + rows])


class _StreamedArray:
    """A compressed array, read forward."""

    def __init__(self, file: BinaryIO, header: Header, what: str) -> None:
        if header.fortran and len(header.shape) > 1:
            raise InputRefusedError(
                what,
                "it is compressed in column-major order, which cannot be read row by row",
                "Save numpy.ascontiguousarray of it, or without compression",
            )
        self.header = header
        self._file = file
        self._what = what
        self._next = 0

    def read(self, first: int, rows: int) -> Array:
        size = self.header.row_bytes
        skip = (first - self._next) * size
        while skip > 0:
            skip -= len(self._exactly(min(skip, _SKIPPED)))
        content = self._exactly(rows * size)
        self._next = first + rows
        return native(np.frombuffer(content, self.header.dtype).reshape(rows, *self.header.shape[1:]))

    def _exactly(self, size: int) -> bytes:
        try:
            content = self._file.read(size)
        except (zipfile.BadZipFile, EOFError, OSError, ValueError) as error:
            raise InputRefusedError(
                self._what, f"it cannot be decompressed ({error})", _COPY_AGAIN
            ) from error
        except Exception as error:  # zlib.error and its like have no common base
            raise InputRefusedError(
                self._what, f"it cannot be decompressed ({error})", _COPY_AGAIN
            ) from error
        if len(content) != size:
            raise InputRefusedError(self._what, "it is truncated", _COPY_AGAIN)
        return content


class NpzSource:
    """Arrays with the same number of rows. Arrays that are no input are passed over."""

    def __init__(self, path: Path, inputs: Sequence[TensorSpec], shown: str) -> None:
        """Open the arrays of all inputs.

        Raises:
            InputRefusedError: one is missing, or they have different numbers of rows.

        """
        self._shown = shown
        self._inputs = [spec.name for spec in inputs]
        with storage_errors(shown):
            try:
                self._archive = zipfile.ZipFile(path)
            except (zipfile.BadZipFile, EOFError) as error:
                raise InputRefusedError(shown, f"it is no npz ({error})", "Save it by numpy.savez") from error
        self._arrays = {name: self._open(path, name) for name in self._inputs}
        lengths = {name: array.header.shape[0] for name, array in self._arrays.items()}
        if len(set(lengths.values())) != 1:
            told = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
            raise InputRefusedError(
                shown, f"its arrays have different numbers of rows: {told}", "Save as many"
            )
        (self.rows,) = set(lengths.values())

    def _open(self, path: Path, name: str) -> _MappedArray | _StreamedArray:
        what = f"{self._shown}, array {name!r}"
        try:
            entry = self._archive.getinfo(f"{name}.npy")
        except KeyError:
            there = ", ".join(Path(one).stem for one in self._archive.namelist())[:500] or "no array"
            raise InputRefusedError(what, "it is missing", f"The file has {there}") from None
        try:
            opened: Any = self._archive.open(entry)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
            raise InputRefusedError(what, f"it cannot be read ({error})", _COPY_AGAIN) from error
        if entry.compress_type != zipfile.ZIP_STORED:
            return _StreamedArray(opened, read_header(opened, what), what)
        with opened:
            header = read_header(opened, what)
            begin = opened.tell()
        with path.open("rb") as file:
            file.seek(entry.header_offset)
            name_length, extra_length = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
        data = entry.header_offset + _LOCAL_HEADER.size + name_length + extra_length
        return _MappedArray(path, data + begin, header, what)

    def rank(self, name: str) -> int:
        """Return how many dimensions a row of this array has; all rows have the same."""
        return len(self._arrays[name].header.shape) - 1

    def read(self, first: int, rows: int, wanted: Sequence[Wanted]) -> Rows:
        """Copy rows out of the mapped arrays, and decompress those of the others."""
        del wanted
        return Rows(first, rows, tuple(self._arrays[name].read(first, rows) for name in self._inputs))

    def place(self, row: int) -> str:
        """Return the row as an index of the arrays."""
        return f"{self._shown} row {row} (counted from 0)"

    def close(self) -> None:
        """Close the archive."""
        self._arrays.clear()
        self._archive.close()


class NpzSink:
    """An uncompressed npz with an array for each output."""

    def __init__(self, outputs: Sequence[str]) -> None:
        self._outputs = tuple(outputs)

    def encode(self, results: Results) -> bytes:
        """Return a part."""
        return encode_columns(results)

    def assemble(self, parts: Parts, target: BinaryIO) -> int:
        """Write the archive, reading the parts once for each output and once more; return the rows."""
        rows = 0
        with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
            for index, name in enumerate(self._outputs):
                header = final_header(name, index, parts)
                rows = header.shape[0]
                with archive.open(member(name), "w", force_zip64=True) as file:
                    opened: Any = file
                    copy_column(index, header, parts, opened)
        return rows
