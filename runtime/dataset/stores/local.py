"""Results in a folder: of this machine, or of a claim."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from mcp2026.runtime.dataset.errors import OutputRefusedError, storage_errors
from mcp2026.runtime.dataset.stopping import Stop
from mcp2026.runtime.dataset.stores.fetching import sha256_of
from mcp2026.runtime.dataset.stores.interface import Record
from mcp2026.runtime.dataset.stores.locations import FilePlace

_LOCK = "lock"
_UNFINISHED = ".unfinished"
_RECORDS = ("plan.json", "assembled.json")


class LocalStore:
    """Parts and records lie in `<output>.parts/`, the record of the result is `<output>.result.json`."""

    def __init__(self, place: FilePlace) -> None:
        self.shown = place.shown
        self._output = place.path
        self._parts = place.path.with_name(place.path.name + ".parts")
        self._result = place.path.with_name(place.path.name + ".result.json")

    @contextmanager
    def locked(self, stop: Stop) -> Iterator[None]:
        """Hold a lock on a file among the parts; the kernel lets go of it when the process ends."""
        del stop
        with storage_errors(self.shown):
            descriptor = self._lock()
        try:
            with storage_errors(self.shown):
                self._remove_unfinished()
            yield
        finally:
            os.close(descriptor)

    def _lock(self) -> int:
        path = self._parts / _LOCK
        while True:
            self._parts.mkdir(parents=True, exist_ok=True)
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except FileNotFoundError:
                continue  # another run has just removed the folder
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    return descriptor
            except BlockingIOError:
                os.close(descriptor)
                raise OutputRefusedError(
                    self.shown,
                    "another run writes it",
                    "Wait until that one has ended, or give another --output",
                ) from None
            except FileNotFoundError:
                pass  # the file that is locked has just been removed
            os.close(descriptor)

    def read_record(self, record: Record) -> bytes | None:
        """Return a record, None if there is none."""
        with storage_errors(self.shown):
            try:
                return self._record(record).read_bytes()
            except FileNotFoundError:
                return None

    def write_record(self, record: Record, content: bytes) -> None:
        """Write or replace a record."""
        with storage_errors(self.shown):
            self._write(self._record(record), content)

    def remove_record(self, record: Record) -> None:
        """Remove a record if it is there."""
        with storage_errors(self.shown):
            self._record(record).unlink(missing_ok=True)
            _sync_folder(self._record(record).parent)

    def part_names(self) -> set[str]:
        """Return the names of all parts that are there."""
        with storage_errors(self.shown):
            return {path.name for path in self._parts.iterdir()} - {_LOCK, *_RECORDS}

    def write_part(self, name: str, content: bytes) -> None:
        """Write a part under another name, bring it to the disk, and rename it."""
        with storage_errors(self.shown):
            self._write(self._parts / name, content)

    def open_parts(self, names: list[str]) -> Iterator[BinaryIO]:
        """Open parts one after the other."""
        for name in names:
            with storage_errors(self.shown):
                opened = (self._parts / name).open("rb")
            yield opened

    def remove_parts(self) -> None:
        """Remove all parts."""
        for name in sorted(self.part_names()):
            with storage_errors(self.shown):
                (self._parts / name).unlink(missing_ok=True)

    def assembly(self) -> Path:
        """Return a name among the parts, on the disk that the output is on."""
        return self._parts / f"output{_UNFINISHED}"

    def publish(self, assembled: Path) -> None:
        """Bring the file to the disk, and rename it to the output."""
        with storage_errors(self.shown):
            with assembled.open("rb") as file:
                os.fsync(file.fileno())
            assembled.replace(self._output)
            _sync_folder(self._output.parent)

    def output_bytes(self) -> int | None:
        """Return the size of the output, None if there is none."""
        with storage_errors(self.shown):
            try:
                return self._output.stat().st_size
            except FileNotFoundError:
                return None

    def output_sha256(self, stop: Stop) -> str:
        """Return the digest of the output as it can be read now."""
        with storage_errors(self.shown):
            return sha256_of(self._output, stop)

    def clean(self) -> None:
        """Remove the lock and the folder. The lock holds until it is closed; who waits for it looks again."""
        with storage_errors(self.shown):
            (self._parts / _LOCK).unlink(missing_ok=True)
            with suppress(OSError):  # another run may have begun in it
                self._parts.rmdir()

    def _record(self, record: Record) -> Path:
        return self._result if record == "result" else self._parts / f"{record}.json"

    def _write(self, path: Path, content: bytes) -> None:
        unfinished = self._parts / f"{path.name}{_UNFINISHED}"
        try:
            with unfinished.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
        except BaseException:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)

    def _remove_unfinished(self) -> None:
        for path in self._parts.glob(f"*{_UNFINISHED}"):
            path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
