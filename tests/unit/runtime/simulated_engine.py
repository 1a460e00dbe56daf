"""Engines with a simulated clock around the real scheduler: tests say what arrives when."""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Any

from mcp2026.api.serving import (
    Batching,
    Execution,
    Priorities,
    QueuePolicy,
    ServedVersion,
    ServingConfig,
    Tenant,
)
from mcp2026.runtime.batching.lanes import Lane, Model
from mcp2026.runtime.batching.policy import ModelPolicy, ProcessLimits
from mcp2026.runtime.batching.request import Batch, Request
from mcp2026.runtime.batching.scheduler import Scheduler

MS = 1_000_000
SECOND = 1_000 * MS
FAR = 10**18
VERSIONS = (ServedVersion("1", "/m.onnx"),)

RunTime = Callable[[Batch], int]


def config(
    max_rows: int = 8,
    min_rows: int = 1,
    delay_ms: int = 0,
    ahead: int = 2,
    queue: QueuePolicy = QueuePolicy(),  # noqa: B008 (frozen)
    priorities: Priorities = Priorities(),  # noqa: B008
    tenants: dict[str, int] | None = None,
    padded: tuple[int, ...] = (),
    instances: int = 1,
    name: str = "m",
) -> ServingConfig:
    return ServingConfig(
        name,
        VERSIONS,
        Batching(max_delay_ms=delay_ms, min_batch_size=min_rows, prefetch_queue_depth=ahead),
        queue,
        priorities,
        tuple(Tenant(tenant, weight) for tenant, weight in (tenants or {}).items()),
        Execution(instances, padded, max_rows),
    )


def linear(per_row: float, fixed: float) -> RunTime:
    """Run times of a·n + b, in ms."""
    return lambda batch: int((per_row * batch.run_rows + fixed) * MS)


class SimulatedEngine:
    """Executors that ask the scheduler for work; the clock moves only when a test says so."""

    def __init__(
        self,
        chosen: ServingConfig | None = None,
        *,
        run_ns: int | RunTime = 10 * MS,
        threads: int = 1,
        failing: frozenset[int] = frozenset(),
        queued_rows: int = 1_000,
        queued_bytes: int = 1_000_000,
        now: int = 0,
    ) -> None:
        self.now = now
        self.failing = failing
        """Requests whose presence makes an execution fail."""
        self.scheduler = Scheduler(ProcessLimits(queued_rows, queued_bytes))
        self.model = self.serve(chosen or config())
        self.lane = Lane(self.model)
        self.outcomes: dict[int, list[str]] = {}
        self.finished_at: dict[int, int] = {}
        self.arrived_at: dict[int, int] = {}
        self.batches: list[Batch] = []
        self.started_at: list[int] = []
        self.run_time: dict[str, int] = {}
        """Measured execution time by tenant, shared by rows."""
        self.formed: list[Batch] = []
        self.requests: dict[int, Request] = {}
        self.when_settled: Callable[[int, str], None] = lambda _number, _outcome: None
        self._run_ns: RunTime = run_ns if callable(run_ns) else lambda _batch: run_ns
        self._threads = threads
        self.busy = 0
        self.look_again_at: int | None = None
        self._alarms: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()

    def serve(self, chosen: ServingConfig) -> Model:
        return Model(chosen.model, ModelPolicy(chosen))

    def request(
        self,
        number: int,
        rows: int = 1,
        lane: Lane | None = None,
        deadline: int = FAR,
        size: int = 1,
        priority: int = 0,
        tenant: str = "",
        *,
        named: bool = False,
        expires: int | None = None,
        enough_rows: int = 0,
        patience: int = 0,
    ) -> Request:
        lane = lane or self.lane
        level, queue, account = lane.model.policy.place(priority, tenant)
        request = Request(
            lane,
            queue,
            level,
            account,
            rows,
            size,
            deadline,
            deadline if expires is None else expires,
            number,
            named=named,
            enough_rows=enough_rows,
            patience_ns=patience,
        )
        self.requests[number] = request
        self.arrived_at[number] = self.now
        return request

    def arrive(self, number: int, *arguments: Any, **keywords: Any) -> None:
        """Let one request arrive, alone in its round of the loop; arguments as of `request`."""
        self.arrive_together(self.request(number, *arguments, **keywords))

    def arrive_together(self, *requests: Request) -> None:
        for request in requests:
            if not self.scheduler.add(request, self.now):
                self._settle(request, "refused")
        self.pump()

    def cancel(self, number: int) -> None:
        if number in self.requests:
            self.scheduler.settle(self.requests[number])
        self.pump()

    def drain(self) -> None:
        self.scheduler.drain()
        self.pump()

    def at(self, when: int, action: Callable[[], None]) -> None:
        """Do something at a time to come."""
        heappush(self._alarms, (when, next(self._order), action))

    def pump(self) -> None:
        """Do what the surroundings of the scheduler do after each event."""
        for request in self.scheduler.expire(self.now):
            self._settle(request, "expired")
        while self.busy < self._threads and (batch := self._take()) is not None:
            self._start(batch)
        while self.scheduler.ahead_wanted and (ahead := self.scheduler.form_ahead(self.now)) is not None:
            self.formed.append(ahead)

    def advance(self, until: int) -> None:
        """Let time pass up to `until`; timers and finished executions happen on the way."""
        while True:
            look_again_at = self.look_again_at if self.busy < self._threads else None
            due = [at for at in (self.scheduler.next_expiry, look_again_at) if at is not None]
            if self._alarms:
                due.append(self._alarms[0][0])
            if not due or min(due) > until:
                self.now = max(self.now, until)
                return
            self.now = max(self.now, min(due))
            if self._alarms and self._alarms[0][0] <= self.now:
                heappop(self._alarms)[2]()
            self.pump()

    def finish(self) -> None:
        """Let everything that is under way come to its end."""
        self.advance(self.now + 10**16)

    def rows_of_batches(self) -> list[int]:
        return [batch.rows for batch in self.batches]

    def order(self) -> list[int]:
        return [part.request.call for batch in self.batches for part in batch.parts]

    def latencies(self, numbers: Sequence[int]) -> list[int]:
        """Times from arrival to answer, sorted."""
        return sorted(self.finished_at[number] - self.arrived_at[number] for number in numbers)

    def _take(self) -> Batch | None:
        self.look_again_at = None
        for inline in (False, True):  # short and long runs alike use a simulated thread
            batch = self.scheduler.take(self.now, inline=inline)
            if batch is not None:
                return batch
            at = self.scheduler.look_again_at
            if at is not None and (self.look_again_at is None or at < self.look_again_at):
                self.look_again_at = at
        return None

    def _start(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.started_at.append(self.now)
        self.busy += 1
        run_ns = self._run_ns(batch)
        self.at(self.now + run_ns, lambda: self._finished(batch, run_ns))

    def _finished(self, batch: Batch, run_ns: int) -> None:
        self.busy -= 1
        failed = any(part.request.call in self.failing for part in batch.parts)
        self.scheduler.ran(batch, run_ns, self.now, failed=failed)
        for part in batch.parts:
            tenant = part.request.tenant
            self.run_time[tenant] = self.run_time.get(tenant, 0) + run_ns * part.rows // batch.rows
        if failed:
            request = self.scheduler.retry(batch)
            if request is not None:
                self._settle(request, "failed")
            return
        for part in self.scheduler.finish(batch):
            if part.request.done == part.request.rows:
                self._settle(part.request, "answered")

    def _settle(self, request: Request, outcome: str) -> None:
        self.outcomes.setdefault(request.call, []).append(outcome)
        self.finished_at[request.call] = self.now
        self.when_settled(request.call, outcome)
