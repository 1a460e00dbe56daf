"""How far a run is: counted by its threads, told by the main thread."""

import json
import logging
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal, Protocol

import msgspec
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

log = logging.getLogger(__name__)

Phase = Literal["preparing", "running", "assembling", "done"]
ProgressChoice = Literal["auto", "bar", "log", "none"]

LOG_EVERY_S = 10.0
FILE_EVERY_S = 1.0


class Snapshot(msgspec.Struct, frozen=True):
    """How far a run is at one moment; the progress file holds one of it as JSON."""

    phase: Phase
    rows_done: int
    rows_total: int
    """0 while it is not known."""
    rows_resumed: int
    """Of those done, what an earlier run did."""
    parts_done: int
    parts_total: int
    rows_per_second: float
    """Of this run, since its first part began."""
    eta_seconds: float | None


class Counts:
    """Counted by the run."""

    def __init__(self) -> None:
        self.phase: Phase = "preparing"
        self.rows_total = self.rows_done = self.rows_resumed = 0
        self.parts_total = self.parts_done = 0
        self.began: float | None = None
        """When the first part of this run began, by the monotonic clock."""

    def begin(self, rows_total: int, parts_total: int, rows_resumed: int, parts_resumed: int) -> None:
        """Note what there is to do, and what an earlier run did."""
        self.rows_total, self.parts_total = rows_total, parts_total
        self.rows_done = self.rows_resumed = rows_resumed
        self.parts_done = parts_resumed
        self.began = time.monotonic()
        self.phase = "running"

    def part_done(self, rows: int) -> None:
        """Count a part that is written."""
        self.rows_done += rows
        self.parts_done += 1

    def snapshot(self, now: float) -> Snapshot:
        """Return how far the run is at `now`."""
        own = self.rows_done - self.rows_resumed
        took = 0.0 if self.began is None else now - self.began
        rate = own / took if took > 0 else 0.0
        left = self.rows_total - self.rows_done
        return Snapshot(
            self.phase,
            self.rows_done,
            self.rows_total,
            self.rows_resumed,
            self.parts_done,
            self.parts_total,
            round(rate, 3),
            round(left / rate, 1) if rate else None,
        )


class Reporter(Protocol):
    """Tells somebody how far the run is."""

    def report(self, snapshot: Snapshot, now: float, *, last: bool) -> None:
        """Tell it, if it is time to, and for certain if it is the last time."""


class Bar:
    """A bar on a terminal."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rows  {task.fields[rate]:,.0f} rows/s{task.fields[resumed]}"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task: TaskID = self._progress.add_task("preparing", total=None, rate=0.0, resumed="")
        self._progress.start()

    def report(self, snapshot: Snapshot, now: float, *, last: bool) -> None:
        """Draw the bar; the last one stays."""
        del now
        resumed = f"  ({snapshot.rows_resumed:,} resumed)" if snapshot.rows_resumed else ""
        self._progress.update(
            self._task,
            description=snapshot.phase,
            total=snapshot.rows_total or None,
            completed=snapshot.rows_done,
            rate=snapshot.rows_per_second,
            resumed=resumed,
        )
        if last:
            self._progress.stop()


class LogLines:
    """A line of the log now and then."""

    def __init__(self) -> None:
        self._next = 0.0

    def report(self, snapshot: Snapshot, now: float, *, last: bool) -> None:
        """Write a line, at most one in 10 s."""
        if snapshot.phase == "preparing" or (now < self._next and not last):
            return
        self._next = now + LOG_EVERY_S
        log.info(
            "%s: %d of %d rows, %.0f rows/s",
            snapshot.phase,
            snapshot.rows_done,
            snapshot.rows_total,
            snapshot.rows_per_second,
            extra=msgspec.to_builtins(snapshot),
        )


class ProgressFile:
    """A file that is replaced as a whole, for whoever passes it on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = 0.0
        self._told = False

    def report(self, snapshot: Snapshot, now: float, *, last: bool) -> None:
        """Replace the file, at most once a second. Where that fails the run goes on, and the log says so."""
        if now < self._next and not last:
            return
        self._next = now + FILE_EVERY_S
        unfinished = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            unfinished.write_text(json.dumps(msgspec.to_builtins(snapshot)) + "\n")
            unfinished.replace(self._path)
        except OSError as error:
            if not self._told:
                log.warning("the progress file %s cannot be written: %s", self._path, error.strerror)
                self._told = True
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)


def reporters(choice: ProgressChoice, path: Path | None, console: Console) -> list[Reporter]:
    """Return who is to be told; `auto` draws a bar on a terminal and writes lines of the log elsewhere."""
    chosen: list[Reporter] = []
    if choice == "bar" or (choice == "auto" and console.is_terminal):
        chosen.append(Bar(console))
    elif choice != "none":
        chosen.append(LogLines())
    if path is not None:
        chosen.append(ProgressFile(path))
    return chosen
