"""NumPy's format: one array, for models with one input or one output."""

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from mcp2026.runtime.dataset.errors import InputRefusedError, storage_errors
from mcp2026.runtime.dataset.formats.interface import Parts, Results
from mcp2026.runtime.dataset.formats.npy_blocks import mapped, native, read_header
from mcp2026.runtime.dataset.formats.numpy_parts import copy_column, encode_columns, final_header
from mcp2026.runtime.dataset.rows import Rows, Wanted
from mcp2026.runtime.model.signature import TensorSpec


class NpySource:
    """An array whose first dimension counts rows; mapped, so only the rows that are read are touched."""

    def __init__(self, path: Path, inputs: Sequence[TensorSpec], shown: str) -> None:
        """Open the file.

        Raises:
            InputRefusedError: the model has several inputs, or this is no such array.

        """
        if len(inputs) != 1:
            names = ", ".join(spec.name for spec in inputs)
            raise InputRefusedError(
                shown, "it is one array", f"The model has the inputs {names}: give npz, jsonl or parquet"
            )
        with storage_errors(shown), path.open("rb") as file:
            header = read_header(file, shown)
            self._array = mapped(str(path), file.tell(), header, shown)
        self._shown = shown
        self.rows = header.shape[0]

    def rank(self, name: str) -> int:
        """Return how many dimensions a row has; all rows have the same."""
        del name
        return self._array.ndim - 1

    def read(self, first: int, rows: int, wanted: Sequence[Wanted]) -> Rows:
        """Copy rows out of the mapping."""
        del wanted
        return Rows(first, rows, (native(self._array[first : first + rows]),))

    def place(self, row: int) -> str:
        """Return the row as an index of the array."""
        return f"{self._shown} row {row} (counted from 0)"

    def close(self) -> None:
        """Let go of the mapping."""
        del self._array


class NpySink:
    """One array."""

    def __init__(self, outputs: Sequence[str]) -> None:
        (self._output,) = outputs

    def encode(self, results: Results) -> bytes:
        """Return a part."""
        return encode_columns(results)

    def assemble(self, parts: Parts, target: BinaryIO) -> int:
        """Write the array; return its rows."""
        header = final_header(self._output, 0, parts)
        copy_column(0, header, parts, target)
        return header.shape[0]
