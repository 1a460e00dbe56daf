"""Which rows share a run, once it is clear whose turn it is."""

from mcp2026.runtime.batching.lanes import KNOWN, Backlog, Lane
from mcp2026.runtime.batching.request import Batch, Part, Request
from mcp2026.runtime.batching.tenants import Level
from mcp2026.runtime.batching.waiting import Waiting

RIDE_ALONG = 1.1
"""A batch may take this much longer for rows of lower levels."""
SURELY = 0.8
"""Share of the predicted time of a run that no run falls short of."""


class Forming:
    """A batch that takes rows out of the queues until it is full."""

    def __init__(
        self, waiting: Waiting, lane: Lane, now: int, limits: tuple[int, int], *, charge: bool
    ) -> None:
        """Take at most so many rows of the first tenant, and so many with those of others; or one request.

        `charge`: let the tenants pay already what their rows will probably run.
        """
        self._waiting = waiting
        self._lane = lane
        self._own_limit, self._limit = limits
        self._now = now
        self._crowded = lane.rows > self._own_limit
        self._late_before = now + lane.predict(lane.max_rows) if lane.cost.samples >= KNOWN else 0.0
        expected = min(lane.rows, self._own_limit)
        self._unit = lane.predict(expected) / expected if charge else 0.0
        self._batch = Batch(lane, [], 0, 0, charged_per_row=self._unit)

    def form(self, seed: Backlog) -> Batch:
        """Return a batch that begins with the head of `seed`; empty if nothing there is worth running."""
        batch, lane, level = self._batch, self._lane, seed.account.level
        if self._fill(seed, self._own_limit) and batch.rows and lane.backlogs:
            while batch.rows < self._limit and (others := self._next_in_turn(level)) is not None:
                if not self._fill(others, self._limit, one=True):
                    break
            else:
                self._ride_along(level)
        batch.run_rows = lane.model.policy.run_rows(batch.rows)
        return batch

    def _next_in_turn(self, level: Level) -> Backlog | None:
        backlogs = [backlog for backlog in self._lane.backlogs.values() if backlog.account.level is level]
        return min(backlogs, key=_turn) if len(backlogs) > 1 else backlogs[0] if backlogs else None

    def _ride_along(self, level: Level) -> None:
        """Take rows of lower levels that cost the others next to nothing."""
        lane, batch = self._lane, self._batch
        free = lane.model.policy.run_rows(batch.rows)
        budget = lane.predict(batch.rows) * RIDE_ALONG
        limit = min(self._limit, max(free, lane.cost.rows_within(budget)) if budget else free)
        lower = [backlog for backlog in lane.backlogs.values() if backlog.account.level.number > level.number]
        for backlog in sorted(lower, key=_level_and_turn):
            if not self._fill(backlog, limit):
                return

    def _fill(self, backlog: Backlog, limit: int, *, one: bool = False) -> bool:
        """Take what fits of `backlog`, or one request; False: its head does not fit, the batch is closed.

        Nothing overtakes a head that does not fit: a large request is never starved by small ones.
        """
        batch, waiting = self._batch, self._waiting
        taken = 0
        fits = True
        if not one:
            for whole in waiting.take_front(backlog, limit - batch.rows, self._late_before):
                batch.parts.append(Part(whole, 0, whole.rows, batch.rows + taken))
                taken += whole.rows
            batch.rows += taken
        while batch.rows < limit and (request := backlog.head()) is not None:
            if request.expires < self._late_before and self._is_late(request):
                waiting.take(backlog, request, request.rows - request.taken)  # its deadline tells it
                continue
            rows = request.rows - request.taken
            room = limit - batch.rows
            if rows > room:
                if request.rows > self._lane.max_rows:
                    rows = room
                elif batch.rows:
                    fits = False
                    break
            batch.parts.append(Part(request, request.taken, rows, batch.rows))
            batch.rows += rows
            taken += rows
            waiting.take(backlog, request, rows)
            if one:
                break
        if taken:
            backlog.account.charge(self._unit * taken, backlog.weight)
            batch.shares.append((backlog.account, backlog.weight, taken))
        return fits

    def _is_late(self, request: Request) -> bool:
        """Return whether running `request` is wasted, because its time will be over before it is answered.

        Where more wait than a run takes, whoever would be late in it gives way to those who would not: else
        all are served a moment too late. Where there is room for all, only a caller's own deadline counts,
        and only if not even a run with nothing else could keep it.
        """
        lane = self._lane
        if request.taken:
            return False
        if self._crowded:
            run_ns = lane.predict(self._own_limit)
        elif request.named:
            run_ns = SURELY * lane.predict(min(request.rows, lane.max_rows))
        else:
            return False
        return self._now + run_ns > request.expires


def urgency(backlog: Backlog) -> tuple[int, int]:
    """Order by deadline, then arrival."""
    head = backlog.head()
    assert head is not None
    return head.deadline, head.number


def _turn(backlog: Backlog) -> tuple[float, tuple[int, int]]:
    return backlog.account.debt, urgency(backlog)


def _level_and_turn(backlog: Backlog) -> tuple[int, float, tuple[int, int]]:
    return backlog.account.level.number, backlog.account.debt, urgency(backlog)
