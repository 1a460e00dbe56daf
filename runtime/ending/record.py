"""What one server of a pod leaves for the next: how far the end of their model is.

A container that ends is started again, and the mounted configuration may be a minute old. So the folder,
which lives as long as the pod, says what the server before has done.
"""

import os
from enum import StrEnum
from pathlib import Path

import msgspec

from mcp2026.runtime.ending.report import Report, killed_in_drain, served_nothing

FILE = "ending.json"


class Step(StrEnum):
    """What was done last. In this order, but that Parked and Reported follow each other."""

    DRAINING = "Draining"
    """Told to stop; requests are being answered."""
    DRAINED = "Drained"
    """All that is left is the log."""
    REPORTED = "Reported"
    """The report was written, and the process ended with its exit code."""
    PARKED = "Parked"
    """A server waits to be removed, and the report stands in the container's last state."""


class Record(msgspec.Struct, frozen=True):
    """How far the end is."""

    step: Step
    revision: int
    report: Report | None = None
    """From Drained on."""


class Todo(StrEnum):
    """What a server that starts does."""

    SERVE = "Serve"
    ARCHIVE = "Archive"
    """Its log, then report."""
    REPORT = "Report"
    """Repeat the report that is there: the server that waited was ended, and its end took the place of it."""
    PARK = "Park"


def first_step(record: Record | None, stopped_revision: int | None) -> tuple[Todo, Report | None]:
    """Return what a server does that finds `record`, and what it reports.

    `stopped_revision`: that of its configuration, if this says that the model is stopped. It cannot be taken
    back, so a record counts whatever the configuration says.
    """
    if record is None:
        if stopped_revision is None:
            return Todo.SERVE, None
        return Todo.ARCHIVE, served_nothing(stopped_revision)
    report = record.report or killed_in_drain(record.revision)
    match record.step:
        case Step.DRAINING | Step.DRAINED:
            return Todo.ARCHIVE, report
        case Step.REPORTED:
            return Todo.PARK, report
        case Step.PARKED:
            return Todo.REPORT, report


def read(folder: Path) -> Record | None:
    """Return what is recorded in `folder`; None where nothing is.

    Raises:
        OSError: it cannot be read, or is no record.

    """
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=Record)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise OSError(f"{folder / FILE} is no record: {error}") from error


def write(record: Record, folder: Path) -> None:
    """Put `record` in place of the one before, whole and lasting.

    Raises:
        OSError: it cannot be written.

    """
    unfinished = folder / f"{FILE}.new"
    with unfinished.open("wb") as file:
        file.write(msgspec.json.encode(record))
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(folder / FILE)
