"""The last word of a run: one line of JSON where the kubelet looks for it.

Source: https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/ (at most 4096
bytes of the file count; the file is mounted, so it is written in place).
"""

import logging
import signal
from pathlib import Path

import msgspec

from mcp2026.api.errors import SettingsError
from mcp2026.runtime.dataset.errors import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_SETTINGS,
    EXIT_TIMEOUT,
    BatchError,
    Reason,
    StoppedError,
)
from mcp2026.runtime.dataset.plan import Result
from mcp2026.runtime.dataset.progress import Snapshot

log = logging.getLogger(__name__)

LONGEST_BYTES = 4096
_LONGEST_TEXT = 1500
"""In characters; JSON may need more bytes for one."""


class Termination(msgspec.Struct, frozen=True):
    """How a run ended."""

    exit_code: int
    reason: Reason
    message: str = ""
    """What happened; of an error also where, and what to do."""
    rows: int = 0
    """Rows of the data set with a result that lasts, of this and earlier runs."""
    rows_total: int = 0
    rows_resumed: int = 0
    sha256: str | None = None
    """Of the output. It is given if and only if the output is there, whole and checked."""
    bytes: int | None = None
    archive_sha256: str | None = None
    """Of the archived log, as it lies in its place."""
    archive_error: str | None = None


def ended(
    outcome: Result | BaseException | None,
    progress: Snapshot,
    *,
    signal_number: int | None,
    timeout_seconds: float | None,
) -> Termination:
    """Return how a run ended.

    `outcome` is what it made or raised, None if it did not end when it was told to stop; `signal_number` and
    `timeout_seconds` say what told it to.
    """
    code, reason = EXIT_FAILED, Reason.EXECUTION_FAILED
    sha256, size = None, None
    if isinstance(outcome, Result):
        code, reason = EXIT_DONE, Reason.COMPLETED
        sha256, size = outcome.sha256, outcome.bytes
        message = f"{outcome.rows} rows are done"
    elif outcome is None or isinstance(outcome, StoppedError):
        so_far = f"{progress.rows_done} of {progress.rows_total} rows are done"
        done = f"{so_far}, the same command goes on from there"
        if signal_number is not None:
            code, reason = 128 + signal_number, Reason.STOPPED
            message = f"stopped by {signal.Signals(signal_number).name}: {done}"
        else:
            code, reason = EXIT_TIMEOUT, Reason.TIMEOUT
            message = f"it took longer than {timeout_seconds or 0:g} s: {done}"
    elif isinstance(outcome, BatchError):
        code, reason, message = outcome.exit_code, outcome.reason, str(outcome)
    elif isinstance(outcome, SettingsError):
        code, reason, message = EXIT_SETTINGS, Reason.SETTINGS_REFUSED, str(outcome)
    elif isinstance(outcome, MemoryError):
        reason = Reason.OUT_OF_MEMORY
        message = "the memory does not suffice. Give fewer --rows-per-part, or a smaller --max-batch-size"
    else:
        message = f"{type(outcome).__name__}: {outcome}"
    return Termination(
        code,
        reason,
        message,
        rows=progress.rows_done,
        rows_total=progress.rows_total,
        rows_resumed=progress.rows_resumed,
        sha256=sha256,
        bytes=size,
    )


def encode(termination: Termination) -> bytes:
    """Return the line, with its texts cut so that it is not longer than the kubelet reads."""
    longest = _LONGEST_TEXT
    while True:
        cut = msgspec.structs.replace(
            termination,
            message=termination.message[:longest],
            archive_error=termination.archive_error and termination.archive_error[:longest],
        )
        line = msgspec.json.encode(cut) + b"\n"
        if len(line) <= LONGEST_BYTES:
            return line
        longest //= 2


def write(termination: Termination, path: Path) -> None:
    """Write the line in place. If that fails, the log says so; the exit code tells the essential."""
    try:
        with path.open("wb") as file:
            file.write(encode(termination))
    except OSError as error:
        log.warning("the termination message %s cannot be written: %s", path, error.strerror)
