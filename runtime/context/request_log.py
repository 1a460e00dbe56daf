"""Log lines of requests: those that failed, those that were slow, or all."""

import logging
from collections.abc import Callable
from typing import Any, Final

from mcp2026.runtime.context.line_budget import LineBudget
from mcp2026.runtime.context.settled import Settled

log = logging.getLogger("mcp2026.requests")

LINES_PER_SECOND: Final = 10.0
BURST: Final = 50.0
"""Per worker, of failed and slow requests."""
_MS: Final = 1e6


class RequestLog:
    """Writes one line for a request, as far as there is a budget for it."""

    def __init__(self, *, slow_ns: int | None, every: bool, left_out: Callable[[], None]) -> None:
        """Call a request slow that took longer than `slow_ns`; None: no request is.

        With `every`, all that are answered are written, without a budget; those that fail always have one.
        `left_out` is called for each line that the budget does not allow.
        """
        self._slow_ns = slow_ns
        self._every = every
        self._left_out = left_out
        self._budget = LineBudget(LINES_PER_SECOND, BURST)
        self.watches_all = every or slow_ns is not None
        """Requests that were answered may be written as well."""

    def wants(self, took_ns: int) -> bool:
        """Return whether an answered request that took so long is written, if the budget allows it."""
        return self._every or (self._slow_ns is not None and took_ns > self._slow_ns)

    def answered(self, settled: Settled) -> None:
        """Write a request that `wants` wanted."""
        if self._slow_ns is not None and settled.ended_ns - settled.arrived_ns > self._slow_ns:
            self._write(logging.WARNING, "slow", settled, budgeted=not self._every)
        else:
            self._write(logging.INFO, "answered", settled, budgeted=False)

    def failed(self, settled: Settled) -> None:
        """Write a request that failed."""
        level = logging.WARNING if settled.status >= 500 else logging.INFO
        self._write(level, f"failed ({settled.reason}): {printable(settled.message)}", settled, budgeted=True)

    def _write(self, level: int, outcome: str, settled: Settled, *, budgeted: bool) -> None:
        if not log.isEnabledFor(level):
            return
        if budgeted:
            budget = self._budget
            if not budget.take(settled.ended_ns / 1e9):
                self._left_out()
                return
            if budget.left_out:
                log.warning("%d lines about requests were left out", budget.left_out)
                budget.left_out = 0
        total_ms = (settled.ended_ns - settled.arrived_ns) / _MS
        log.log(
            level,
            "request %s for %s, %.1f ms: %s",
            settled.trace.trace_id,
            printable(settled.model) or "no model",
            total_ms,
            outcome,
            extra=fields(settled),
        )


def fields(settled: Settled) -> dict[str, Any]:
    """Return what a line of JSON says of a request; times in ms."""
    said: dict[str, Any] = {
        "trace_id": settled.trace.trace_id,
        "span_id": settled.trace.span_id,
        "model": settled.model,
        "version": settled.version,
        "tenant": settled.tenant,
        "priority": settled.priority,
        "qos_class": settled.qos_class,
        "reason": settled.reason,
        "status": settled.status,
        "total_ms": round((settled.ended_ns - settled.arrived_ns) / _MS, 3),
    }
    if settled.started_ns:
        waited = settled.started_ns - settled.arrived_ns - settled.batch_ns
        said["queue_ms"] = round(max(0, waited) / _MS, 3)
        said["batch_ms"] = round(settled.batch_ns / _MS, 3)
        said["execute_ms"] = round((settled.finished_ns - settled.started_ns) / _MS, 3)
    return said


def printable(text: str) -> str:
    """Return what a client sent as text of one line, cut to a length that a log can bear."""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text[:300])
