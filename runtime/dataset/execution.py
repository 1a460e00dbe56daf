"""Rows of a data set through a loaded version: in full batches, by the jobs that the server runs."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from mcp2026.runtime.batching.policy import next_padded_size
from mcp2026.runtime.dataset.errors import BatchError, ExecutionFailedError, OutOfMemoryError
from mcp2026.runtime.dataset.formats.interface import Results
from mcp2026.runtime.dataset.rows import Column, Place, RowForm, Rows
from mcp2026.runtime.dataset.stopping import Stop
from mcp2026.runtime.execution.job import Job
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.model.loaded import LoadedVersion
from mcp2026.runtime.model.sessions import first_line
from mcp2026.runtime.protocol.open_inference.datatypes import fp32_from_bf16

_NO_MEMORY = ("bad allocation", "bad_alloc", "failed to allocate memory", "out of memory")


class _Batch(NamedTuple):
    """Rows of a part that run together, by their numbers in it."""

    rows: slice | list[int]
    number: int
    """How many rows they are."""
    inputs: tuple[Array, ...]

    @property
    def first(self) -> int:
        return self.rows.start if isinstance(self.rows, slice) else self.rows[0]


class Runner:
    """Runs parts of a data set. Which rows share a batch follows from the part alone."""

    def __init__(self, version: LoadedVersion, form: RowForm, place: Place) -> None:
        self._version = version
        self._form = form
        self._place = place
        self._sizes = version.config.execution.padded_batch_sizes
        instances = version.config.execution.instances
        self._pool = ThreadPoolExecutor(instances, "instance") if instances > 1 else None

    def run(self, rows: Rows, stop: Stop) -> Results:
        """Return what the model gives for `rows`, in their order.

        Raises:
            ExecutionFailedError: it failed on a row.
            OutOfMemoryError: a batch does not fit into memory.
            StoppedError: the run was told to stop.

        """
        outputs = [_Gathered(rows.count) for _ in self._version.signature.outputs]

        def one(batch: _Batch) -> None:
            stop.check()
            self._run_batch(batch, rows.first, outputs)

        for _ in self._pool.map(one, self._batches(rows)) if self._pool else map(one, self._batches(rows)):
            pass
        specs = self._version.signature.outputs
        columns = tuple(
            _as_written(output.column(), spec.datatype) for output, spec in zip(outputs, specs, strict=True)
        )
        return Results(rows.first, rows.count, tuple(spec.name for spec in specs), columns, rows.ids)

    def close(self) -> None:
        """Stop the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def _batches(self, rows: Rows) -> Iterator[_Batch]:
        most = self._version.max_rows if self._form == "shared" else 1
        assert most is not None
        if not any(isinstance(column, list) for column in rows.columns):
            arrays = tuple(column for column in rows.columns if not isinstance(column, list))
            for first in range(0, rows.count, most):
                chosen = slice(first, min(first + most, rows.count))
                yield _Batch(chosen, chosen.stop - first, tuple(array[chosen] for array in arrays))
            return
        for alike in _same_shapes(rows.columns, rows.count):
            for first in range(0, len(alike), most):
                picked = alike[first : first + most]
                inputs = tuple(np.stack([column[row] for row in picked]) for column in rows.columns)
                yield _Batch(picked, len(picked), inputs)

    def _run_batch(self, batch: _Batch, first: int, outputs: Sequence["_Gathered"]) -> None:
        job = self._job(batch.inputs, batch.number)
        try:
            job.run()
            if job.error is not None:
                raise self._failure(job.error, batch, first)
            for gathered, output, spec in zip(
                outputs, job.outputs, self._version.signature.outputs, strict=True
            ):
                gathered.put(batch, self._rows_of(spec.name, output, batch, first))
        finally:
            job.release()

    def _job(self, inputs: tuple[Array, ...], count: int) -> Job:
        if self._form == "shared":
            shapes = tuple(array.shape[1:] for array in inputs)
            return Job(self._version, shapes, [inputs], count, next_padded_size(self._sizes, count))
        if self._form == "whole":
            inputs = tuple(array[0] for array in inputs)
        return Job(self._version, tuple(array.shape for array in inputs), [inputs], 1)

    def _rows_of(self, name: str, output: Array, batch: _Batch, first: int) -> Array:
        if self._form == "whole":
            whole: Array = output[np.newaxis]
            return whole
        if self._form == "one" and output.shape[:1] != (1,):
            raise ExecutionFailedError(
                f"{self._place(first + batch.first)}, output {name!r}",
                f"it has shape {list(output.shape)} for one row",
                "Let the rows of the data set have all dimensions of the model",
            )
        return output[: batch.number]

    def _failure(self, error: Exception, batch: _Batch, first: int) -> BatchError:
        """Return the error for a batch that failed, with the row that made it fail where there is one."""
        row = batch.first
        if _is_about_memory(error):
            return OutOfMemoryError(
                self._place(first + row),
                f"a batch of {batch.number} rows does not fit into memory ({first_line(error)})",
                "Give a smaller --max-batch-size, or more memory",
            )
        what = "the model failed"
        if batch.number > 1:
            alone = self._first_that_fails(batch)
            if alone is None:
                what = (
                    f"the model failed on {batch.number} rows from here together, but on none of them alone"
                )
            else:
                index, error = alone
                row = batch.rows.start + index if isinstance(batch.rows, slice) else batch.rows[index]
        return ExecutionFailedError(
            self._place(first + row), f"{what}: {first_line(error)}", "Correct the row or the model"
        )

    def _first_that_fails(self, batch: _Batch) -> tuple[int, Exception] | None:
        for index in range(batch.number):
            job = self._job(tuple(array[index : index + 1] for array in batch.inputs), 1)
            job.run()
            error = job.error
            job.release()
            if error is not None:
                return index, error
        return None


class _Gathered:
    """One output of all rows of a part: an array as long as all have one shape, else row by row."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._array: Array | None = None
        self._rows: list[Array | None] | None = None
        self._lock = threading.Lock()
        self._filled: list[slice | list[int]] = []

    def put(self, batch: _Batch, values: Array) -> None:
        """Copy the rows of a batch to their places."""
        with self._lock:
            if self._array is None and self._rows is None:
                self._array = np.empty((self._count, *values.shape[1:]), values.dtype)
            if self._array is not None and self._array.shape[1:] != values.shape[1:]:
                self._go_by_row()
            if self._array is not None:
                self._array[batch.rows] = values
                self._filled.append(batch.rows)
                return
            assert self._rows is not None
            for row, value in zip(_numbers(batch.rows), values, strict=True):
                self._rows[row] = np.array(value)

    def _go_by_row(self) -> None:
        assert self._array is not None
        self._rows = [None] * self._count
        for filled in self._filled:
            for row in _numbers(filled):
                self._rows[row] = np.asarray(self._array[row])
        self._array = None

    def column(self) -> Column:
        """Return all rows."""
        if self._array is not None:
            return self._array
        assert self._rows is not None
        return [row for row in self._rows if row is not None]


def _numbers(rows: slice | list[int]) -> Iterable[int]:
    return range(rows.start, rows.stop) if isinstance(rows, slice) else rows


def _same_shapes(columns: tuple[Column, ...], count: int) -> list[list[int]]:
    """Return the numbers of rows whose inputs have the same shapes, in the order of the first of each."""
    groups: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for row in range(count):
        groups.setdefault(tuple(np.shape(column[row]) for column in columns), []).append(row)
    return list(groups.values())


def _as_written(column: Column, datatype: str) -> Column:
    if datatype != "BF16":
        return column
    return [fp32_from_bf16(row) for row in column] if isinstance(column, list) else fp32_from_bf16(column)


def _is_about_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or any(text in str(error).lower() for text in _NO_MEMORY)
