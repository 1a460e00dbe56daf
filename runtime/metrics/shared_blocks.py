"""Numbers in memory that all processes of a server share: a block for the server, and one per served version.

In a block every process has a row of its own and writes it without a lock; whoever is scraped adds the rows
up. A worker that is restarted takes over its predecessor's row, so counters never go back, and no files pile
up. Blocks carry the names of model and version, so a process finds them by looking. Only the parent claims
and retires blocks: their number, and so the number of series, is bounded. Pages that nothing has touched cost
no memory.
"""

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass

CELL = 8
"""Bytes of a number (double)."""
CAPACITY = 1024
"""Most versions that are remembered, served or not."""
NAME_BYTES = 500
"""Most bytes that the names of a model and a version may have together."""

_HEADER = 512
_FREE, _LIVE, _RETIRED = 0, 1, 2


@dataclass(frozen=True)
class BlockSizes:
    """Rows are processes, columns are series."""

    rows: int
    server_columns: int
    version_columns: int
    capacity: int = CAPACITY

    @property
    def server_bytes(self) -> int:
        """Bytes of the server's block."""
        return self.rows * self.server_columns * CELL

    @property
    def version_bytes(self) -> int:
        """Bytes of one version's block."""
        return _HEADER + self.rows * self.version_columns * CELL

    @property
    def bytes(self) -> int:
        """Bytes of all blocks."""
        return self.server_bytes + self.capacity * self.version_bytes


class NoBlockLeftError(Exception):
    """Every block belongs to a version that is served."""


def create_shared_memory(sizes: BlockSizes) -> int:
    """Return the file descriptor of zeroed memory for the blocks; child processes inherit it by number."""
    descriptor = os.memfd_create("mcp2026-metrics", 0)
    os.ftruncate(descriptor, sizes.bytes)
    os.set_inheritable(descriptor, True)
    return descriptor


class SharedBlocks:
    """The blocks behind a descriptor of `create_shared_memory`."""

    def __init__(self, descriptor: int, sizes: BlockSizes) -> None:
        self._sizes = sizes
        self._bytes = memoryview(mmap.mmap(descriptor, sizes.bytes))

    def server_row(self, row: int) -> "memoryview[float]":
        """Return the writable row of one process in the server's block."""
        return self._row(0, self._sizes.server_columns, row)

    def version_row(self, block: int, row: int) -> "memoryview[float]":
        """Return the writable row of one process in a version's block."""
        return self._row(self._start(block) + _HEADER, self._sizes.version_columns, row)

    def server_totals(self) -> list[float]:
        """Return the sum over all processes, per column of the server's block."""
        return _sums([self.server_row(row) for row in range(self._sizes.rows)])

    def version_totals(self, block: int, columns: slice) -> list[float]:
        """Return the sums over all processes of some columns of a version's block."""
        return _sums([self.version_row(block, row)[columns] for row in range(self._sizes.rows)])

    def version_rows(self, block: int, columns: slice) -> list[list[float]]:
        """Return some columns of a version's block as each process has them."""
        return [list(self.version_row(block, row)[columns]) for row in range(self._sizes.rows)]

    def named(self) -> Iterator[tuple[int, str, str]]:
        """Iterate over block, model and version of everything that is or was served."""
        for block in range(self._sizes.capacity):
            if self._state(block) == _FREE:
                return  # blocks are taken in order, and none is free again
            yield (block, *self._names(block))

    def find(self, model: str, version_id: str) -> int | None:
        """Return the block of a version, None if it has none."""
        wanted = _encoded(model, version_id)
        for block in range(self._sizes.capacity):
            start = self._start(block)
            if self._bytes[start] == _FREE:
                return None
            if self._bytes[start + 1 : start + 1 + len(wanted)] == wanted:
                return block
        return None

    # --- the parent alone

    def claim(self, model: str, version_id: str) -> int:
        """Return the block of a version; it gets one if it has none.

        Raises:
            NoBlockLeftError: too many versions are served.

        """
        block = self.find(model, version_id)
        if block is None:
            block = self._vacant()
            start = self._start(block)
            self._bytes[start : start + self._sizes.version_bytes] = bytes(self._sizes.version_bytes)
            names = _encoded(model, version_id)
            self._bytes[start + 1 : start + 1 + len(names)] = names
        self._bytes[self._start(block)] = _LIVE
        return block

    def retire(self, model: str, version_id: str) -> None:
        """Let the block of a version go to another one when there is no free block left."""
        block = self.find(model, version_id)
        if block is not None:
            self._bytes[self._start(block)] = _RETIRED

    def _vacant(self) -> int:
        for state in (_FREE, _RETIRED):
            for block in range(self._sizes.capacity):
                if self._state(block) == state:
                    return block
        raise NoBlockLeftError

    # --- places

    def _start(self, block: int) -> int:
        return self._sizes.server_bytes + block * self._sizes.version_bytes

    def _row(self, start: int, columns: int, row: int) -> "memoryview[float]":
        begin = start + row * columns * CELL
        return self._bytes[begin : begin + columns * CELL].cast("d")

    def _state(self, block: int) -> int:
        return self._bytes[self._start(block)]

    def _names(self, block: int) -> tuple[str, str]:
        names = []
        position = self._start(block) + 1
        for _ in range(2):
            length = int.from_bytes(self._bytes[position : position + 2], "little")
            names.append(bytes(self._bytes[position + 2 : position + 2 + length]).decode())
            position += 2 + length
        return names[0], names[1]


def _encoded(model: str, version_id: str) -> bytes:
    names = [model.encode(), version_id.encode()]
    return b"".join(len(name).to_bytes(2, "little") + name for name in names)


def _sums(rows: "list[memoryview[float]]") -> list[float]:
    return [sum(cells) for cells in zip(*(row.tolist() for row in rows), strict=True)]
