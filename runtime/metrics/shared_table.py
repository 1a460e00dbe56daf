"""One table of numbers in memory that all processes of a server share.

A row is a process, a column is a series.

Each process writes its own row without a lock; whoever is scraped adds the rows up. A worker that is
restarted takes over its predecessor's row, so counters never go back, and no files pile up. All columns
exist from the start: the number of series is bounded by construction.
"""

import mmap
import os

CELL = 8
"""Bytes of a number (double)."""


def create_shared_memory(rows: int, columns: int) -> int:
    """Return the file descriptor of zeroed memory for a table; child processes inherit it by number."""
    descriptor = os.memfd_create("mcp2026-metrics", 0)
    os.ftruncate(descriptor, max(1, rows * columns) * CELL)
    os.set_inheritable(descriptor, True)
    return descriptor


class SharedTable:
    """The table behind a descriptor of `create_shared_memory`."""

    def __init__(self, descriptor: int, rows: int, columns: int) -> None:
        self._cells = memoryview(mmap.mmap(descriptor, max(1, rows * columns) * CELL)).cast("d")
        self._columns = columns

    def row(self, index: int) -> "memoryview[float]":
        """Return the writable row of one process."""
        return self._cells[index * self._columns : (index + 1) * self._columns]

    def totals(self) -> list[float]:
        """Return the sum of all rows, per column."""
        columns = self._columns
        cells = self._cells.tolist()
        return [sum(cells[column::columns]) for column in range(columns)]
