"""A cluster's life under one policy: jobs come, wait, run and end. Event-driven, on a clock of its own.

One queue for every policy: by priority, then arrival. Who does not fit is passed over until GPUs come free.
Nobody is evicted.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.errors import BenchError
from bench.simulation.fleet import Node
from bench.simulation.jobs import Job
from bench.simulation.policies import Placement, Policy

SIZES = (2, 4, 8)
"""Of requests for which fragmentation is counted."""


@dataclass(frozen=True, slots=True)
class Run:
    """One job's way: where and when it ran."""

    job: Job
    placement: Placement
    started_s: float
    ended_s: float

    @property
    def waited_s(self) -> float:
        """From its arrival to its start."""
        return self.started_s - self.job.arrival_s


@dataclass(slots=True)
class FreeTime:
    """Integrals over the time in which jobs come, in GPU seconds.

    `free` of free GPUs, `held` of the others; `by_number` and `by_links`: of free GPUs that belong to a set
    of each size on one node, any set or one with links as good as the idle node's best.
    """

    free: float = 0.0
    held: float = 0.0
    by_number: dict[int, float] = field(default_factory=lambda: dict.fromkeys(SIZES, 0.0))
    by_links: dict[int, float] = field(default_factory=lambda: dict.fromkeys(SIZES, 0.0))


@dataclass(frozen=True, slots=True)
class History:
    """What became of all jobs, in the order in which they started."""

    runs: tuple[Run, ...]
    time: FreeTime


@dataclass(slots=True)
class _State:
    """The simulator's own account, whatever a policy keeps."""

    fleet: Sequence[Node]
    free: list[int]
    usable: list[tuple[tuple[int, int], ...]]
    """Of each node and each of `SIZES`: free GPUs in sets by number, and by links."""

    @classmethod
    def idle(cls, fleet: Sequence[Node]) -> "_State":
        free = [node.every_gpu for node in fleet]
        return cls(fleet, free, [_usable(node, gpus) for node, gpus in zip(fleet, free, strict=True)])

    def take(self, job: Job, placement: Placement, policy: str) -> None:
        free = self.free[placement.node]
        if placement.gpus & ~free or placement.gpus.bit_count() != job.gpus:
            raise BenchError(
                f"{policy}: {job.name} asks for {job.gpus} GPUs and was given {placement.gpus:b} "
                f"of {self.fleet[placement.node].name}, free: {free:b}"
            )
        self._set(placement.node, free & ~placement.gpus)

    def give_back(self, placement: Placement) -> None:
        self._set(placement.node, self.free[placement.node] | placement.gpus)

    def _set(self, node: int, free: int) -> None:
        self.free[node] = free
        self.usable[node] = _usable(self.fleet[node], free)

    def add_to(self, time: FreeTime, seconds: float) -> None:
        if seconds <= 0:
            return
        free = sum(gpus.bit_count() for gpus in self.free)
        time.free += seconds * free
        time.held += seconds * (sum(map(len, self.fleet)) - free)
        for place, size in enumerate(SIZES):
            time.by_number[size] += seconds * sum(node[place][0] for node in self.usable)
            time.by_links[size] += seconds * sum(node[place][1] for node in self.usable)


def _usable(node: Node, free: int) -> tuple[tuple[int, int], ...]:
    return tuple((size * (free.bit_count() // size), size * node.sets_by_links(free, size)) for size in SIZES)


def live(fleet: Sequence[Node], jobs: Sequence[Job], policy: Policy) -> History:
    """Run all of `jobs`, given by arrival, on `fleet` under `policy`.

    Raises:
        BenchError: the policy gave a GPU twice or another number than asked, or a job fits no idle node.

    """
    largest = max(map(len, fleet))
    for job in jobs:
        if job.gpus > largest:
            raise BenchError(f"{job.name}: gpus: {job.gpus}; allowed: at most {largest}, of one node")
    state, time = _State.idle(fleet), FreeTime()
    waiting: list[Job] = []
    running: list[tuple[float, int, Run]] = []
    runs: list[Run] = []
    last_arrival_s = jobs[-1].arrival_s
    now, coming = jobs[0].arrival_s, 0
    while coming < len(jobs) or running or waiting:
        next_arrival_s = jobs[coming].arrival_s if coming < len(jobs) else float("inf")
        next_end_s = running[0][0] if running else float("inf")
        then = min(next_arrival_s, next_end_s)
        state.add_to(time, min(then, last_arrival_s) - now)
        now = then
        while running and running[0][0] <= now:
            ended = heapq.heappop(running)[2]
            state.give_back(ended.placement)
            policy.ended(ended.job)
        while coming < len(jobs) and jobs[coming].arrival_s <= now:
            waiting.append(jobs[coming])
            coming += 1
        waiting.sort(key=lambda job: -job.priority)
        for started in _start_those_that_fit(waiting, state, policy, now):
            runs.append(started)
            heapq.heappush(running, (started.ended_s, len(runs), started))
            waiting.remove(started.job)
    return History(tuple(runs), time)


def _start_those_that_fit(waiting: Sequence[Job], state: _State, policy: Policy, now: float) -> list[Run]:
    """Start what fits, in the order of `waiting`. What is as large as one that did not fit is not tried."""
    started = []
    too_large = float("inf")
    for job in waiting:
        if job.gpus >= too_large:
            continue
        placement = policy.place(job, state.free)
        if placement is None:
            too_large = job.gpus
            continue
        state.take(job, placement, policy.name)
        node = state.fleet[placement.node]
        ends_s = now + job.runs_for(node.weakest_link(placement.gpus))
        started.append(Run(job, placement, now, ends_s))
    return started
