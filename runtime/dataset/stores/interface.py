"""What the place of the results does, whether it is a folder or a bucket.

Records (`plan`, `result`, `assembled`), parts and the output appear whole or not at all.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from mcp2026.runtime.dataset.stopping import Stop

Record = Literal["plan", "assembled", "result"]
"""`result` lies beside the output and stays; the others lie among the parts and go with them."""


class OutputStore(Protocol):
    """The output, its parts and its records."""

    shown: str

    def locked(self, stop: Stop) -> AbstractContextManager[None]:
        """Keep other runs from this output. All other calls are made while it is locked.

        Raises:
            OutputRefusedError: another run has it.
            StorageFailedError: it cannot be written.

        """

    def read_record(self, record: Record) -> bytes | None:
        """Return a record, None if there is none."""

    def write_record(self, record: Record, content: bytes) -> None:
        """Write or replace a record."""

    def remove_record(self, record: Record) -> None:
        """Remove a record if it is there."""

    def part_names(self) -> set[str]:
        """Return the names of all parts that are there."""

    def write_part(self, name: str, content: bytes) -> None:
        """Write a part; when this returns, it outlasts a loss of power."""

    def open_parts(self, names: list[str]) -> Iterator[BinaryIO]:
        """Open parts one after the other; each can be sought in."""

    def remove_parts(self) -> None:
        """Remove all parts, and what an interrupted run left of some."""

    def assembly(self) -> Path:
        """Return where the output is to be put together: a file that is not there yet."""

    def publish(self, assembled: Path) -> None:
        """Make the file the output, in one step, and let go of it."""

    def output_bytes(self) -> int | None:
        """Return the size of the output, None if there is none."""

    def output_sha256(self, stop: Stop) -> str:
        """Return the digest of the output as it can be read now."""

    def clean(self) -> None:
        """Remove the place of the parts itself, once it is empty."""
