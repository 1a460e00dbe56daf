"""How a server that was stopped ended: its exit code and the line of JSON that it leaves.

Source: https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/ (at most 4096
bytes of the file count; the file is mounted, so it is written in place).
"""

import logging
from enum import StrEnum
from pathlib import Path

import msgspec

log = logging.getLogger(__name__)

EXIT_DONE = 0
EXIT_NOT_DRAINED = 1
EXIT_NOT_ARCHIVED = 4
"""2 and 3 are those of settings and of data sets."""
LONGEST_BYTES = 4096
_LONGEST_TEXT = 1000


class Reason(StrEnum):
    """Why it has its exit code. The set is closed."""

    STOPPED = "Stopped"
    """As it should be."""
    DRAIN_INCOMPLETE = "DrainIncomplete"
    ARCHIVE_FAILED = "ArchiveFailed"


class Report(msgspec.Struct, frozen=True):
    """The last word of a server that was stopped."""

    exit_code: int
    reason: Reason
    message: str
    revision: int
    """That said so; 0: not known any more."""
    served: bool
    """Whether it served before."""
    drained: int = 0
    """Requests that were answered after it was told to stop."""
    archive: str | None = None
    """Where its log lies."""
    archive_sha256: str | None = None
    """Of the archived log, as it lies in its place, in lower-case hex."""
    archive_error: str | None = None


def served_nothing(revision: int) -> Report:
    """Return the report of a server that was started for a model that is stopped."""
    return Report(EXIT_DONE, Reason.STOPPED, "the model was stopped before it served", revision, served=False)


def after_drain(revision: int, drained: int, exit_code: int) -> Report:
    """Return the report of a server that has drained, as far as `exit_code` says."""
    if exit_code == EXIT_DONE:
        message = f"{drained} requests were answered after the stop"
        return Report(EXIT_DONE, Reason.STOPPED, message, revision, served=True, drained=drained)
    message = f"{drained} requests were answered after the stop, others were cut off (status {exit_code})"
    return Report(exit_code, Reason.DRAIN_INCOMPLETE, message, revision, served=True, drained=drained)


def killed_in_drain(revision: int) -> Report:
    """Return the report about a server that ended without one."""
    message = "the server was killed while it drained: requests may have been cut off"
    return Report(EXIT_NOT_DRAINED, Reason.DRAIN_INCOMPLETE, message, revision, served=True)


def end_unknown(revision: int, problem: str) -> Report:
    """Return the report about a server of which no more is known than that its end had begun."""
    message = f"the server's record is damaged ({problem}), so its end is not known: requests may be cut off"
    return Report(EXIT_NOT_DRAINED, Reason.DRAIN_INCOMPLETE, message, revision, served=True)


def archived(report: Report, place: str, sha256: str) -> Report:
    """Return `report` with the archive of its log."""
    return msgspec.structs.replace(report, archive=place, archive_sha256=sha256)


def not_archived(report: Report, place: str, problem: str) -> Report:
    """Return `report` with what kept the log from being archived; an exit code that is bad already stays."""
    told = msgspec.structs.replace(report, archive=place, archive_error=problem)
    if report.exit_code != EXIT_DONE:
        return told
    message = f"{report.message}; the log was not archived: {problem}"
    return msgspec.structs.replace(
        told, exit_code=EXIT_NOT_ARCHIVED, reason=Reason.ARCHIVE_FAILED, message=message
    )


def encode(report: Report) -> bytes:
    """Return the line, with its texts cut so that it is not longer than the kubelet reads."""
    longest = _LONGEST_TEXT
    while True:
        cut = msgspec.structs.replace(
            report,
            message=report.message[:longest],
            archive_error=report.archive_error and report.archive_error[:longest],
        )
        line = msgspec.json.encode(cut) + b"\n"
        if len(line) <= LONGEST_BYTES or not longest:
            return line
        longest //= 2


def write(report: Report, path: Path) -> None:
    """Write the line in place. If that fails, the log says so; the exit code tells the essential."""
    try:
        with path.open("wb") as file:
            file.write(encode(report))
    except OSError as error:
        log.warning("the termination message %s cannot be written: %s", path, error.strerror)
