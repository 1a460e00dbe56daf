"""A life with crashes and replays: an operator that reads, decides, and may die before or after it writes."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mcp2026.api.inference_model import InferenceModelStatus
from mcp2026.api.lifecycle import (
    TABLE,
    DataSynced,
    Event,
    ExitCodeReported,
    ExitReason,
    Phase,
    ResourceAllocated,
    is_final,
)
from mcp2026.operator.progress import advance

EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(ResourceAllocated, st.booleans(), st.booleans()),
    st.builds(ExitCodeReported, st.sampled_from([0, 1, 137]), st.booleans(), st.sampled_from(ExitReason)),
    st.builds(DataSynced, st.sampled_from(["ab" * 32, ""])),
)
EDGES = {(step.start, step.event.__name__, step.end) for step in TABLE}


@dataclass
class Stored:
    """The resource in the API server: a write with an old version is refused."""

    status: InferenceModelStatus
    version: int = 0

    def write(self, status: InferenceModelStatus, read_at: int) -> bool:
        if read_at != self.version:
            return False
        if status != self.status:
            self.status, self.version = status, self.version + 1
        return True


class Life(RuleBasedStateMachine):
    """Two operators for one model, as around a restart: each may act on what it read long ago."""

    def __init__(self) -> None:
        super().__init__()
        self.stored = Stored(InferenceModelStatus())
        self.read: dict[int, tuple[InferenceModelStatus, int]] = {}
        self.seen: list[Event] = []
        self.phases = [Phase.PENDING]
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def _act(self, operator: int, event: Event) -> None:
        status, version = self.read.get(operator, (self.stored.status, self.stored.version))
        self.now += timedelta(seconds=1)
        if self.stored.write(advance(status, event, self.now), version):
            self.phases.append(self.stored.status.phase)
        self.read.pop(operator, None)

    @rule(operator=st.integers(0, 1))
    def reads(self, operator: int) -> None:
        self.read[operator] = (self.stored.status, self.stored.version)

    @rule(operator=st.integers(0, 1), event=EVENTS)
    def observes_and_writes(self, operator: int, event: Event) -> None:
        self.seen.append(event)
        self._act(operator, event)

    @rule(operator=st.integers(0, 1), event=EVENTS)
    def observes_and_dies_before_it_writes(self, operator: int, event: Event) -> None:
        self.seen.append(event)
        self.read.pop(operator, None)

    @precondition(lambda self: self.seen)
    @rule(operator=st.integers(0, 1), data=st.data())
    def replays(self, operator: int, data: st.DataObject) -> None:
        self._act(operator, data.draw(st.sampled_from(self.seen)))

    @rule(operator=st.integers(0, 1))
    def replays_all(self, operator: int) -> None:
        for event in self.seen:
            self._act(operator, event)

    @invariant()
    def the_phase_is_the_end_of_an_unbroken_way_from_pending(self) -> None:
        at = Phase.PENDING
        for step in self.stored.status.transitions:
            assert step.from_ == at
            assert (step.from_, step.event, step.to) in EDGES
            at = Phase(step.to)
        assert self.stored.status.phase == at

    @invariant()
    def no_step_happens_twice(self) -> None:
        steps = [(step.from_, step.to) for step in self.stored.status.transitions]
        assert len(set(steps)) == len(steps)

    @invariant()
    def what_is_final_stays(self) -> None:
        for before, after in zip(self.phases, self.phases[1:], strict=False):
            assert before == after or not is_final(before)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
