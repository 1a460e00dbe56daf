"""What each format does: read rows in order, encode a part of the results, put parts together."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from mcp2026.runtime.dataset.rows import Column, RowId, Rows, Wanted

Parts = Callable[[], Iterator[BinaryIO]]
"""Opens the encoded parts in the order of their rows, one at a time. Can be called more than once."""


@dataclass(frozen=True)
class Results:
    """What the model gave for the rows from `first` on. BF16 is float32 here, text an array of `bytes`."""

    first: int
    count: int
    names: tuple[str, ...]
    columns: tuple[Column, ...]
    ids: list[RowId] | None = None


class Source(Protocol):
    """An open data set."""

    rows: int

    def rank(self, name: str) -> int:
        """Return how many dimensions a row of this input has."""

    def read(self, first: int, rows: int, wanted: Sequence[Wanted]) -> Rows:
        """Return rows in memory of their own; `first` only grows from call to call.

        Types and shapes are the data set's: `rows.fit` checks them.

        Raises:
            InputRefusedError: a row cannot be read.

        """

    def place(self, row: int) -> str:
        """Return where a row is, as its users find it."""

    def close(self) -> None:
        """Close the file."""


class Sink(Protocol):
    """Results in one format. Equal results are equal bytes."""

    def encode(self, results: Results) -> bytes:
        """Return a part.

        Raises:
            ExecutionFailedError: the format cannot hold these results.

        """

    def assemble(self, parts: Parts, target: BinaryIO) -> int:
        """Write all parts as one document, holding one of them in memory; return its rows.

        Raises:
            ExecutionFailedError: the parts do not fit together in this format.

        """
