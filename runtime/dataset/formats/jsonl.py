"""JSON, one row a line: `{"input name": nested list, …}`, with an optional `id` that goes to the output."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
import numpy as np
import orjson

from mcp2026.runtime.dataset.errors import InputRefusedError, storage_errors
from mcp2026.runtime.dataset.formats.interface import Parts, Results
from mcp2026.runtime.dataset.rows import Column, RowId, Rows, Wanted
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.model.signature import STRING, TensorSpec

ID = "id"
_INDEX_STEP = 256
"""Lines from one known offset to the next."""
_BLOCK = 1024 * 1024
_ONE_INPUT = "input"
"""Stands for the only input's name."""
_LONGEST_LINE = 256 * 1024 * 1024
_WRITE = partial(orjson.dumps, option=orjson.OPT_SERIALIZE_NUMPY)


class JsonlSource:
    """Lines of JSON. Fields that are no input are passed over."""

    def __init__(self, path: Path, inputs: Sequence[TensorSpec], shown: str) -> None:
        """Count the lines, and note where some begin.

        Raises:
            InputRefusedError: the first line is no row.

        """
        self._shown = shown
        self._specs = {spec.name: spec for spec in inputs}
        with storage_errors(shown):
            self._file = path.open("rb")
            self.rows, self._offsets = _index(self._file)
        self._first = self._example() if self.rows else {}
        self._fields = self._fields_of(self._first) if self.rows else {}
        self._with_ids = ID in self._first and ID not in self._specs
        self._id_type = type(self._first.get(ID))
        if self._with_ids and self._id_type not in (str, int):
            raise InputRefusedError(
                self.place(0), "its id is neither text nor a whole number", "Change the ids"
            )
        self._decoder: msgspec.json.Decoder[Any] | None = None

    def _example(self) -> dict[str, Any]:
        self._file.seek(0)
        line = self._line(0)
        try:
            row = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputRefusedError(self.place(0), f"it is no JSON ({error})", _EXPECTED) from error
        if not isinstance(row, dict):
            raise InputRefusedError(self.place(0), f"it is a {type(row).__name__}", _EXPECTED)
        return row

    def _fields_of(self, row: dict[str, Any]) -> dict[str, str]:
        """Return the name that each input has in the lines."""
        if len(self._specs) == 1:
            (name,) = self._specs
            if name not in row and _ONE_INPUT in row:
                return {name: _ONE_INPUT}
        for name in self._specs:
            if name not in row:
                there = ", ".join(row)[:500] or "none"
                raise InputRefusedError(
                    f"{self.place(0)}, input {name!r}", "it is missing", f"The line's fields are {there}"
                )
        return {name: name for name in self._specs}

    def rank(self, name: str) -> int:
        """Return how deep the lists of this input are in the first line."""
        value, depth = self._first[self._fields[name]], 0
        while isinstance(value, list) and value:
            value, depth = value[0], depth + 1
        return depth

    def read(self, first: int, rows: int, wanted: Sequence[Wanted]) -> Rows:
        """Decode lines.

        Raises:
            InputRefusedError: a line is no row, or a value is not what its input takes.

        """
        if self._decoder is None:
            self._decoder = msgspec.json.Decoder(self._row_type(wanted))
        with storage_errors(self._shown):
            self._seek(first)
            lines = [self._line(first + index) for index in range(rows)]
        decoded = [self._decode(first + index, line) for index, line in enumerate(lines)]
        columns = tuple(
            self._column(one.spec, [row[index] for row, _ in decoded], first)
            for index, one in enumerate(wanted)
        )
        ids = [identity for _, identity in decoded] if self._with_ids else None
        return Rows(first, rows, columns, ids)

    def _row_type(self, wanted: Sequence[Wanted]) -> type[msgspec.Struct]:
        """Return the type of a line: nested lists of exactly the depth and the values that inputs take."""
        fields: list[Any] = []
        rename: dict[str, str] = {}
        for index, (spec, dims) in enumerate(wanted):
            form = _value_type(spec)
            for _ in range(self.rank(spec.name) if dims is None else len(dims)):
                form = list[form]  # type: ignore[valid-type]  # made at run time
            fields.append((f"c{index}", form))
            rename[f"c{index}"] = self._fields[spec.name]
        if self._with_ids:
            fields.append((ID, self._id_type))
        elif ID not in self._specs:
            fields.append((ID, str | int | msgspec.UnsetType, msgspec.UNSET))
        return msgspec.defstruct("Row", fields, rename=rename, gc=False)

    def _decode(self, row: int, line: bytes) -> tuple[list[Any], RowId]:
        assert self._decoder is not None
        try:
            one = self._decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputRefusedError(self.place(row), str(error), _EXPECTED) from error
        identity = getattr(one, ID, msgspec.UNSET)
        if identity is msgspec.UNSET:
            identity = ""
        elif not self._with_ids:
            raise InputRefusedError(
                self.place(row),
                "it has an id, but the first line has none",
                "Give ids to all lines or to none",
            )
        return [getattr(one, f"c{index}") for index in range(len(self._specs))], identity

    def _column(self, spec: TensorSpec, values: list[Any], first: int) -> Column:
        try:
            return _array(spec, values)
        except (ValueError, OverflowError):  # rows differ in shape, or one cannot be an array
            pass
        rows = []
        for index, value in enumerate(values):
            try:
                rows.append(_array(spec, [value])[0])
            except OverflowError as error:
                raise InputRefusedError(
                    f"{self.place(first + index)}, input {spec.name!r}",
                    f"a number does not fit {spec.dtype_name}",
                    "Correct the value, or convert the model",
                ) from error
            except ValueError as error:
                raise InputRefusedError(
                    f"{self.place(first + index)}, input {spec.name!r}",
                    "its lists have different lengths",
                    "All lists of a dimension have to be equally long",
                ) from error
        return rows

    def _seek(self, row: int) -> None:
        self._file.seek(self._offsets[row // _INDEX_STEP])
        for _ in range(row % _INDEX_STEP):
            self._file.readline()

    def _line(self, row: int) -> bytes:
        line = self._file.readline(_LONGEST_LINE)
        if len(line) == _LONGEST_LINE:
            raise InputRefusedError(
                self.place(row), f"it has more than {_LONGEST_LINE} bytes", "Give npy, npz or parquet"
            )
        if not line.strip():
            raise InputRefusedError(self.place(row), "it is empty", _EXPECTED)
        return line

    def place(self, row: int) -> str:
        """Return the row's line, counted from 1 as editors do."""
        return f"{self._shown} line {row + 1}"

    def close(self) -> None:
        """Close the file."""
        self._file.close()


_EXPECTED = 'Each line has to be one JSON object, {"input name": nested list, …}'


def _index(file: BinaryIO) -> tuple[int, list[int]]:
    """Return the number of lines, and the offset of every `_INDEX_STEP`-th."""
    offsets, lines, position, last = [0], 0, 0, b"\n"
    while block := file.read(_BLOCK):
        inside = block.count(b"\n")
        if (lines + inside) // _INDEX_STEP == lines // _INDEX_STEP:
            lines += inside
        else:
            found = -1
            for _ in range(inside):
                found = block.index(b"\n", found + 1)
                lines += 1
                if lines % _INDEX_STEP == 0:
                    offsets.append(position + found + 1)
        position += len(block)
        last = block[-1:]
    return lines + (last != b"\n"), offsets


def _value_type(spec: TensorSpec) -> Any:
    kind = spec.dtype.kind
    if spec.datatype == "BYTES":
        return str
    if spec.datatype == "BF16" or kind == "f":
        return float
    if kind == "b":
        return bool
    limits = np.iinfo(spec.dtype)
    if int(limits.max) > 2**63 - 1:  # msgspec's bounds end there; NumPy refuses what is negative or larger
        return Annotated[int, msgspec.Meta(ge=0)]
    return Annotated[int, msgspec.Meta(ge=int(limits.min), le=int(limits.max))]


def _array(spec: TensorSpec, values: list[Any]) -> Array:
    """Return equally shaped rows as an array; floats stay as wide as JSON has them."""
    if spec.datatype == "BYTES":
        shape = np.shape(np.array(values, np.str_)) if values else (0,)
        flat = np.array(values, np.object_).ravel()
        texts = np.empty(len(flat), STRING)
        texts[:] = [text.encode() for text in flat.tolist()]
        return texts.reshape(shape)
    if spec.datatype == "BF16" or spec.dtype.kind == "f":
        return np.array(values, np.float64)
    return np.array(values, spec.dtype)


class JsonlSink:
    """A line for each row. What JSON has no number for is `"NaN"`, `"Infinity"` or `"-Infinity"`."""

    def __init__(self, outputs: Sequence[str]) -> None:
        del outputs

    def encode(self, results: Results) -> bytes:
        """Return the lines of a part."""
        columns = [_plain(column) for column in results.columns]
        lines = []
        for index in range(results.count):
            row: dict[str, Any] = {} if results.ids is None else {ID: results.ids[index]}
            for name, column in zip(results.names, columns, strict=True):
                row[name] = column[index]
            lines.append(_WRITE(row))
        lines.append(b"")
        return b"\n".join(lines)

    def assemble(self, parts: Parts, target: BinaryIO) -> int:
        """Write the lines of all parts; return how many."""
        rows = 0
        for part in parts():
            with part:
                while block := part.read(_BLOCK):
                    rows += block.count(b"\n")
                    target.write(block)
        return rows


def _plain(column: Column) -> Any:
    """Return rows in a form that JSON can be written of."""
    if isinstance(column, list):
        return [_plain(row[np.newaxis])[0] for row in column]
    if column.dtype == STRING:
        return _decoded(column.tolist())
    if column.dtype.kind == "f" and not np.isfinite(column).all():
        return [_with_names(row) for row in column]
    return column


def _with_names(row: Array) -> Any:
    if np.isfinite(row).all():
        return row
    if row.ndim:
        return [_with_names(part) for part in row]
    return "NaN" if np.isnan(row) else "Infinity" if row > 0 else "-Infinity"


def _decoded(value: Any) -> Any:
    return [_decoded(item) for item in value] if isinstance(value, list) else value.decode()
