"""The requests of one lane that wait to run, earliest deadline first."""

from heapq import heapify, heappop, heappush

import msgspec

from mcp2026.runtime.batching.events import Lane

SLACK = 32
"""Entries of departed requests that a heap may hold beyond the live ones before it is rebuilt."""


class Request(msgspec.Struct, eq=False):
    """One request inside the batcher, from arrival until it is answered."""

    request_id: int
    lane: Lane
    rows: int
    size: int
    deadline: int
    leave_by: int
    """An idle engine takes it by then at the latest, with or without company."""
    batch_id: int | None = None
    """None: it still waits."""
    alone: bool = False
    """It was in a batch that failed and runs again by itself."""


class LaneQueue:
    """Waiting requests of one lane. Equal deadlines leave in the order of arrival."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.rows = 0
        self._waiting: dict[int, Request] = {}  # in order of arrival
        self._by_deadline: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: Request) -> None:
        """Let `request` wait here."""
        self._waiting[request.request_id] = request
        self.rows += request.rows
        heappush(self._by_deadline, (request.deadline, request.request_id))

    def remove(self, request: Request) -> None:
        """Forget `request`, which waits here."""
        del self._waiting[request.request_id]
        self.rows -= request.rows
        # Its heap entry stays until it surfaces; many such entries would be a leak, so rebuild.
        if len(self._by_deadline) > 2 * len(self._waiting) + SLACK:
            self._by_deadline = [(waiting.deadline, key) for key, waiting in self._waiting.items()]
            heapify(self._by_deadline)

    def head(self) -> Request:
        """Return the request that leaves next."""
        heap, waiting = self._by_deadline, self._waiting
        while heap[0][1] not in waiting:
            heappop(heap)
        return waiting[heap[0][1]]

    def leave_by(self) -> int:
        """Return the time at which an idle engine stops waiting for more rows of this lane."""
        oldest = next(iter(self._waiting.values()))
        return min(oldest.leave_by, self.head().leave_by)

    def take(self, max_rows: int) -> list[Request]:
        """Remove and return the next batch: heads in order until one does not fit, or one if not shared.

        Nothing overtakes a head that does not fit: a large request is never starved by small ones.
        """
        taken: list[Request] = []
        rows = 0
        while self._waiting:
            head = self.head()
            if taken and rows + head.rows > max_rows:
                break
            heappop(self._by_deadline)
            del self._waiting[head.request_id]
            self.rows -= head.rows
            rows += head.rows
            taken.append(head)
            if not self.lane.shared:
                break
        return taken
