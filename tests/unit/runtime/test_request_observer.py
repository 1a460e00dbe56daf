"""What is told of requests: log lines within a budget, spans, exemplars; nothing that nobody asked for."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from mcp2026.api.scheduling_context import (
    QosClass,
    SchedulingContext,
    SlaClaims,
    TraceContext,
)
from mcp2026.runtime.context.line_budget import LineBudget
from mcp2026.runtime.context.observer import RequestObserver
from mcp2026.runtime.context.request_context import RequestContexts
from mcp2026.runtime.context.request_log import BURST, RequestLog, printable
from mcp2026.runtime.context.settled import Settled, SettledBatch
from mcp2026.runtime.context.spans import SpanLink, spans_of
from mcp2026.runtime.errors import ErrorCode, RequestError

MS = 1_000_000
TRACE = TraceContext("a" * 32, "b" * 16, "c" * 16, sampled=True, tracestate="v=1")


class Counters:
    def __init__(self) -> None:
        self.exemplars: list[tuple[str, int]] = []

    def exemplar(self, trace_id: str, request_ns: int) -> None:
        self.exemplars.append((trace_id, request_ns))


@dataclass
class Version:
    metrics: Any
    model: str = "m"
    version_id: str = "7"


@dataclass
class Call:
    version: Any
    context: SchedulingContext | None = None
    arrived_ns: int = 100 * MS
    priority: int = 2
    tenant: str = "acme"


@dataclass
class Run:
    rows: int = 3
    assemble_ns: int = MS
    started_ns: int = 105 * MS
    finished_ns: int = 109 * MS


class Spans:
    def __init__(self, room: int = 100) -> None:
        self.room = room
        self.taken: list[SettledBatch] = []

    def put(self, batch: SettledBatch) -> bool:
        if len(self.taken) == self.room:
            return False
        self.taken.append(batch)
        return True


class Observed:
    def __init__(self, *, slow_ms: float | None = None, every: bool = False, room: int = 100) -> None:
        self.left_out = 0
        self.dropped = 0
        self.spans = Spans(room)
        self.counters = Counters()
        log = RequestLog(
            slow_ns=None if slow_ms is None else int(slow_ms * MS), every=every, left_out=self._left_out
        )
        self.observer = RequestObserver(RequestContexts(), log, self.spans, self._dropped)

    def _left_out(self) -> None:
        self.left_out += 1

    def _dropped(self, requests: int) -> None:
        self.dropped += requests

    def call(self, context: SchedulingContext | None = None, **more: Any) -> Any:
        return Call(Version(self.counters), context, **more)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[logging.LogRecord]]:
    logger = logging.getLogger("mcp2026.requests")
    written: list[logging.LogRecord] = []
    monkeypatch.setattr(logger, "handle", written.append)
    logger.setLevel(logging.INFO)
    yield written
    logger.setLevel(logging.NOTSET)


def test_answers_are_not_told_unless_that_is_asked_for(lines: list[logging.LogRecord]) -> None:
    observed = Observed()
    observed.observer.answered(Run(), [observed.call(), observed.call()], 110 * MS)
    assert lines == observed.spans.taken == observed.counters.exemplars == []


def test_a_slow_request_is_told_with_all_its_times(lines: list[logging.LogRecord]) -> None:
    observed = Observed(slow_ms=9.5)
    context = SchedulingContext(TRACE, QosClass.BURSTABLE)
    quick = observed.call(arrived_ns=101 * MS)
    observed.observer.answered(Run(), [observed.call(context), quick], 110 * MS)
    (line,) = lines
    assert line.levelno == logging.WARNING
    assert line.getMessage() == f"request {'a' * 32} for m, 10.0 ms: slow"
    said = vars(line)
    expected = {
        "trace_id": "a" * 32,
        "span_id": "b" * 16,
        "model": "m",
        "version": "7",
        "tenant": "acme",
        "priority": 2,
        "qos_class": "Burstable",
        "reason": "",
        "status": 200,
        "total_ms": 10.0,
        "queue_ms": 4.0,
        "batch_ms": 1.0,
        "execute_ms": 4.0,
    }
    assert {name: said[name] for name in expected} == expected


def test_all_requests_are_told_if_that_is_asked_for_with_a_trace_of_their_own(
    lines: list[logging.LogRecord],
) -> None:
    observed = Observed(every=True)
    calls = [observed.call() for _ in range(200)]
    observed.observer.answered(Run(), calls, 110 * MS)
    assert len(lines) == 200
    assert len({vars(line)["trace_id"] for line in lines}) == 200


def test_a_sampled_request_is_an_exemplar_and_a_record(lines: list[logging.LogRecord]) -> None:
    observed = Observed()
    unsampled = SchedulingContext(TraceContext("d" * 32, "e" * 16))
    calls = [observed.call(SchedulingContext(TRACE)), observed.call(unsampled), observed.call()]
    observed.observer.answered(Run(), calls, 110 * MS)
    assert observed.counters.exemplars == [("a" * 32, 10 * MS)]
    ((recorded,), rows, assemble_ns, _) = observed.spans.taken[0]
    assert (recorded.trace, rows, assemble_ns) == (TRACE, 3, MS)
    assert lines == []


def test_a_failure_is_told_and_its_caller_can_be_told_its_trace(lines: list[logging.LogRecord]) -> None:
    observed = Observed()
    call = observed.call()
    error = RequestError(ErrorCode.QUEUE_FULL, "too many requests wait already")
    observed.observer.failed(call, error, 110 * MS)
    (line,) = lines
    assert call.context is not None
    said = vars(line)
    assert said["trace_id"] == call.context.trace.trace_id
    assert (said["reason"], said["status"], line.levelno) == ("queue_full", 503, logging.WARNING)
    assert "queue_ms" not in said


def test_a_request_that_never_became_a_call_is_told_by_what_is_known(
    lines: list[logging.LogRecord],
) -> None:
    observed = Observed()
    claims = SlaClaims(QosClass.GUARANTEED, 1, 5, "acme", "gold")
    context = SchedulingContext(TRACE, claims.qos_class, claims)
    error = RequestError(ErrorCode.INVALID_ARGUMENT, "input: \n{\x1b[31m")
    assert observed.observer.refused(error, context, 0, "m") is context
    (line,) = lines
    assert line.levelno == logging.INFO
    assert "\n" not in line.getMessage()
    assert "\x1b" not in line.getMessage()
    assert (vars(line)["tenant"], vars(line)["priority"]) == ("acme", 1)
    assert observed.spans.taken[0].requests[0].reason == "invalid_argument"
    fresh = observed.observer.refused(error, None, 0)
    assert int(fresh.trace.trace_id, 16)


def test_a_flood_of_failures_fills_no_disk_and_is_said(lines: list[logging.LogRecord]) -> None:
    observed = Observed(every=True)
    error = RequestError(ErrorCode.INVALID_ARGUMENT, "no")
    for _ in range(1_000):
        observed.observer.failed(observed.call(), error, 110 * MS)
    assert len(lines) == BURST
    assert observed.left_out == 1_000 - BURST
    observed.observer.failed(observed.call(), error, 1_110 * MS)
    assert lines[-2].getMessage() == f"{1_000 - BURST:.0f} lines about requests were left out"


def test_what_finds_no_room_is_counted() -> None:
    observed = Observed(room=1)
    calls = [observed.call(SchedulingContext(TRACE))] * 3
    for _ in range(2):
        observed.observer.answered(Run(), calls, 110 * MS)
    assert observed.dropped == 3


def test_a_budget_fills_up_again_but_never_beyond_its_burst() -> None:
    budget = LineBudget(per_second=2.0, burst=3.0)
    assert [budget.take(10.0) for _ in range(5)] == [True, True, True, False, False]
    assert budget.left_out == 2
    assert [budget.take(11.0) for _ in range(3)] == [True, True, False]
    assert [budget.take(9.0)] == [False]  # a clock that goes back gives nothing
    assert [budget.take(1_000.0) for _ in range(4)] == [True, True, True, False]


def test_long_texts_of_clients_are_cut() -> None:
    assert len(printable("x" * 10_000)) == 300


# --- spans

RAN = Settled(TRACE, QosClass.GUARANTEED, "m", "7", "acme", 1, 100, 110, 140, 150, 5)
REFUSED = RAN._replace(started_ns=0, finished_ns=0, reason="queue_full", message="full")


def test_a_request_has_a_span_with_its_waiting_and_its_execution_inside() -> None:
    server, queue, execute, batch = spans_of(SettledBatch((RAN,), 3, 5, 1_000))
    assert (server.name, server.server, server.span_id) == ("infer m", True, TRACE.span_id)
    assert (server.parent_id, server.remote_parent) == (TRACE.parent_id, True)
    assert [(span.name, span.start_ns, span.end_ns) for span in (server, queue, execute, batch)] == [
        ("infer m", 1_100, 1_150),
        ("queue", 1_100, 1_110),
        ("execute", 1_110, 1_140),
        ("batch m", 1_105, 1_140),
    ]
    for child in (queue, execute):
        assert (child.trace_id, child.parent_id, child.tracestate) == (TRACE.trace_id, TRACE.span_id, "v=1")
    assert server.attributes == {
        "mcp2026.model": "m",
        "mcp2026.version": "7",
        "mcp2026.tenant": "acme",
        "mcp2026.priority": 1,
        "mcp2026.qos_class": "Guaranteed",
    }


def test_a_batch_is_linked_to_its_requests_and_they_to_it() -> None:
    other = RAN._replace(trace=TraceContext("d" * 32, "e" * 16, sampled=True))
    spans = list(spans_of(SettledBatch((RAN, other), 3, 5, 0)))
    batch = spans[-1]
    assert batch.links == (SpanLink("a" * 32, "b" * 16), SpanLink("d" * 32, "e" * 16))
    assert batch.trace_id not in ("a" * 32, "d" * 32)
    assert batch.attributes["mcp2026.batch.rows"] == 3
    executes = [span for span in spans if span.name == "execute"]
    assert [span.links for span in executes] == [(SpanLink(batch.trace_id, batch.span_id),)] * 2


def test_a_request_that_did_not_run_has_one_span_that_says_why() -> None:
    (span,) = spans_of(SettledBatch((REFUSED,), 0, 0, 0))
    assert span.error == "full"
    assert span.attributes["error.type"] == "queue_full"
