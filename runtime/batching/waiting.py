"""Where requests wait: by lane, level and tenant at once, and how many rows and bytes that is."""

from mcp2026.runtime.batching.lanes import Backlog, Lane
from mcp2026.runtime.batching.policy import ProcessLimits
from mcp2026.runtime.batching.request import Request
from mcp2026.runtime.batching.tenants import Level


class Waiting:
    """Every row that is in no batch yet."""

    def __init__(self, limits: ProcessLimits) -> None:
        self._limits = limits
        self.levels: dict[int, Level] = {}
        """In the order in which they are served."""
        self.lanes: dict[Lane, None] = {}
        """Those in which rows wait."""
        self.rows = 0
        self.bytes = 0

    def has_room(self, request: Request) -> bool:
        """Return whether `request` may wait here.

        One that finds the queue empty is taken whatever its size: it could never be served else.
        """
        queue, limits = request.queue, self._limits
        if queue.max_rows and queue.rows and queue.rows + request.rows > queue.max_rows:
            return False
        return not self.rows or (
            self.rows + request.rows <= limits.max_queued_rows
            and self.bytes + request.size <= limits.max_queued_bytes
        )

    def add(self, request: Request, now: int) -> None:
        """Let the rows of `request` that were not taken wait."""
        lane = request.lane
        backlog = lane.backlogs.get((request.level, request.tenant))
        if backlog is None:
            backlog = self._open_backlog(lane, request)
        backlog.account.last_seen = now
        request.backlog = backlog
        backlog.push(request)
        rows = request.rows - request.taken
        backlog.rows += rows
        lane.rows += rows
        request.queue.rows += rows
        self.rows += rows
        self.bytes += request.size

    def withdraw(self, request: Request) -> None:
        """Take `request` out: its caller has gone, or it is to wait elsewhere."""
        backlog = request.backlog
        assert backlog is not None
        request.backlog = None
        backlog.left()
        self._left(backlog, request, request.rows - request.taken)

    def take(self, backlog: Backlog, request: Request, rows: int) -> None:
        """Let `rows` rows of `request`, which is the head of `backlog`, leave."""
        request.taken += rows
        if request.taken < request.rows:
            self._count(backlog, request, -rows)
        else:
            backlog.drop_head()
            request.backlog = None
            self._left(backlog, request, rows)

    def take_front(self, backlog: Backlog, room: int, late_before: float) -> list[Request]:
        """Let the first requests of `backlog` leave, whole, while they fit `room` rows and are not late."""
        taken = backlog.take_front(room, late_before)
        if taken:
            rows = size = 0
            for request in taken:
                request.backlog = None
                request.taken = request.rows
                rows += request.rows
                size += request.size
                request.queue.rows -= request.rows
            self.bytes -= size
            backlog.rows -= rows
            backlog.lane.rows -= rows
            self.rows -= rows
            self._close_if_empty(backlog)
        return taken

    def level(self, number: int) -> Level:
        """Return a level by its number."""
        level = self.levels.get(number)
        if level is None:
            self.levels[number] = level = Level(number)
            self.levels = dict(sorted(self.levels.items()))
        return level

    def _open_backlog(self, lane: Lane, request: Request) -> Backlog:
        key = (request.level, request.tenant)
        backlog = lane.idle_backlogs.pop(key, None)
        if backlog is None:
            account = self.level(request.level).account(request.tenant)
            backlog = Backlog(lane, account, lane.model.policy.weight(request.tenant))
        account = backlog.account
        lane.backlogs[key] = account.backlogs[lane] = backlog
        account.level.joins(account)
        self.lanes[lane] = None
        return backlog

    def _left(self, backlog: Backlog, request: Request, rows: int) -> None:
        self._count(backlog, request, -rows)
        self.bytes -= request.size
        self._close_if_empty(backlog)

    def _close_if_empty(self, backlog: Backlog) -> None:
        if not backlog.count:
            lane, account = backlog.lane, backlog.account
            key = (account.level.number, account.tenant)
            lane.idle_backlogs[key] = lane.backlogs.pop(key)
            del account.backlogs[lane]
            account.level.leaves(account)
            if not lane.backlogs:
                del self.lanes[lane]

    def _count(self, backlog: Backlog, request: Request, rows: int) -> None:
        backlog.rows += rows
        backlog.lane.rows += rows
        request.queue.rows += rows
        self.rows += rows
