"""Requests whose callers have agreed to wait for company: how long, and for how many rows.

It is theirs alone: what the model's own batching asks of all requests holds besides, and who has agreed to
nothing does not wait for them.
"""

from mcp2026.runtime.batching.causes import Cause
from mcp2026.runtime.batching.request import Request

SLACK = 32
"""Requests that have left and may lie here beyond those that wait before they are swept."""
MARGIN = 1.25
"""Of the predicted time of the run: what is left for it before a deadline."""
SPARE_NS = 5_000_000
SPARE_SHARE = 8
"""Besides, so much, or this part of all the time until the deadline: timers and answers may be late."""


class Patience:
    """Those of one lane that wait. Times in ns."""

    __slots__ = ("_requests", "_sweep_from")

    def __init__(self) -> None:
        self._requests: list[Request] = []
        self._sweep_from = SLACK

    def __bool__(self) -> bool:
        return bool(self._requests)

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: Request, now: int) -> None:
        """Take in `request`, which has agreed to wait and arrives."""
        if len(self._requests) >= self._sweep_from:
            self.sweep()
            self._sweep_from = 2 * len(self._requests) + SLACK
        request.waits_since = now
        self._requests.append(request)

    def sweep(self) -> None:
        """Forget those that wait no more."""
        self._requests = [request for request in self._requests if request.backlog is not None]

    def leaves(self, rows: int, run_ns: float | None, now: int) -> tuple[int, Cause]:
        """Return when the first of those that wait here may leave, and why; 0: at once.

        `rows` wait in all, and run for `run_ns`; None: that is not known yet. There must be someone here.
        """
        first, cause = 1 << 62, Cause.DELAY
        for request in self._requests:
            if rows >= request.enough_rows or request.taken:
                return 0, Cause.SIZE
            at, why = request.waits_since + request.patience_ns, Cause.DELAY
            latest = _latest_start(request, run_ns)
            if latest < at:
                at, why = latest, Cause.DEADLINE
            if at < first:
                first, cause = at, why
            if first <= now:
                break
        return first, cause


def _latest_start(request: Request, run_ns: float | None) -> int:
    allowed = request.deadline - request.waits_since
    if run_ns is None:
        return request.waits_since + allowed // 2
    return request.deadline - int(run_ns * MARGIN) - max(SPARE_NS, allowed // SPARE_SHARE)
