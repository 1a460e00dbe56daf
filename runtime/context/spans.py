"""The spans of requests and batches, as plain data.

Each recorded request has a span of the kind server with the children `queue` and `execute`. Each batch has a
span of its own, in a trace of its own: it belongs to all its requests, and is linked to them.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from mcp2026.api.scheduling_context import new_id
from mcp2026.runtime.context.settled import Settled, SettledBatch

Attribute = str | int


class SpanLink(NamedTuple):
    """Another span that has to do with one."""

    trace_id: str
    span_id: str


class Span(NamedTuple):
    """One span; times in ns since the epoch, ids in hex."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    """Empty at the root of a trace."""
    remote_parent: bool
    start_ns: int
    end_ns: int
    server: bool
    attributes: dict[str, Attribute]
    links: tuple[SpanLink, ...] = ()
    error: str = ""
    tracestate: str = ""


_PREFIX: Final = "mcp2026."


def spans_of(batch: SettledBatch) -> Iterator[Span]:
    """Return the spans of the recorded requests of `batch`, and of the batch itself if it ran."""
    offset = batch.clock_offset_ns
    ran = [settled for settled in batch.requests if settled.started_ns]
    link = SpanLink(new_id(32), new_id(16))
    for settled in batch.requests:
        yield from _request_spans(settled, offset, link)
    if ran:
        first = ran[0]
        yield Span(
            f"batch {first.model}",
            link.trace_id,
            link.span_id,
            "",
            False,
            first.started_ns - batch.assemble_ns + offset,
            first.finished_ns + offset,
            False,
            {
                _PREFIX + "model": first.model,
                _PREFIX + "version": first.version,
                _PREFIX + "batch.rows": batch.rows,
                _PREFIX + "batch.recorded_requests": len(ran),
            },
            tuple([SpanLink(settled.trace.trace_id, settled.trace.span_id) for settled in ran]),
        )


def _request_spans(settled: Settled, offset: int, batch: SpanLink) -> Iterator[Span]:
    trace = settled.trace
    attributes: dict[str, Attribute] = {
        _PREFIX + "model": settled.model,
        _PREFIX + "version": settled.version,
        _PREFIX + "tenant": settled.tenant,
        _PREFIX + "priority": settled.priority,
    }
    if settled.qos_class is not None:
        attributes[_PREFIX + "qos_class"] = settled.qos_class.value
    if settled.reason:
        attributes["error.type"] = settled.reason
    yield Span(
        f"infer {settled.model}".rstrip(),
        trace.trace_id,
        trace.span_id,
        trace.parent_id,
        True,
        settled.arrived_ns + offset,
        settled.ended_ns + offset,
        True,
        attributes,
        error=settled.message if settled.reason else "",
        tracestate=trace.tracestate,
    )
    if settled.started_ns:
        yield _child("queue", settled, settled.arrived_ns + offset, settled.started_ns + offset)
        ran = _child("execute", settled, settled.started_ns + offset, settled.finished_ns + offset)
        yield ran._replace(links=(batch,))


def _child(name: str, settled: Settled, start_ns: int, end_ns: int) -> Span:
    trace = settled.trace
    return Span(
        name,
        trace.trace_id,
        new_id(16),
        trace.span_id,
        False,
        start_ns,
        max(start_ns, end_ns),
        False,
        {},
        tracestate=trace.tracestate,
    )
