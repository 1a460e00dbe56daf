"""Which phase may follow which, and on what evidence. The only place where a phase changes.

The table is SPEC R2.1: Pending → Running on ResourceAllocated (quota suffices and every dependency has
completed); Running → Succeeded or Failed on ExitCodeReported (Succeeded only for exit code 0 with a
validated result), irreversible; Succeeded → Completed on DataSynced. Everything else is refused.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from mcp2026.api.errors import TransitionRefusedError


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
    """Logs are archived and data is synchronised; `archive_sha256` is the digest of the archive."""

    archive_sha256: str


Event = ResourceAllocated | ExitCodeReported | DataSynced


def _after_allocation(event: Event) -> Phase | str:
    assert isinstance(event, ResourceAllocated)
    if not event.quota_suffices:
        return "the quota does not suffice"
    if not event.dependencies_completed:
        return "a dependency has not completed"
    return Phase.RUNNING


def _after_exit(event: Event) -> Phase | str:
    assert isinstance(event, ExitCodeReported)
    succeeded = event.exit_code == 0 and event.validated and event.reason is ExitReason.EXITED
    return Phase.SUCCEEDED if succeeded else Phase.FAILED


def _after_sync(event: Event) -> Phase | str:
    assert isinstance(event, DataSynced)
    return Phase.COMPLETED if event.archive_sha256 else "the archive has no digest"


TRANSITIONS: dict[tuple[Phase, type[Event]], Callable[[Event], Phase | str]] = {
    (Phase.PENDING, ResourceAllocated): _after_allocation,
    (Phase.RUNNING, ExitCodeReported): _after_exit,
    (Phase.SUCCEEDED, DataSynced): _after_sync,
}
"""(phase, event) → the guard, which gives the next phase or, in words, what it lacks."""


def transition(phase: Phase, event: Event) -> Phase:
    """Return the phase that follows `phase` on `event`.

    Raises:
        TransitionRefusedError: the table has no such step, or its guard does not hold.

    """
    name = type(event).__name__
    guard = TRANSITIONS.get((phase, type(event)))
    if guard is None:
        expected = [step.__name__ for (start, step) in TRANSITIONS if start is phase]
        raise TransitionRefusedError(
            phase, name, f"only {expected[0]} moves it" if expected else "it is final"
        )
    outcome = guard(event)
    if isinstance(outcome, Phase):
        return outcome
    raise TransitionRefusedError(phase, name, outcome)
