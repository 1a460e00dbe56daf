"""Requests by deadline, then arrival; made for deadlines that mostly grow."""

from collections import deque
from heapq import heapify, heappop, heappush

from mcp2026.runtime.batching.request import Request

SLACK = 32
"""Entries of departed requests that may lie here beyond the live ones before they are swept."""


class DeadlineQueue:
    """Requests that left otherwise are passed over, and swept when they are many.

    A request whose deadline is not before that of the last in line joins the line; only others need a heap.
    """

    __slots__ = ("_line", "_others", "count")

    def __init__(self) -> None:
        self._line: deque[Request] = deque()
        self._others: list[tuple[int, int, Request]] = []
        self.count = 0
        """Requests that are here; kept right by whoever knows when one leaves."""

    def gone(self, request: Request) -> bool:
        """Return whether `request` has left this queue."""
        raise NotImplementedError

    def push(self, request: Request) -> None:
        """Let `request` wait here."""
        line = self._line
        if not line or request.deadline >= line[-1].deadline:
            line.append(request)
        else:
            heappush(self._others, (request.deadline, request.number, request))
        self.count += 1

    def head(self) -> Request | None:
        """Return the request with the earliest deadline."""
        line, others = self._line, self._others
        while line and self.gone(line[0]):
            line.popleft()
        while others and self.gone(others[0][2]):
            heappop(others)
        if not others:
            return line[0] if line else None
        if not line:
            return others[0][2]
        first = line[0]
        return first if (first.deadline, first.number) < others[0][:2] else others[0][2]

    def drop_head(self) -> None:
        """Take out what `head` has just returned."""
        line, others = self._line, self._others
        if others and not (line and (line[0].deadline, line[0].number) < others[0][:2]):
            heappop(others)
        else:
            line.popleft()
        self.count -= 1

    def take_front(self, room: int, late_before: float) -> list[Request]:
        """Take out and return what `head` and `drop_head` would give in turn, while it is simple.

        Ends before a request that left otherwise, is in part taken already, has more rows than are left of
        `room`, or expires before `late_before`; takes nothing if deadlines do not simply grow.
        """
        taken: list[Request] = []
        if self._others:
            return taken
        line = self._line
        while line:
            request = line[0]
            rows = request.rows
            if rows > room or request.expires < late_before or request.taken or self.gone(request):
                break
            room -= rows
            taken.append(line.popleft())
        self.count -= len(taken)
        return taken

    def left(self, requests: int = 1) -> None:
        """Count some that have left otherwise."""
        self.count -= requests
        if len(self._line) + len(self._others) > 2 * self.count + SLACK:
            self._line = deque(request for request in self._line if not self.gone(request))
            self._others = [entry for entry in self._others if not self.gone(entry[2])]
            heapify(self._others)

    def live(self) -> list[Request]:
        """Return all requests that are here, in no order."""
        both = [*self._line, *(entry[2] for entry in self._others)]
        return [request for request in both if not self.gone(request)]


class ExpiryQueue(DeadlineQueue):
    """All requests that are not settled, by the next time at which something is due for them."""

    __slots__ = ()

    def gone(self, request: Request) -> bool:
        """Return whether `request` is settled."""
        return request.settled
