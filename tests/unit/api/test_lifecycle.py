"""Every phase meets every event with every evidence: the table of SPEC R2.1 and nothing beside it."""

import itertools

import pytest

from mcp2026.api.errors import TransitionRefusedError
from mcp2026.api.lifecycle import (
    TABLE,
    DataSynced,
    Event,
    ExitCodeReported,
    ExitReason,
    Phase,
    RefusalReason,
    ResourceAllocated,
    is_final,
    transition,
)

DIGEST = "0123456789abcdef" * 4
EVENTS: list[Event] = [
    *(ResourceAllocated(quota, done) for quota, done in itertools.product([True, False], repeat=2)),
    *(
        ExitCodeReported(code, validated, reason)
        for code, validated, reason in itertools.product([0, 1, 137, -9, 255], [True, False], ExitReason)
    ),
    *(
        DataSynced(digest)
        for digest in [DIGEST, "", DIGEST[:-1], DIGEST.upper(), DIGEST + "\n", "sha256:" + DIGEST]
    ),
]


def by_the_specification(phase: Phase, event: Event) -> Phase | RefusalReason:
    """SPEC R2.1 in plain words of Python, written apart from the table."""
    match phase, event:
        case Phase.PENDING, ResourceAllocated(quota, done):
            if not quota:
                return RefusalReason.QUOTA_EXCEEDED
            return Phase.RUNNING if done else RefusalReason.DEPENDENCY_INCOMPLETE
        case Phase.RUNNING, ExitCodeReported(0, True, ExitReason.EXITED):
            return Phase.SUCCEEDED
        case Phase.RUNNING, ExitCodeReported():
            return Phase.FAILED
        case Phase.SUCCEEDED, DataSynced(digest):
            return Phase.COMPLETED if digest == DIGEST else RefusalReason.ARCHIVE_UNVERIFIED
    return RefusalReason.NO_SUCH_STEP


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("event", EVENTS, ids=repr)
def test_each_phase_answers_each_event_as_the_specification_says(phase: Phase, event: Event) -> None:
    expected = by_the_specification(phase, event)
    if isinstance(expected, Phase):
        assert transition(phase, event) is expected
        return
    with pytest.raises(TransitionRefusedError) as refused:
        transition(phase, event)
    assert (refused.value.phase, refused.value.event) == (phase, type(event).__name__)
    assert refused.value.reason is expected


@pytest.mark.parametrize(("phase", "event"), list(itertools.product(Phase, EVENTS)), ids=repr)
def test_no_evidence_fits_two_steps(phase: Phase, event: Event) -> None:
    fitting = [
        step
        for step in TABLE
        if step.start is phase and isinstance(event, step.event) and all(g.holds(event) for g in step.guards)
    ]
    assert len(fitting) <= 1


def test_each_step_of_the_table_is_taken_by_some_event() -> None:
    taken = set()
    for phase, event in itertools.product(Phase, EVENTS):
        expected = by_the_specification(phase, event)
        if isinstance(expected, Phase):
            taken.add((phase, type(event), expected))
    assert taken == {(step.start, step.event, step.end) for step in TABLE}


def test_failed_and_completed_are_final_and_say_so() -> None:
    assert {phase for phase in Phase if is_final(phase)} == {Phase.FAILED, Phase.COMPLETED}
    with pytest.raises(TransitionRefusedError, match="it is final"):
        transition(Phase.FAILED, ResourceAllocated(True, True))


@pytest.mark.parametrize(
    ("phase", "event", "words"),
    [
        (Phase.PENDING, ResourceAllocated(False, True), "the quota does not suffice"),
        (Phase.PENDING, ResourceAllocated(True, False), "a dependency has not completed"),
        (Phase.SUCCEEDED, DataSynced(""), "64 lower-case hex digits"),
        (Phase.RUNNING, DataSynced(DIGEST), "only ExitCodeReported moves it"),
    ],
)
def test_a_refusal_says_what_lacks(phase: Phase, event: Event, words: str) -> None:
    with pytest.raises(TransitionRefusedError, match=words):
        transition(phase, event)
