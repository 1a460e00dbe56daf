"""What one server of a pod leaves for the next: how far the end of their model is.

A container that ends is started again, and the mounted configuration may be a minute old. So the folder,
which lives as long as the pod, says what the server before has done.
"""

import errno
import os
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec

from mcp2026.runtime.ending.report import Report, end_unknown, killed_in_drain, served_nothing

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


class Damaged(NamedTuple):
    """A record that nothing can be read from. There was one, so the model is stopped."""

    problem: str


class Todo(StrEnum):
    """What a server that starts does."""

    SERVE = "Serve"
    ARCHIVE = "Archive"
    """Its log, then report."""
    REPORT = "Report"
    """Repeat the report that is there: the server that waited was ended, and its end took the place of it."""
    PARK = "Park"


def first_step(record: Record | Damaged | None, stopped_revision: int | None) -> tuple[Todo, Report | None]:
    """Return what a server does that finds `record`, and what it reports.

    `stopped_revision`: that of its configuration, if this says that the model is stopped. It cannot be taken
    back, so a record counts whatever the configuration says. Of one that is damaged no more is known than
    that the end had begun: the log is archived, perhaps once more and then to the same place.
    """
    if record is None:
        if stopped_revision is None:
            return Todo.SERVE, None
        return Todo.ARCHIVE, served_nothing(stopped_revision)
    if isinstance(record, Damaged):
        return Todo.ARCHIVE, end_unknown(stopped_revision or 0, record.problem)
    report = record.report or killed_in_drain(record.revision)
    match record.step:
        case Step.DRAINING | Step.DRAINED:
            return Todo.ARCHIVE, report
        case Step.REPORTED:
            return Todo.PARK, report
        case Step.PARKED:
            return Todo.REPORT, report


def read(folder: Path) -> Record | Damaged | None:
    """Return what is recorded in `folder`; None where nothing is.

    Raises:
        OSError: the folder is none, or not for this user.

    """
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=Record)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        return Damaged(str(error))
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return Damaged("the disk cannot read it")


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
