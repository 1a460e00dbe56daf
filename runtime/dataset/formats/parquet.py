"""Parquet: a column for each input and output. Needs pyarrow, the extra `parquet`."""

import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mcp2026.runtime.dataset.errors import ExecutionFailedError, InputRefusedError, storage_errors
from mcp2026.runtime.dataset.formats.interface import Parts, Results
from mcp2026.runtime.dataset.rows import Column, RowId, Rows, Wanted
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.model.signature import STRING, TensorSpec

ID = "id"
_READ_ROWS = 4096
_BUFFER = 1024 * 1024


class ParquetSource:
    """Columns of numbers, truth values or text, or of lists of them. Other columns are passed over."""

    def __init__(self, path: Path, inputs: Sequence[TensorSpec], shown: str) -> None:
        """Read the schema.

        Raises:
            InputRefusedError: it is no parquet file, or a column is missing.

        """
        self._shown = shown
        self._inputs = [spec.name for spec in inputs]
        with storage_errors(shown):
            try:
                # Pages are read as they are needed: a row group may be larger than memory.
                self._file = pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False)
            except pa.ArrowInvalid as error:
                raise InputRefusedError(shown, f"it is no parquet file ({error})", "Save it again") from error
        schema = self._file.schema_arrow
        for name in self._inputs:
            if name not in schema.names:
                there = ", ".join(schema.names)[:500] or "no column"
                raise InputRefusedError(f"{shown}, column {name!r}", "it is missing", f"The file has {there}")
        self._types = {name: schema.field(name).type for name in self._inputs}
        self._with_ids = ID in schema.names and ID not in self._inputs
        if self._with_ids:
            kind = schema.field(ID).type
            if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                raise InputRefusedError(
                    f"{shown}, column 'id'", f"its type is {kind}", "Ids are text or whole numbers"
                )
        self.rows: int = self._file.metadata.num_rows
        self._columns = [*self._inputs, *([ID] if self._with_ids else [])]
        self._batches: Iterator[Any] = iter(())
        self._held: Any = None
        self._next = -1
        """The row that the held batch begins with."""

    def rank(self, name: str) -> int:
        """Return how deep the lists of this column are."""
        kind, depth = self._types[name], 0
        while _is_list(kind):
            kind, depth = kind.value_type, depth + 1
        return depth

    def read(self, first: int, rows: int, wanted: Sequence[Wanted]) -> Rows:
        """Read rows; lists that are flat get the shape that the model says.

        Raises:
            InputRefusedError: a value is null, lists are no rectangle, or the file is damaged.

        """
        with storage_errors(self._shown):
            try:
                table = self._take(first, rows)
            except pa.ArrowException as error:
                raise InputRefusedError(
                    self._shown, f"it cannot be read ({error})", "Copy it again"
                ) from error
        columns = tuple(
            self._column(table.column(index).combine_chunks(), one, first) for index, one in enumerate(wanted)
        )
        ids: list[RowId] | None = None
        if self._with_ids:
            column = table.column(len(wanted))
            if column.null_count:
                row = first + pc.index(pc.is_null(column), True).as_py()
                raise InputRefusedError(
                    f"{self.place(row)}, column 'id'", "it is null", "Give ids to all rows"
                )
            ids = column.to_pylist()
        return Rows(first, rows, columns, ids)

    def _take(self, first: int, rows: int) -> Any:
        if self._next < 0 or first < self._next:
            self._start(first)
        pieces, missing = [], rows
        skip = first - self._next
        while missing:
            if self._held is None or not self._held.num_rows:
                self._held = next(self._batches)
            have = self._held.num_rows
            if skip >= have:
                skip -= have
                self._next += have
                self._held = None
                continue
            taken = min(missing, have - skip)
            pieces.append(self._held.slice(skip, taken))
            self._held = self._held.slice(skip + taken)
            self._next += skip + taken
            missing -= taken
            skip = 0
        return pa.Table.from_batches(pieces).select(self._columns)

    def _start(self, first: int) -> None:
        """Begin to read at the row group that holds row `first`."""
        metadata, begin, group = self._file.metadata, 0, 0
        while begin + metadata.row_group(group).num_rows <= first:
            begin += metadata.row_group(group).num_rows
            group += 1
        groups = list(range(group, metadata.num_row_groups))
        self._batches = self._file.iter_batches(_READ_ROWS, row_groups=groups, columns=self._columns)
        self._held, self._next = None, begin

    def _column(self, values: Any, wanted: Wanted, first: int) -> Column:
        array = self._array(values, wanted.spec, first)
        dims = wanted.row_dims
        if isinstance(array, list) or dims is None or len(dims) == array.ndim - 1 or None in dims:
            return array
        shape = tuple(dim for dim in dims if dim is not None)
        if array.ndim <= 2 and math.prod(array.shape[1:]) == math.prod(shape):
            return array.reshape(len(array), *shape)
        return array

    def _array(self, values: Any, spec: TensorSpec, first: int) -> Column:
        """Return rows as one array if they have one shape."""
        uniform = _uniform(values)
        if uniform is not None:
            return uniform
        rows = []
        for index in range(len(values)):
            row = _uniform(values.slice(index, 1))
            if row is None:
                raise InputRefusedError(
                    f"{self.place(first + index)}, column {spec.name!r}",
                    "it is null, holds a null, or its lists have different lengths",
                    "Fill nulls, and make all lists of a dimension equally long",
                )
            rows.append(row[0])
        return rows

    def place(self, row: int) -> str:
        """Return the row's number, counted from 0."""
        return f"{self._shown} row {row} (counted from 0)"

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _uniform(values: Any) -> Array | None:
    """Return an Arrow array as one of NumPy; None if it holds a null or lists of different lengths."""
    shape = [len(values)]
    while _is_list(values.type):
        if values.null_count:
            return None
        lengths = pc.list_value_length(values)
        length = lengths[0].as_py() if len(lengths) else 0
        if not pc.all(pc.equal(lengths, length)).as_py():
            return None
        shape.append(length)
        values = values.flatten()
    if values.null_count:
        return None
    if _is_text(values.type):
        texts = np.empty(len(values), STRING)
        texts[:] = [item.encode() if isinstance(item, str) else item for item in values.to_pylist()]
        return texts.reshape(shape)
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(shape).copy()


def _is_text(kind: Any) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


class ParquetSink:
    """A column for each output, lists for what is no scalar; a row group for each part."""

    def __init__(self, outputs: Sequence[str]) -> None:
        del outputs

    def encode(self, results: Results) -> bytes:
        """Return a part, itself a parquet file."""
        columns = [_arrow(column) for column in results.columns]
        names = list(results.names)
        if results.ids is not None:
            names.insert(0, ID)
            columns.insert(0, pa.array(results.ids))
        target = io.BytesIO()
        pq.write_table(pa.Table.from_arrays(columns, names), target)
        return target.getvalue()

    def assemble(self, parts: Parts, target: BinaryIO) -> int:
        """Write all parts into one file; return the rows.

        Raises:
            ExecutionFailedError: results have different numbers of dimensions.

        """
        writer, rows = None, 0
        for part in parts():
            with part:
                table = pq.read_table(part)
            if writer is None:
                writer = pq.ParquetWriter(target, table.schema)
            if table.schema != writer.schema:
                raise ExecutionFailedError(
                    "output",
                    f"from row {rows} on, results have another number of dimensions than before",
                    "Give an --output that ends in .jsonl",
                )
            writer.write_table(table, row_group_size=max(1, table.num_rows))
            rows += table.num_rows
        if writer is not None:
            writer.close()
        return rows


def _arrow(column: Column) -> Any:
    if isinstance(column, list):
        lengths = [len(row) if row.ndim else -1 for row in column]
        if -1 in lengths or len({row.ndim for row in column}) != 1:
            raise ExecutionFailedError(
                "output", "rows have results with different numbers of dimensions", "Write .jsonl instead"
            )
        flat: list[Array] = [item for row in column for item in row] if column[0].ndim > 1 else []
        inner = _arrow(flat) if flat else _arrow(np.concatenate([row.ravel() for row in column]))
        return pa.ListArray.from_arrays(pa.array(np.cumsum([0, *lengths]), pa.int32()), inner)
    if column.ndim > 1:
        inner = _arrow(column.reshape(-1, *column.shape[2:]))
        offsets = (
            np.arange(0, len(inner) + 1, column.shape[1]) if column.shape[1] else np.zeros(len(column) + 1)
        )
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), inner)
    if column.dtype == STRING:
        return pa.array([text.decode() for text in column.tolist()], pa.string())
    return pa.array(column)
