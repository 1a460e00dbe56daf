"""The file that a comparison grows line by line: a killed run loses only the cell it was measuring."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from bench.client.closed_loop import ClientName
from bench.client.load import LoadResult
from bench.errors import BenchError
from bench.machine import Machine

FILE = "results.jsonl"


class Cell(msgspec.Struct, frozen=True, order=True):
    """What is measured: one server, asked in one way for one model, by so many requests at a time."""

    model: str
    protocol: str
    concurrency: int
    server: str


class Settings(msgspec.Struct, frozen=True, tag="settings"):
    """What must be the same in all parts of one file: rates measured otherwise do not compare."""

    seconds: float
    threads: int
    max_batch_size: int
    delay_ms: int
    server_cores: str
    client_cores: str
    client: ClientName
    niceness: int = 0
    realtime: bool = False


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Where and when a part of the measurements was made, and with which versions."""

    machine: Machine
    versions: dict[str, str]


class Measurement(msgspec.Struct, frozen=True, tag="measurement"):
    """One cell in one round: a result, or why there is none."""

    cell: Cell
    round: int
    result: LoadResult | None = None
    not_supported: str | None = None
    failed: str | None = None


Line = Settings | Start | Measurement
_decoder = msgspec.json.Decoder(Line)
_encode = msgspec.json.Encoder().encode


class ResultFile:
    """The results in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / FILE
        self.settings: Settings | None = None
        self.starts: list[Start] = []
        self.measurements: list[Measurement] = []
        self._whole_bytes = 0
        for line in self._read():
            self._take(line)

    def _read(self) -> Iterator[Line]:
        """Yield the lines; one that was cut short by a kill ends the file."""
        if not self._path.exists():
            return
        for number, text in enumerate(self._path.read_bytes().splitlines(keepends=True), 1):
            if not text.endswith(b"\n"):
                return
            try:
                yield _decoder.decode(text)
            except msgspec.DecodeError as error:
                raise BenchError(f"{self._path}, line {number}: {error}; move the file away") from error
            self._whole_bytes += len(text)

    def _take(self, line: Line) -> None:
        match line:
            case Settings():
                self.settings = line
            case Start():
                self.starts.append(line)
            case Measurement():
                self.measurements.append(line)

    def begin(self, settings: Settings, start: Start) -> None:
        """Go on with the file, or start it.

        Raises:
            BenchError: it was begun with other settings.

        """
        if self.settings is not None and self.settings != settings:
            raise BenchError(
                f"{self._path} was begun with other settings: {self.settings}; choose another --output"
            )
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists():
            os.truncate(self._path, self._whole_bytes)
        if self.settings is None:
            self.append(settings)
        self.append(start)

    def append(self, line: Line) -> None:
        """Write one line, whole, to the disk."""
        text = _encode(line) + b"\n"
        with self._path.open("ab") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        self._take(line)

    def is_done(self, cell: Cell, round_number: int) -> bool:
        """Return whether a cell needs no measurement in this round. What failed is tried again."""
        return any(
            line.cell == cell
            and (line.not_supported is not None or (line.round == round_number and line.result is not None))
            for line in self.measurements
        )

    def rounds(self) -> Mapping[Cell, Mapping[int, LoadResult]]:
        """Return the results of each cell by round."""
        found: dict[Cell, dict[int, LoadResult]] = {}
        for line in self.measurements:
            if line.result is not None:
                found.setdefault(line.cell, {})[line.round] = line.result
        return found

    def reasons(self) -> Mapping[Cell, str]:
        """Return why a cell has no result at all."""
        measured = self.rounds()
        return {
            line.cell: f"not supported: {line.not_supported}"
            if line.not_supported
            else f"failed: {line.failed}"
            for line in self.measurements
            if line.result is None and line.cell not in measured
        }
