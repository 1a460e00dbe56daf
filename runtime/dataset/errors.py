"""Why a run over a data set ended, and the errors that end it. Each says where, what, and what to do."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import ClassVar

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_SETTINGS = 2
EXIT_INPUT = 3
EXIT_TIMEOUT = 124
"""As `timeout` of coreutils has it."""


class Reason(StrEnum):
    """Why the run ended; in the termination message. The set is closed."""

    COMPLETED = "Completed"
    TIMEOUT = "Timeout"
    OUT_OF_MEMORY = "OutOfMemory"
    INPUT_REFUSED = "InputRefused"
    MODEL_REFUSED = "ModelRefused"
    EXECUTION_FAILED = "ExecutionFailed"
    STORAGE_FAILED = "StorageFailed"
    SETTINGS_REFUSED = "SettingsRefused"
    STOPPED = "Stopped"


class BatchError(Exception):
    """The run cannot go on."""

    reason: ClassVar[Reason]
    exit_code: ClassVar[int] = EXIT_FAILED

    def __init__(self, place: str, problem: str, remedy: str) -> None:
        super().__init__(f"{place}: {problem}. {remedy}")
        self.place = place
        self.problem = problem


class InputRefusedError(BatchError):
    """The data set is not one that this model takes, or not the one that was begun with."""

    reason = Reason.INPUT_REFUSED
    exit_code = EXIT_INPUT


class ModelRefusedError(BatchError):
    """The model cannot be loaded, or is not the one that was begun with."""

    reason = Reason.MODEL_REFUSED


class OutputRefusedError(BatchError):
    """What is at the output's place is not ours to replace, or belongs to a run with other settings."""

    reason = Reason.SETTINGS_REFUSED
    exit_code = EXIT_SETTINGS


class ExecutionFailedError(BatchError):
    """The model failed on a row, or its results cannot be written in the output's format."""

    reason = Reason.EXECUTION_FAILED


class OutOfMemoryError(BatchError):
    """A batch needs more memory than there is."""

    reason = Reason.OUT_OF_MEMORY


class StorageFailedError(BatchError):
    """A place cannot be read or written."""

    reason = Reason.STORAGE_FAILED


class StoppedError(Exception):
    """Raised at the next safe point after the run was told to stop."""


_REMEDIES = {
    errno.ENOSPC: "Free space or enlarge the volume, and run again: what is done stays done",
    errno.EDQUOT: "Raise the quota, and run again: what is done stays done",
    errno.EROFS: "Mount the volume writable, or give another place",
    errno.EACCES: "Give this user the permission, or give another place",
    errno.EPERM: "Give this user the permission, or give another place",
    errno.ENOENT: "Check the path",
    errno.EISDIR: "Give a file",
    errno.ENOTDIR: "Check the path",
}


@contextmanager
def storage_errors(place: str) -> Iterator[None]:
    """Turn errors of the system about `place` into one that says what to do.

    Raises:
        StorageFailedError: the system refused.

    """
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "Run again once it works: what is done stays done")
        raise StorageFailedError(place, error.strerror or str(error), remedy) from error
