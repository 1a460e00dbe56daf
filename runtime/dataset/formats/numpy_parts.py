"""Parts of results in NumPy's formats: an uncompressed npz with one array for each output.

All rows of an output have one shape there, and text has one width: parts are written with the width that
they need, and widened when they are put together.
"""

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np

from mcp2026.runtime.dataset.errors import ExecutionFailedError
from mcp2026.runtime.dataset.formats.interface import Parts, Results
from mcp2026.runtime.dataset.formats.npy_blocks import Header, read_header, write_header
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.model.signature import STRING

_OTHER_FORMAT = "Give an --output that ends in .jsonl or .parquet"


def encode_columns(results: Results) -> bytes:
    """Return a part.

    Raises:
        ExecutionFailedError: rows have results of different shapes, or text that ends in zero bytes.

    """
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for index, (name, column) in enumerate(zip(results.names, results.columns, strict=True)):
            if isinstance(column, list):
                raise ExecutionFailedError(
                    f"output {name!r}",
                    f"rows {results.first} to {results.first + results.count - 1} have results of different"
                    " shapes, and an array has one",
                    _OTHER_FORMAT,
                )
            array = _fixed_width(name, column) if column.dtype == STRING else column
            with archive.open(member(str(index)), "w", force_zip64=True) as file:
                # The types of numpy ask for more of a file than is used of it.
                write_header(file, array.shape, array.dtype)  # type: ignore[arg-type]
                file.write(np.ascontiguousarray(array).tobytes())
    return target.getvalue()


def member(name: str) -> zipfile.ZipInfo:
    """Return the entry of an array in an npz; without a date, so that equal arrays are equal bytes."""
    return zipfile.ZipInfo(f"{name}.npy")


def final_header(name: str, index: int, parts: Parts) -> Header:
    """Return the header of output number `index` over all parts.

    Raises:
        ExecutionFailedError: parts have results of different shapes.

    """
    rows, dtype = 0, np.dtype(np.bool_)
    shape: tuple[int, ...] = ()
    for part in parts():
        with _array(part, index) as (header, _):
            if rows and header.shape[1:] != shape:
                raise ExecutionFailedError(
                    f"output {name!r}",
                    f"rows before {rows} have results of shape {list(shape)}, later ones"
                    f" {list(header.shape[1:])}, and an array has one",
                    _OTHER_FORMAT,
                )
            dtype = header.dtype if not rows else max(dtype, header.dtype, key=_width)
            rows, shape = rows + header.shape[0], header.shape[1:]
    return Header((rows, *shape), False, dtype)


def copy_column(index: int, header: Header, parts: Parts, target: BinaryIO) -> None:
    """Write output number `index` of all parts as one array with this header."""
    write_header(target, header.shape, header.dtype)
    for part in parts():
        with _array(part, index) as (own, file):
            content = file.read()
            if own.dtype != header.dtype:
                content = np.frombuffer(content, own.dtype).astype(header.dtype).tobytes()
            target.write(content)


def _width(dtype: np.dtype[Any]) -> int:
    return dtype.itemsize


@contextmanager
def _array(part: BinaryIO, index: int) -> Iterator[tuple[Header, BinaryIO]]:
    with part, zipfile.ZipFile(part) as archive, archive.open(f"{index}.npy") as file:
        opened: Any = file
        yield read_header(opened, "part"), opened


def _fixed_width(name: str, texts: Array) -> Array:
    decoded = [text.decode() for text in texts.ravel().tolist()]
    if any(text.endswith("\0") for text in decoded):
        raise ExecutionFailedError(
            f"output {name!r}", "it has text that ends in a zero byte, which NumPy drops", _OTHER_FORMAT
        )
    return np.array(decoded, np.str_).reshape(texts.shape)
