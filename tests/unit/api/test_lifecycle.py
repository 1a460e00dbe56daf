"""Every phase meets every event: the table of SPEC R2.1 and nothing beside it."""

import itertools

import pytest

from mcp2026.api.errors import TransitionRefusedError
from mcp2026.api.lifecycle import (
    TRANSITIONS,
    DataSynced,
    Event,
    ExitCodeReported,
    ExitReason,
    Phase,
    ResourceAllocated,
    transition,
)

ALLOCATED = ResourceAllocated(quota_suffices=True, dependencies_completed=True)
SUCCESS = ExitCodeReported(exit_code=0, validated=True)
SYNCED = DataSynced(archive_sha256="ab" * 32)

STEPS: list[tuple[str, Phase, Event, Phase]] = [
    ("pods are bound", Phase.PENDING, ALLOCATED, Phase.RUNNING),
    ("exit 0 with a validated result", Phase.RUNNING, SUCCESS, Phase.SUCCEEDED),
    ("exit 0, result not validated", Phase.RUNNING, ExitCodeReported(0, validated=False), Phase.FAILED),
    ("exit 1", Phase.RUNNING, ExitCodeReported(1, validated=True), Phase.FAILED),
    ("timeout with exit 0", Phase.RUNNING, ExitCodeReported(0, True, ExitReason.TIMEOUT), Phase.FAILED),
    ("out of memory", Phase.RUNNING, ExitCodeReported(137, False, ExitReason.OUT_OF_MEMORY), Phase.FAILED),
    ("data is archived", Phase.SUCCEEDED, SYNCED, Phase.COMPLETED),
]


@pytest.mark.parametrize(("start", "event", "end"), [row[1:] for row in STEPS], ids=[row[0] for row in STEPS])
def test_the_events_of_the_table_move_the_phase(start: Phase, event: Event, end: Phase) -> None:
    assert transition(start, event) is end


REFUSED = [
    (phase, event)
    for phase, event in itertools.product(Phase, (ALLOCATED, SUCCESS, SYNCED))
    if (phase, type(event)) not in {(start, type(event)) for _, start, event, _ in STEPS}
]


@pytest.mark.parametrize(
    ("phase", "event"), REFUSED, ids=lambda value: getattr(value, "value", type(value).__name__)
)
def test_every_other_step_is_refused(phase: Phase, event: Event) -> None:
    with pytest.raises(TransitionRefusedError) as refused:
        transition(phase, event)
    assert refused.value.phase == phase
    assert refused.value.event == type(event).__name__


def test_all_phases_and_events_are_covered_by_these_tables() -> None:
    assert len(REFUSED) == len(Phase) * 3 - len(TRANSITIONS)


GUARDS: list[tuple[str, Phase, Event, str]] = [
    ("no quota", Phase.PENDING, ResourceAllocated(False, True), "quota"),
    ("a dependency runs still", Phase.PENDING, ResourceAllocated(True, False), "dependency"),
    ("an archive without digest", Phase.SUCCEEDED, DataSynced(""), "digest"),
]


@pytest.mark.parametrize(
    ("phase", "event", "word"), [row[1:] for row in GUARDS], ids=[row[0] for row in GUARDS]
)
def test_a_guard_that_does_not_hold_refuses_and_says_what_lacks(
    phase: Phase, event: Event, word: str
) -> None:
    with pytest.raises(TransitionRefusedError, match=word):
        transition(phase, event)


@pytest.mark.parametrize("phase", [Phase.FAILED, Phase.COMPLETED])
def test_final_phases_say_that_they_are_final(phase: Phase) -> None:
    with pytest.raises(TransitionRefusedError, match="it is final"):
        transition(phase, SUCCESS)
