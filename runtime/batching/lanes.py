"""Lanes: requests that may share a run wait in one, and a lane knows whether it is time to run."""

import msgspec

from mcp2026.runtime.batching.causes import Cause
from mcp2026.runtime.batching.company import SHORTEST_NS, Company
from mcp2026.runtime.batching.cost import CostModel
from mcp2026.runtime.batching.deadline_queue import DeadlineQueue
from mcp2026.runtime.batching.patience import Patience
from mcp2026.runtime.batching.policy import ModelPolicy, next_padded_size
from mcp2026.runtime.batching.request import Batch, Request
from mcp2026.runtime.batching.tenants import Account

Shapes = tuple[tuple[int, ...], ...]

INLINE_NS = 300_000
"""A run that is expected to be shorter is cheaper where it is decided than behind a thread's wake-up."""
TRY_INLINE_NS = 1_000_000
"""The same where nothing is known: the measure of a thread holds its wait for Python's lock, and the first
guess for more rows than ever is that time grows with them. One run inline tells."""
KNOWN = 8
"""Runs from which a prediction is trusted against a caller's deadline."""
WELL_KNOWN = 32
"""Runs after which not every short one is learned from."""
UNKNOWN_SAVING = 0.5
"""Part of a run taken to be fixed while all runs had the same number of rows: callers that take turns, one
at a time, would never be served together else, and nothing would be learned."""


class Model(msgspec.Struct, eq=False):
    """What the versions of one model have in common."""

    name: str
    policy: ModelPolicy
    running: int = 0
    """Batches that run now."""
    ahead: int = 0
    """Batches that were formed ahead and do not run yet."""

    @property
    def free(self) -> bool:
        """Whether one more batch may run."""
        return self.running < self.policy.instances


class Backlog(DeadlineQueue):
    """The requests of one lane, level and tenant that wait, earliest deadline first."""

    __slots__ = ("account", "lane", "rows", "weight")

    def __init__(self, lane: "Lane", account: Account, weight: int) -> None:
        super().__init__()
        self.lane = lane
        self.account = account
        self.weight = weight
        self.rows = 0
        """Rows that wait."""

    def gone(self, request: Request) -> bool:
        """Return whether `request` waits here no more."""
        return request.backlog is not self


class Lane:
    """One version and one shape. Only requests of one lane ever share a run."""

    def __init__(
        self,
        model: Model,
        shapes: Shapes = (),
        *,
        shared: bool = True,
        ahead_worthwhile: bool = True,
    ) -> None:
        """Take requests with inputs of `shapes`, which lack the dimension of rows if `shared`.

        Holds nothing of the version itself, so that it may live as long as the version.
        """
        self.model = model
        self.shapes = shapes
        self.shared = shared
        """False: each request runs alone and counts as one row."""
        self.ahead_worthwhile = ahead_worthwhile
        """Gathering a full batch takes long enough to be worth another thread."""
        self.rows = 0
        """Rows that wait and are in no batch yet."""
        self.backlogs: dict[tuple[int, str], Backlog] = {}
        """By level and tenant; only those in which requests wait."""
        self.cost = CostModel()
        self.company = Company()
        self.patience = Patience()
        self.idle_backlogs: dict[tuple[int, str], Backlog] = {}
        """Empty ones, to be used again."""
        self.row_bytes: int | None = None
        """What the inputs of one row hold; None if that depends on their values."""
        self.max_rows = model.policy.max_rows if shared else 1
        """Most rows of one run."""
        self._padded = model.policy.padded
        self._runs = 0
        self._tried_inline = 0
        """Most rows that ran without a thread."""

    def is_short(self, rows: int) -> bool:
        """Return whether a batch out of `rows` waiting rows is short enough to run without a thread."""
        if not self.cost.samples:
            return False
        if rows > self.max_rows:
            rows = self.max_rows
        return self.predict(rows) <= (INLINE_NS if rows <= self._tried_inline else TRY_INLINE_NS)

    def predict(self, rows: int) -> float:
        """Return the expected run time of `rows` rows in ns, with padding; 0 if nothing is known."""
        cost = self.cost
        return cost.per_row * (next_padded_size(self._padded, rows) if self._padded else rows) + cost.fixed

    def learn(self, batch: Batch, run_ns: int, now: int) -> None:
        """Take in that `batch` has run."""
        if batch.inline and batch.rows > self._tried_inline:
            if not self._tried_inline:
                self.cost = CostModel()
            self._tried_inline = batch.rows
        cost = self.cost
        self._runs += 1
        # Of thousands of short runs in a second a part tells as much as all.
        if not batch.inline or cost.samples < WELL_KNOWN or not self._runs & 7:
            cost.learn(batch.run_rows, run_ns)
        if batch.inline:
            self.company.until = 0  # the event loop's timers are longer than what a wait could save
        elif self.shared and self.max_rows > 1 and cost.per_row + cost.fixed > SHORTEST_NS:
            together = cost.predict(min(self.max_rows, self.rows + batch.rows))
            fixed = cost.fixed if cost.tells_fixed else UNKNOWN_SAVING * together
            self.company.answered(batch.rows, self.rows, together, fixed, now)

    def leaves_at(self, now: int) -> int:
        """Return when a free engine may take what waits here; `now` or before: at once."""
        at = 0
        if self.rows < self.model.policy.min_rows:
            at = min(request.leave_by for backlog in self.backlogs.values() for request in backlog.live())
        if self.patience:
            self.patience.sweep()
            if self.patience:
                return self._leaves_with_patience(at, now)
        return self._leaves_with_company(at, now)

    def cause(self, now: int, *, draining: bool) -> Cause:
        """Return why what waits here leaves now."""
        policy = self.model.policy
        if self.rows >= self.max_rows:
            return Cause.FULL
        if self.patience:
            self.patience.sweep()
        if not self.patience and policy.min_rows == 1:
            return Cause.IDLE
        if draining and self.leaves_at(now) > now:
            return Cause.DRAIN
        if self.rows < policy.min_rows:
            waiting = [request for backlog in self.backlogs.values() for request in backlog.live()]
            first = min(waiting, key=_leave_by)
            return Cause.DEADLINE if first.deadline - first.leave_by < policy.max_delay_ns else Cause.DELAY
        if self.patience:
            at, cause = self.patience.leaves(self.rows, self._run_ns(), now)
            return cause if at <= now else Cause.IDLE
        return Cause.SIZE

    def _leaves_with_patience(self, at: int, now: int) -> int:
        """Return the same as `leaves_at` where some have agreed to wait: after `at` as all others.

        Those that have agreed to nothing leave as if nobody had, and take the others with them.
        """
        agreed = max(at, self.patience.leaves(self.rows, self._run_ns(), now)[0])
        if len(self.patience) == sum(backlog.count for backlog in self.backlogs.values()):
            return agreed
        return min(agreed, self._leaves_with_company(at, now))

    def _run_ns(self) -> float | None:
        """Return what a run of all that waits would take, None if too little is known."""
        return self.predict(self.rows) if self.cost.samples >= KNOWN else None

    def _leaves_with_company(self, at: int, now: int) -> int:
        company = self.company
        if now < company.until and self.rows < min(company.target, self.max_rows):
            at = max(at, company.until) if self._nobody_is_pressed(company.until) else at
        return at

    def _nobody_is_pressed(self, until: int) -> bool:
        latest_start = until + self.predict(self.max_rows)
        heads = (backlog.head() for backlog in self.backlogs.values())
        return all(head is None or head.deadline > latest_start for head in heads)


def _leave_by(request: Request) -> int:
    return request.leave_by
