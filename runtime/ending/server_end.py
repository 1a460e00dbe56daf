"""The end of one server: what is on record, what it still has to do, and its exit code.

Blocking, at the start and at the end of a process; while it serves only the thread of the log's copy runs.
"""

import logging
from pathlib import Path

from mcp2026.api.errors import SettingsError
from mcp2026.api.names import MODELS_DIRECTORY
from mcp2026.runtime.dataset.stores.locations import FilePlace, S3Place, Surroundings, parse_target
from mcp2026.runtime.ending import record, report
from mcp2026.runtime.ending.log_copy import LogCopy, LogFiles
from mcp2026.runtime.ending.record import Damaged, Record, Step, Todo
from mcp2026.runtime.ending.report import Report
from mcp2026.runtime.errors import StartupError
from mcp2026.runtime.settings import Settings

log = logging.getLogger(__name__)

_NO_POD = "server"
"""Names the log of a server that is in no pod."""


class ServerEnd:
    """What outlives a server in its folder, and what is told of it."""

    def __init__(self, settings: Settings) -> None:
        """Begin to copy the log, if it is to be archived.

        Raises:
            SettingsError: the place of the archive is none.
            StartupError: the folder cannot be written.

        """
        self._settings = settings
        self._target = _target(settings)
        self._folder = None if settings.ending_directory is None else Path(settings.ending_directory)
        self._files: LogFiles | None = None
        self._copy: LogCopy | None = None
        if self._folder is None:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if self._target is not None:
                self._files = LogFiles(self._folder)
                self._copy = LogCopy(self._files)
        except OSError as error:
            raise StartupError(f"--ending-directory {self._folder}: {error.strerror}") from error

    def first_step(self) -> tuple[Todo, Report | None]:
        """Return what this server does, by what the one before it has left.

        Raises:
            StartupError: the folder is none, or not for this user.

        """
        stopped = next((one.revision for one in self._settings.models if one.stopped is True), None)
        try:
            found = None if self._folder is None else record.read(self._folder)
        except OSError as error:
            raise StartupError(
                f"--ending-directory {self._folder}: {record.FILE} cannot be read: {error.strerror}. "
                "Give a folder that this user may read and write"
            ) from error
        if isinstance(found, Damaged):
            log.error(
                "%s is damaged: %s. It was begun when the model was stopped, so nothing is served; "
                "the log is archived, and the end is reported as not known",
                Path(str(self._folder), record.FILE),
                found.problem,
            )
        todo, told = record.first_step(found, stopped)
        if todo is Todo.PARK:
            log.info("the model is stopped and that was reported; this server waits to be removed")
            self._note(Step.PARKED, told)
        return todo, told

    def begun(self, revision: int) -> None:
        """Note that `revision` says stopped, and that requests are being drained."""
        if self._folder is not None:
            self._write(Record(Step.DRAINING, revision))

    def drained(self, revision: int, count: int, exit_code: int) -> int:
        """Do what is left after a drain that ended with `exit_code`; return the exit code of the process."""
        return self.finish(report.after_drain(revision, count, exit_code))

    def finish(self, told: Report) -> int:
        """Archive the log, report, and return the exit code of the process."""
        self._note(Step.DRAINED, told)
        log.log(logging.ERROR if told.exit_code else logging.INFO, "stopped: %s", told.message)
        self.close()
        if self._target is not None and self._files is not None:
            # Imported here: a server whose log is not archived needs no client of S3.
            from mcp2026.runtime.ending.archiving import with_archive

            assert self._folder is not None
            allow_http = self._settings.allow_http
            told = with_archive(told, self._files.paths(), self._target, self._folder, allow_http=allow_http)
        return self.tell(told)

    def tell(self, told: Report) -> int:
        """Report, and return the exit code of the process."""
        self._note(Step.REPORTED, told)
        if self._settings.termination_message is not None:
            report.write(told, Path(self._settings.termination_message))
        log.info("the end is reported: %s, exit code %d", told.reason, told.exit_code)
        return told.exit_code

    def close(self) -> None:
        """Copy the log no further."""
        copy, self._copy = self._copy, None
        if copy is not None:
            copy.close()

    def _note(self, step: Step, told: Report | None) -> None:
        if self._folder is not None and told is not None:
            self._write(Record(step, told.revision, told))

    def _write(self, noted: Record) -> None:
        assert self._folder is not None
        try:
            record.write(noted, self._folder)
        except OSError as error:  # what follows matters more
            log.warning("%s cannot be recorded in %s: %s", noted.step, self._folder, error.strerror)


def _target(settings: Settings) -> FilePlace | S3Place | None:
    if settings.log_archive is None:
        return None
    if settings.ending_directory is None:
        raise SettingsError("--log-archive", "needs a folder for the log until then", "--ending-directory")
    name = f"{settings.pod_name or _NO_POD}.log.gz"
    surroundings = Surroundings(Path(MODELS_DIRECTORY), {})
    return parse_target("--log-archive", f"{settings.log_archive.rstrip('/')}/{name}", surroundings)
