"""What can go wrong while a cluster is brought up, each with what to do about it."""

from collections.abc import Sequence
from pathlib import Path

LOG_TAIL_LINES = 25
"""How many lines of a failed program's log are shown."""


class ClusterError(Exception):
    """The cluster could not be brought up, used or taken down."""


class RequirementsMissingError(ClusterError):
    """This machine lacks something that the level needs; the message lists all of it."""

    def __init__(self, level: str, missing: Sequence[str]) -> None:
        self.missing = tuple(missing)
        super().__init__(f"level {level} cannot run here: " + "; ".join(missing))


class ProgramFailedError(ClusterError):
    """A program ended or did not become ready; the message carries the end of its log."""

    def __init__(self, program: str, problem: str, log: Path) -> None:
        self.program = program
        self.log = log
        super().__init__(f"{program} {problem}; the end of {log}:\n{log_tail(log)}")


def log_tail(log: Path, lines: int = LOG_TAIL_LINES) -> str:
    """Return the last lines of a log file, or a note that there is none."""
    try:
        with log.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - 64 * 1024))
            text = stream.read().decode(errors="replace")
    except FileNotFoundError:
        return "(no log was written)"
    return "\n".join(text.splitlines()[-lines:]) or "(the log is empty)"
