"""Which requests run together, and when: one scheduler for all models of a process.

Decisions only: no threads, no sockets, and the time comes in with every call. Whoever is free to execute
asks with `take`, runs the batch, reports it with `ran`, and then either settles it (`finish`) or lets it be
tried again request by request (`retry`). Between `ran` and `finish` requests can still expire or be
cancelled: `settled` of each request has the last word, and it is set exactly once.

* Priority levels are strict; tenants of a level share run time by weight (`tenants`); a tenant's requests
  leave by deadline, then in order of arrival.
* A batch is formed when somebody is free to run it, so it grows as long as nobody is. Only a batch that can
  grow no more may be formed ahead (`form_ahead`), to be assembled early; what runs next is still open then.
* A free engine waits only if the lane says that it pays, or that all callers have agreed to it
  (`lanes.Lane.leaves_at`).
* A deadline counts from arrival to answer. It is kept by `expire`, not by the next batch.
"""

from collections import deque
from collections.abc import Iterator

from mcp2026.runtime.batching.causes import Cause
from mcp2026.runtime.batching.deadline_queue import ExpiryQueue
from mcp2026.runtime.batching.forming import Forming, urgency
from mcp2026.runtime.batching.lanes import Backlog, Lane
from mcp2026.runtime.batching.policy import ProcessLimits
from mcp2026.runtime.batching.request import Batch, Part, Request
from mcp2026.runtime.batching.tenants import Account, Level
from mcp2026.runtime.batching.waiting import Waiting

LATE = 1_000
"""Added to the level of a request that is served although its time is over: after all that are in time."""
COMPETING_NS = 10_000_000_000
"""A tenant that asked for something this recently bounds the batches of the others."""
SHORTEST_BOUND_NS = 1_000_000.0
"""Batches shorter than this disturb nobody."""
SAME_TURN_NS = 1_000.0
"""Debts that differ by less are equal: then the deadline decides between tenants too."""
MUCH_LONGER = 1.1
BOUND_SHARE = 0.8
"""Of another tenant's run time by itself, for the batches of one that runs much longer."""


class Scheduler:
    """All requests of a process that are not settled. Used by one thread at a time."""

    def __init__(self, limits: ProcessLimits) -> None:
        self._waiting = Waiting(limits)
        self._expiry = ExpiryQueue()
        self._retries: deque[Batch] = deque()
        self._formed = 0
        self._arrivals = 0
        self._draining = False
        self.look_again_at: int | None = None
        """After a `take` that found nothing: when the next one may, though nothing happens meanwhile."""
        self.ahead_wanted = False
        """`form_ahead` may find something."""

    # --- requests

    def add(self, request: Request, now: int) -> bool:
        """Take in `request`; False: the queue is full, and the request settled."""
        waiting = self._waiting
        if not waiting.has_room(request):
            request.settled = True
            return False
        self._arrivals += 1
        request.number = self._arrivals
        lane = request.lane
        delay = lane.model.policy.max_delay_ns
        if delay:
            request.leave_by = min(now + delay, now + (request.deadline - now) // 2)
        if request.enough_rows:
            lane.patience.add(request, now)
        if now <= lane.company.until:
            lane.company.arrived(request.rows)
        self._expiry.push(request)
        waiting.add(request, now)
        if lane.ahead_worthwhile and lane.rows >= lane.max_rows:
            self.ahead_wanted = True
        return True

    def add_all(self, requests: list[Request], now: int) -> list[Request]:
        """Take in `requests`, but for those that are settled; return those for which the queue is full."""
        return [request for request in requests if not request.settled and not self.add(request, now)]

    def settle(self, request: Request) -> bool:
        """Say nothing more to `request`: it is told now, or has gone. False: that was so already."""
        if request.settled:
            return False
        request.settled = True
        self._expiry.left()
        if request.backlog is not None:
            self._waiting.withdraw(request)
        return True

    def expire(self, now: int) -> list[Request]:
        """Settle and return all requests whose time is over, whether they wait or run."""
        over = []
        while (request := self._expiry.head()) is not None and request.deadline <= now:
            if request.expires <= now:
                self.settle(request)
                over.append(request)
            else:
                self._postpone(request, now)
        return over

    def _postpone(self, request: Request, now: int) -> None:
        """Let `request`, which is late but may be, wait behind all that are in time."""
        self._expiry.drop_head()
        waits = request.backlog is not None
        if waits:
            self._waiting.withdraw(request)
        request.deadline = request.expires
        request.level += LATE
        self._expiry.push(request)
        if waits:
            self._waiting.add(request, now)

    @property
    def next_expiry(self) -> int | None:
        """When `expire` may have something to do next."""
        request = self._expiry.head()
        return None if request is None else request.deadline

    @property
    def unsettled(self) -> int:
        """Requests that wait or run."""
        return self._expiry.count

    @property
    def queued_rows(self) -> int:
        """Rows that wait and are in no batch yet."""
        return self._waiting.rows

    def all_unsettled(self) -> list[Request]:
        """Return all requests that wait or run."""
        return self._expiry.live()

    def drain(self) -> None:
        """Let no batch wait for company any more. Arrivals are still taken in."""
        self._draining = True

    # --- batches

    def take(self, now: int, *, inline: bool = False) -> Batch | None:
        """Return what to run now; with `inline` only what is short enough to need no thread.

        The batch counts as running until `ran`.
        """
        self.look_again_at = None
        if not (self._waiting.lanes or self._formed or self._retries):
            return None
        if self._retries and (again := self._next_retry(inline=inline)) is not None:
            return self._start(again, inline=inline)
        ready = [lane for lane in self._waiting.lanes if self._is_ready(lane, now, inline=inline)]
        if not ready and (inline or not self._formed):
            return None
        for level in self._waiting.levels.values():
            while level.waiting and (chosen := self._most_urgent(level, ready, inline=inline)) is not None:
                account, work = chosen
                level.serves(account)
                if isinstance(work, Backlog):
                    cause = work.lane.cause(now, draining=self._draining)
                    batch = self._form(work, now)
                    batch.cause = cause
                    worthwhile = batch.rows > 0
                else:
                    batch = self._unform(account, work)
                    worthwhile = batch.wanted
                if worthwhile:
                    return self._start(batch, inline=inline)
        return None

    def has_work(self, *, inline: bool) -> bool:
        """Return whether it is worth calling `take`."""
        if not (self._waiting.lanes or self._formed or self._retries):
            return False
        for lane in self._waiting.lanes:
            if lane.model.free and lane.is_short(lane.rows) == inline:
                return True
        if self._formed and not inline:
            return True
        return any(
            batch.lane.model.free and batch.lane.is_short(batch.rows) == inline for batch in self._retries
        )

    def form_ahead(self, now: int) -> Batch | None:
        """Return a full batch that will run later, so that its inputs can be assembled meanwhile."""
        for lane in self._waiting.lanes:
            if self._fills_a_batch_ahead(lane, now):
                (backlog,) = lane.backlogs.values()
                account = backlog.account
                batch = self._form(backlog, now, ahead=True)
                batch.cause = Cause.FULL
                lane.model.ahead += 1
                self._formed += 1
                account.formed.append(batch)
                account.level.joins(account)
                return batch
        self.ahead_wanted = False
        return None

    def ran(self, batch: Batch, run_ns: int, now: int, *, failed: bool = False) -> None:
        """`batch` has run for `run_ns`: its place is free for the next one, and its tenants pay."""
        batch.lane.model.running -= 1
        correction = run_ns / batch.rows - batch.charged_per_row
        for account, weight, rows in batch.shares:
            account.charge(correction * rows, weight)
        if not failed:
            batch.lane.learn(batch, run_ns, now)

    def finish(self, batch: Batch) -> list[Part]:
        """Return the parts of `batch` that somebody waits for; requests that are complete now are settled."""
        parts = []
        complete = 0
        for part in batch.parts:
            request = part.request
            if not request.settled:
                request.done += part.rows
                if request.done == request.rows:
                    request.settled = True
                    complete += 1
                parts.append(part)
        self._expiry.left(complete)
        return parts

    def retry(self, batch: Batch) -> Request | None:
        """`batch` failed: run its requests again one by one. One that ran alone is settled and returned."""
        if len(batch.parts) == 1:
            request = batch.parts[0].request
            return request if self.settle(request) else None
        for part in batch.parts:
            if not part.request.settled:
                self._retries.append(self._alone(part, batch))
        return None

    # --- what runs next

    def _fills_a_batch_ahead(self, lane: Lane, now: int) -> bool:
        """Return whether a batch of `lane` could grow no more, has to wait, and will be in time even so."""
        model = lane.model
        if not lane.ahead_worthwhile or lane.rows < lane.max_rows or len(lane.backlogs) > 1:
            return False
        if model.free or model.ahead >= model.policy.ahead:
            return False
        (backlog,) = lane.backlogs.values()
        head = backlog.head()
        assert head is not None
        return head.expires > now + (model.ahead + 2) * lane.predict(lane.max_rows)

    def _is_ready(self, lane: Lane, now: int, *, inline: bool) -> bool:
        if not lane.model.free or lane.is_short(lane.rows) != inline:
            return False
        if lane.rows >= lane.max_rows:
            return True
        at = 0 if self._draining else lane.leaves_at(now)
        if at <= now:
            return True
        if self.look_again_at is None or at < self.look_again_at:
            self.look_again_at = at
        return False

    def _most_urgent(
        self, level: Level, ready: list[Lane], *, inline: bool
    ) -> tuple[Account, Backlog | Batch] | None:
        """Return whose turn it is, and with what: the least debt, and of its work the earliest deadline."""
        in_turn = level.in_turn()
        if len(in_turn) == 1 and len(ready) == 1 and not in_turn[0].formed:
            backlog = in_turn[0].backlogs.get(ready[0])
            return None if backlog is None else (in_turn[0], backlog)
        best: tuple[Account, Backlog | Batch] | None = None
        best_urgency = (0, 0)
        same_turn = in_turn[0].debt + SAME_TURN_NS
        for account in in_turn:
            if best is not None and account.debt > same_turn:
                break
            for work, how_urgent in _work(account, ready, inline=inline):
                if best is None or how_urgent < best_urgency:
                    best, best_urgency = (account, work), how_urgent
        return best

    def _form(self, seed: Backlog, now: int, *, ahead: bool = False) -> Batch:
        limits = self._row_limits(seed, now)
        return Forming(self._waiting, seed.lane, now, limits, charge=not ahead).form(seed)

    def _row_limits(self, seed: Backlog, now: int) -> tuple[int, int]:
        """Return how many rows a batch may have of the tenant of `seed`, and with those of others.

        A run cannot be interrupted. So with several tenants about, one that would run longer than another
        does by itself is cut to less than that, and nobody's batch is filled up to more than its own.
        """
        lane, own = seed.lane, seed.account
        levels = self._waiting.levels
        if len(levels) == 1 and len(own.level.accounts) == 1:
            return lane.max_rows, lane.max_rows
        own.would_run(lane.predict(min(seed.rows, lane.max_rows)))
        shortest = 0.0
        for level in levels.values():
            for account in level.accounts.values():
                run_ns = account.own_run_ns
                if account.tenant != own.tenant and run_ns and now - account.last_seen < COMPETING_NS:
                    shortest = min(shortest or run_ns, run_ns)
        if not shortest:
            return lane.max_rows, lane.max_rows
        shared = min(shortest, own.own_run_ns)
        if own.own_run_ns > MUCH_LONGER * shortest:
            shortest *= BOUND_SHARE
        return _rows_within(lane, shortest), _rows_within(lane, shared)

    def _unform(self, account: Account, batch: Batch) -> Batch:
        account.formed.remove(batch)
        account.level.leaves(account)
        batch.lane.model.ahead -= 1
        self._formed -= 1
        self.ahead_wanted = True
        if batch.wanted:
            batch.charged_per_row = batch.lane.predict(batch.rows) / batch.rows
            for charged, weight, rows in batch.shares:
                charged.charge(batch.charged_per_row * rows, weight)
        return batch

    def _alone(self, part: Part, failed: Batch) -> Batch:
        request, lane = part.request, failed.lane
        account = self._waiting.level(request.level).account(request.tenant)
        share = (account, lane.model.policy.weight(request.tenant), part.rows)
        alone = Part(request, part.first, part.rows, 0)
        return Batch(lane, [alone], part.rows, lane.model.policy.run_rows(part.rows), [share], failed.cause)

    def _next_retry(self, *, inline: bool) -> Batch | None:
        for _ in range(len(self._retries)):
            batch = self._retries.popleft()
            if not batch.wanted:
                continue
            if batch.lane.model.free and batch.lane.is_short(batch.rows) == inline:
                return batch
            self._retries.append(batch)
        return None

    def _start(self, batch: Batch, *, inline: bool) -> Batch:
        batch.inline = inline
        batch.lane.model.running += 1
        return batch


def _rows_within(lane: Lane, run_ns: float) -> int:
    return max(1, min(lane.max_rows, lane.cost.rows_within(max(run_ns, SHORTEST_BOUND_NS))))


def _work(
    account: Account, ready: list[Lane], *, inline: bool
) -> Iterator[tuple[Backlog | Batch, tuple[int, int]]]:
    """What of an account may run, and how urgent each is."""
    for lane in ready:
        backlog = account.backlogs.get(lane)
        if backlog is not None:
            yield backlog, urgency(backlog)
    for batch in () if inline else account.formed:
        if batch.lane.model.free:
            head = batch.parts[0].request
            yield batch, (head.deadline, head.number)
