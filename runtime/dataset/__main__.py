"""Start-up and end of `mcp2026-batch`: settings in; exit status, termination message and archive out.

The run is in a thread, so that the main thread can take signals and tell the progress while it computes.
"""

import logging
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import FrameType

import msgspec
from rich.console import Console

from mcp2026.api.errors import SettingsError
from mcp2026.api.structured_log import configure_logging
from mcp2026.runtime.dataset.errors import EXIT_DONE, EXIT_SETTINGS, BatchError, Reason
from mcp2026.runtime.dataset.lease_progress import lease_reporters
from mcp2026.runtime.dataset.log_archive import archive_logs
from mcp2026.runtime.dataset.plan import Result
from mcp2026.runtime.dataset.progress import Counts, Reporter, reporters
from mcp2026.runtime.dataset.run import run_data_set
from mcp2026.runtime.dataset.settings import BatchSettings, read_settings
from mcp2026.runtime.dataset.stopping import Stop
from mcp2026.runtime.dataset.termination import Termination, ended, write

log = logging.getLogger(__name__)

TICK_S = 0.2
"""How often the progress is told."""


def main() -> None:
    """Run until the data set is done, the time is over, or a signal comes."""
    code = run(sys.argv[1:])
    # A thread may be inside the model, or wait for a server, after a stop: nothing waits for it.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run(arguments: Sequence[str]) -> int:
    """Do all that a process does, and return its exit status."""
    try:
        settings = read_settings(arguments, os.environ)
    except SettingsError as error:
        print(f"mcp2026-batch: {error}", file=sys.stderr)
        _tell_early(arguments, error)
        return EXIT_SETTINGS
    configure_logging(settings.log_format, settings.log_level)
    if settings.log_file is not None and not _log_to(settings.log_file):
        return EXIT_SETTINGS
    termination = _Process(settings).go()
    log.log(
        logging.INFO if termination.exit_code == EXIT_DONE else logging.ERROR,
        "%s: %s",
        termination.reason,
        termination.message,
    )
    if settings.archive is not None and settings.log_file is not None:
        termination = _archived(settings, termination)
    if settings.termination_message is not None:
        write(termination, settings.termination_message)
    return termination.exit_code


class _Process:
    """The main thread's part of a run."""

    def __init__(self, settings: BatchSettings) -> None:
        self._settings = settings
        self._stop = Stop()
        self._counts = Counts()
        self._signal: int | None = None
        self._outcome: Result | BaseException | None = None

    def go(self) -> Termination:
        """Run, and return how it ended."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        settings = self._settings
        console = Console(stderr=True)
        told = [
            *reporters(settings.progress, settings.progress_file, console),
            *lease_reporters(settings),
        ]
        thread = threading.Thread(target=self._work, name="run", daemon=True)
        began = time.monotonic()
        thread.start()
        deadline = None if settings.timeout_seconds is None else began + settings.timeout_seconds
        given_up: float | None = None
        timed_out = False
        while thread.is_alive():
            thread.join(TICK_S)
            now = time.monotonic()
            _tell(told, self._counts, now, last=False)
            if self._signal is None and deadline is not None and now > deadline and not timed_out:
                timed_out = True
                self._stop.set()
            if given_up is None and (timed_out or self._signal is not None):
                given_up = now + settings.stop_seconds
            if given_up is not None and now > given_up:
                log.warning(
                    "the part in flight is dropped: it did not end within %g s", settings.stop_seconds
                )
                break
        _tell(told, self._counts, time.monotonic(), last=True)
        return ended(
            self._outcome,
            self._counts.snapshot(time.monotonic()),
            signal_number=self._signal,
            timeout_seconds=settings.timeout_seconds if timed_out else None,
        )

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._signal = self._signal or number
        self._stop.set()

    def _work(self) -> None:
        try:
            self._outcome = run_data_set(self._settings, self._counts, self._stop)
        except BaseException as error:  # the main thread tells it
            self._outcome = error


def _tell(told: Sequence[Reporter], counts: Counts, now: float, *, last: bool) -> None:
    snapshot = counts.snapshot(now)
    for reporter in told:
        reporter.report(snapshot, now, last=last)


def _tell_early(arguments: Sequence[str], error: SettingsError) -> None:
    """Write the termination message of settings that could not be read, if they say where."""
    flag = "--termination-message"
    given = [text for before, text in pairwise(arguments) if before == flag]
    given += [text.partition("=")[2] for text in arguments if text.startswith(flag + "=")]
    path = given[0] if given else os.environ.get("MCP2026_TERMINATION_MESSAGE")
    if path:
        write(Termination(EXIT_SETTINGS, Reason.SETTINGS_REFUSED, str(error)), Path(path))


def _log_to(path: Path) -> bool:
    """Send the log to a file as well, in the form that it has already."""
    root = logging.getLogger()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.FileHandler(path)
    except OSError as error:
        print(f"mcp2026-batch: --log-file: {path} cannot be written: {error.strerror}", file=sys.stderr)
        return False
    handler.setFormatter(root.handlers[0].formatter)
    root.addHandler(handler)
    return True


def _archived(settings: BatchSettings, termination: Termination) -> Termination:
    """Archive the log; where that fails the run has ended as it has, but without the evidence."""
    assert settings.archive is not None
    assert settings.log_file is not None
    try:
        with tempfile.TemporaryDirectory(prefix="mcp2026-log-", dir=settings.scratch) as folder:
            archive = archive_logs(
                [settings.log_file], settings.archive, Path(folder), allow_http=settings.allow_http
            )
    except (BatchError, SettingsError, OSError) as error:
        log.warning("the log was not archived: %s", error)
        return msgspec.structs.replace(termination, archive_error=str(error))
    return msgspec.structs.replace(termination, archive_sha256=archive.sha256)


if __name__ == "__main__":
    main()
