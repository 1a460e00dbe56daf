"""What the scheduler moves about: requests, the parts of them that share a run, and batches."""

from typing import TYPE_CHECKING, Any

import msgspec

from mcp2026.runtime.batching.causes import Cause

if TYPE_CHECKING:
    from mcp2026.runtime.batching.lanes import Backlog, Lane
    from mcp2026.runtime.batching.policy import Queue
    from mcp2026.runtime.batching.tenants import Account


class Request(msgspec.Struct, eq=False):
    """One request from its arrival until it is settled. Times in ns of one monotonic clock."""

    lane: "Lane"
    queue: "Queue"
    """Whose length it counts towards."""
    level: int
    """Priority, 1 is served first."""
    tenant: str
    rows: int
    size: int
    """Bytes that its inputs hold."""
    deadline: int
    """Orders the request; the caller hears of it at `expires`."""
    expires: int
    """Answered by then, or told that it was not. Later than `deadline` if it may be served late."""
    call: Any = None
    """Belongs to whoever made the request."""
    named: bool = False
    """The caller itself asked for the deadline."""
    enough_rows: int = 0
    """Its caller has agreed that it waits until so many rows are there; 0: it has agreed to nothing."""
    patience_ns: int = 0
    """And at most so long."""
    waits_since: int = 0
    number: int = 0
    """Order of arrival."""
    leave_by: int = 0
    """A free engine takes it by then at the latest, with or without company."""
    backlog: "Backlog | None" = None
    """Where rows of it wait; None: all have left."""
    taken: int = 0
    """Rows that have left."""
    done: int = 0
    """Rows that have results."""
    settled: bool = False
    """Answered, failed, expired, refused or cancelled: nothing more is said about it."""
    collected: Any = None
    """Results so far of one that runs in several parts; belongs to whoever made the request."""


class Part(msgspec.Struct, eq=False):
    """Rows `first` to `first + rows` of a request, at `row` to `row + rows` of a batch."""

    request: Request
    first: int
    rows: int
    row: int


class Batch(msgspec.Struct, eq=False):
    """Parts that run together: one lane, in this order."""

    lane: "Lane"
    parts: list[Part]
    rows: int
    run_rows: int
    """Rows that run: `rows` and the padding."""
    shares: "list[tuple[Account, int, int]]" = msgspec.field(default_factory=list)
    """Who pays: account, weight, rows."""
    cause: Cause = Cause.IDLE
    """Why it left."""
    inline: bool = False
    """Short enough to run where it is decided, without a thread."""
    charged_per_row: float = 0.0
    """ns of run time that each row's tenant was charged in advance."""
    job: Any = None
    """Belongs to whoever runs it."""

    @property
    def wanted(self) -> bool:
        """Whether anybody still waits for it."""
        return any(not part.request.settled for part in self.parts)
