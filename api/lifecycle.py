"""Which phase may follow which, and on what evidence. The only place where a phase changes.

The table is SPEC R2.1: Pending → Running on ResourceAllocated (quota suffices and every dependency has
completed); Running → Succeeded or Failed on ExitCodeReported (Succeeded only for exit code 0 with a
validated result), irreversible; Succeeded → Completed on DataSynced. Everything else is refused.

The rules of the API server (`lifecycle_rules.py`) and the diagram of the docs are made from the same table.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from mcp2026.api.errors import TransitionRefusedError

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class Phase(StrEnum):
    """Where an InferenceModel stands in its life."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    COMPLETED = "Completed"


class ExitReason(StrEnum):
    """Why a run ended, as the container runtime or the operator saw it."""

    EXITED = "Exited"
    TIMEOUT = "Timeout"
    OUT_OF_MEMORY = "OutOfMemory"


class RefusalReason(StrEnum):
    """Why an event moves nothing."""

    NO_SUCH_STEP = "NoSuchStep"
    """The phase knows no such event."""
    QUOTA_EXCEEDED = "QuotaExceeded"
    DEPENDENCY_INCOMPLETE = "DependencyIncomplete"
    ARCHIVE_UNVERIFIED = "ArchiveUnverified"


@dataclass(frozen=True, slots=True)
class ResourceAllocated:
    """Every pod that the model asked for is bound to a node and holds its devices."""

    quota_suffices: bool
    dependencies_completed: bool


@dataclass(frozen=True, slots=True)
class ExitCodeReported:
    """The work ended. `validated` says that its result was checked and found whole."""

    exit_code: int
    validated: bool
    reason: ExitReason = ExitReason.EXITED


@dataclass(frozen=True, slots=True)
class DataSynced:
    """Logs are archived and data is synchronised; `archive_sha256` is the digest of the archive, in hex."""

    archive_sha256: str


Event = ResourceAllocated | ExitCodeReported | DataSynced


@dataclass(frozen=True, slots=True)
class Guard:
    """What has to hold of an event's evidence."""

    holds: Callable[[Any], bool]
    text: str
    """For the diagram."""
    reason: RefusalReason | None = None
    """Of the refusal if it does not hold. None: another step of the same event takes it then."""
    lacking: str = ""
    """What is missing, in words."""


@dataclass(frozen=True, slots=True)
class Step:
    """One row of the table."""

    start: Phase
    event: type[Event]
    guards: tuple[Guard, ...]
    end: Phase


QUOTA_SUFFICES: Final = Guard(
    lambda event: event.quota_suffices,
    "quota suffices",
    RefusalReason.QUOTA_EXCEEDED,
    "the quota does not suffice",
)
DEPENDENCIES_COMPLETED: Final = Guard(
    lambda event: event.dependencies_completed,
    "every dependency has completed",
    RefusalReason.DEPENDENCY_INCOMPLETE,
    "a dependency has not completed",
)
RESULT_IS_GOOD: Final = Guard(
    lambda event: event.exit_code == 0 and event.validated and event.reason is ExitReason.EXITED,
    "exit code 0, result validated",
)
RESULT_IS_BAD: Final = Guard(
    lambda event: not RESULT_IS_GOOD.holds(event), "timeout, out of memory, other exit code, or not validated"
)
ARCHIVE_IS_DIGESTED: Final = Guard(
    lambda event: _SHA256.fullmatch(event.archive_sha256) is not None,
    "digest of the archive",
    RefusalReason.ARCHIVE_UNVERIFIED,
    "the archive has no digest: 64 lower-case hex digits",
)

TABLE: Final = (
    Step(Phase.PENDING, ResourceAllocated, (QUOTA_SUFFICES, DEPENDENCIES_COMPLETED), Phase.RUNNING),
    Step(Phase.RUNNING, ExitCodeReported, (RESULT_IS_GOOD,), Phase.SUCCEEDED),
    Step(Phase.RUNNING, ExitCodeReported, (RESULT_IS_BAD,), Phase.FAILED),
    Step(Phase.SUCCEEDED, DataSynced, (ARCHIVE_IS_DIGESTED,), Phase.COMPLETED),
)
"""All steps that there are. At most one of those from a phase on an event has guards that hold."""


def transition(phase: Phase, event: Event) -> Phase:
    """Return the phase that follows `phase` on `event`.

    Raises:
        TransitionRefusedError: the table has no such step, or a guard does not hold.

    """
    steps = [step for step in TABLE if step.start is phase and isinstance(event, step.event)]
    lacking = None
    for step in steps:
        lacking = next((guard for guard in step.guards if not guard.holds(event)), None)
        if lacking is None:
            return step.end
    name = type(event).__name__
    if lacking is None or lacking.reason is None:
        expected = sorted({step.event.__name__ for step in TABLE if step.start is phase})
        problem = f"only {expected[0]} moves it" if expected else "it is final"
        raise TransitionRefusedError(phase, name, RefusalReason.NO_SUCH_STEP, problem)
    raise TransitionRefusedError(phase, name, lacking.reason, lacking.lacking)


def is_final(phase: Phase) -> bool:
    """Return whether nothing moves `phase` any more."""
    return all(step.start is not phase for step in TABLE)
