"""An engine with a simulated clock around the real batcher: tests say what arrives when."""

from dataclasses import dataclass, field

from mcp2026.runtime.batching import (
    Answer,
    Batcher,
    BatchFailed,
    BatchFinished,
    Event,
    Expire,
    Fail,
    Lane,
    Limits,
    Refuse,
    RequestArrived,
    RequestCancelled,
    RunBatch,
    SetTimer,
    TimerFired,
)

MS = 1_000_000
LANE = Lane("1", ((4,),))
FAR = 10**18


def limits(
    max_rows: int = 8,
    min_rows: int = 1,
    delay_ms: int = 0,
    ahead: int = 2,
    queued_rows: int = 1_000,
    queued_bytes: int = 1_000_000,
) -> Limits:
    return Limits(max_rows, min_rows, delay_ms * MS, ahead, queued_rows, queued_bytes)


@dataclass
class SimulatedEngine:
    """Executes batches one after another, each for `run_ns`; the clock moves only when a test says so."""

    limits: Limits
    run_ns: int = 10 * MS
    failing: frozenset[int] = frozenset()
    """Requests whose presence makes an execution fail."""
    now: int = 0
    outcomes: dict[int, list[str]] = field(default_factory=dict)
    batches: list[RunBatch] = field(default_factory=list)
    finished_at: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.batcher = Batcher(self.limits)
        self._waiting: list[RunBatch] = []
        self._running: tuple[int, RunBatch] | None = None
        self._timer: int | None = None

    def arrive(
        self, request_id: int, rows: int = 1, lane: Lane = LANE, deadline: int = FAR, size: int = 1
    ) -> None:
        self.give(RequestArrived(request_id, lane, rows, size, deadline))

    def cancel(self, request_id: int) -> None:
        self.give(RequestCancelled(request_id))

    def give(self, *events: Event) -> None:
        for instruction in self.batcher.handle(*events, now=self.now):
            match instruction:
                case RunBatch():
                    self.batches.append(instruction)
                    self._waiting.append(instruction)
                case Answer(_, members):
                    for member in members:
                        self._settle(member.request_id, "answered")
                case Fail(request_id, _):
                    self._settle(request_id, "failed")
                case Expire(request_id):
                    self._settle(request_id, "expired")
                case Refuse(request_id):
                    self._settle(request_id, "refused")
                case SetTimer(at):
                    self._timer = at
        self._start_next()

    def advance(self, until: int) -> None:
        """Let time pass up to `until`; timers and finished executions happen on the way."""
        while True:
            due = [at for at in (self._timer, self._running and self._running[0]) if at is not None]
            if not due or min(due) > until:
                self.now = max(self.now, until)
                return
            self.now = max(self.now, min(due))
            if self._running is not None and self._running[0] <= self.now:
                batch = self._running[1]
                self._running = None
                bad = any(member.request_id in self.failing for member in batch.members)
                self.give(BatchFailed(batch.batch_id) if bad else BatchFinished(batch.batch_id))
            else:
                self._timer = None
                self.give(TimerFired())

    def finish(self) -> None:
        """Let everything that is under way come to its end."""
        self.advance(self.now + 10**16)

    def rows_of_batches(self) -> list[int]:
        return [batch.rows for batch in self.batches]

    def order(self) -> list[int]:
        return [member.request_id for batch in self.batches for member in batch.members]

    def _settle(self, request_id: int, outcome: str) -> None:
        self.outcomes.setdefault(request_id, []).append(outcome)
        self.finished_at[request_id] = self.now

    def _start_next(self) -> None:
        if self._running is None and self._waiting:
            self._running = (self.now + self.run_ns, self._waiting.pop(0))
