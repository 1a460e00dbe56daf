"""`traceparent` and `tracestate` by the letter, and the QoS class of a pod."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp2026.api.scheduling_context import (
    QosClass,
    TraceContext,
    accepted_tracestate,
    continued_trace,
    new_id,
    new_trace,
    pod_qos_class,
    sampled_by_ratio,
)

TRACE = b"4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = b"00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("header", "sampled", "random"),
    [
        pytest.param(b"00-" + TRACE + b"-" + SPAN + b"-01", True, False, id="sampled"),
        pytest.param(b"00-" + TRACE + b"-" + SPAN + b"-00", False, False, id="not sampled"),
        pytest.param(b"00-" + TRACE + b"-" + SPAN + b"-03", True, True, id="a random id"),
        pytest.param(b"00-" + TRACE + b"-" + SPAN + b"-ff", True, True, id="unknown flags are dropped"),
        pytest.param(b"01-" + TRACE + b"-" + SPAN + b"-01", True, False, id="a later version"),
        pytest.param(b"cc-" + TRACE + b"-" + SPAN + b"-01-what-will-be", True, False, id="with more fields"),
    ],
)
def test_a_trace_is_continued(header: bytes, sampled: bool, random: bool) -> None:
    trace = continued_trace(header)
    assert trace is not None
    assert (trace.trace_id, trace.parent_id) == (TRACE.decode(), SPAN.decode())
    assert (trace.sampled, trace.random) == (sampled, random)
    assert trace.span_id != trace.parent_id
    assert trace.traceparent == f"00-{TRACE.decode()}-{trace.span_id}-{sampled + 2 * random:02x}"


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"ff-" + TRACE + b"-" + SPAN + b"-01", id="version ff"),
        pytest.param(b"0-" + TRACE + b"-" + SPAN + b"-01", id="a short version"),
        pytest.param(b"0G-" + TRACE + b"-" + SPAN + b"-01", id="a version that is no number"),
        pytest.param(b"00-" + b"0" * 32 + b"-" + SPAN + b"-01", id="a trace id of zeros"),
        pytest.param(b"00-" + TRACE + b"-" + b"0" * 16 + b"-01", id="a parent of zeros"),
        pytest.param(b"00-" + TRACE.upper() + b"-" + SPAN + b"-01", id="upper case in the trace id"),
        pytest.param(b"00-" + TRACE + b"-" + SPAN.upper() + b"-01", id="upper case in the parent"),
        pytest.param(b"00-" + TRACE + b"-" + SPAN + b"-0A", id="upper case in the flags"),
        pytest.param(b"00-" + TRACE[:-1] + b"-" + SPAN + b"-01", id="a short trace id"),
        pytest.param(b"00-" + TRACE + b"-" + SPAN + b"0-01", id="a long parent"),
        pytest.param(b"00-" + TRACE + b"-" + SPAN + b"-1", id="short flags"),
        pytest.param(b"00-" + TRACE + b"-" + SPAN, id="no flags"),
        pytest.param(b"00-" + TRACE + b"-" + SPAN + b"-01-more", id="version 00 with more fields"),
        pytest.param(b"01-" + TRACE + b"-" + SPAN + b"-01more", id="a later version without a dash"),
        pytest.param(b"00-" + TRACE + b"-" + SPAN + b"-01 ", id="a space behind"),
        pytest.param(b"00-" + TRACE + b"-" + SPAN + b"-01\n", id="a line end behind"),
        pytest.param(b"00_" + TRACE + b"_" + SPAN + b"_01", id="other separators"),
        pytest.param(b"00-" + TRACE + b"-" + SPAN + b"-01," + TRACE, id="two headers in one"),
        pytest.param(b"00-" + b"\xd9\xa0" * 16 + b"-" + SPAN + b"-01", id="other digits"),
    ],
)
def test_what_is_no_traceparent_counts_as_none(header: bytes) -> None:
    assert continued_trace(header) is None


@given(st.binary(max_size=80))
def test_any_bytes_are_a_trace_or_none(header: bytes) -> None:
    assert continued_trace(header, header) is None or header.count(b"-") >= 3


IDS = st.integers(1, 2**128 - 1).map(lambda number: f"{number:032x}")
SPANS = st.integers(1, 2**64 - 1).map(lambda number: f"{number:016x}")


@given(st.builds(TraceContext, IDS, SPANS, st.just(""), st.booleans(), st.booleans()))
def test_what_is_written_is_read_as_it_was(trace: TraceContext) -> None:
    read = continued_trace(trace.traceparent.encode())
    assert read is not None
    assert (read.trace_id, read.parent_id) == (trace.trace_id, trace.span_id)
    assert (read.sampled, read.random) == (trace.sampled, trace.random)


def test_ids_are_never_zero_and_have_all_their_digits() -> None:
    assert new_id(16, lambda _bits: 0) == "0" * 15 + "1"
    assert re.fullmatch(r"[0-9a-f]{32}", new_trace().trace_id)
    assert new_trace().trace_id != new_trace().trace_id
    assert new_trace(sampled=True).traceparent.endswith("-01")


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        (b"rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
        (b"a=1 ,\t b=2,,", "a=1,b=2"),
        (b"tenant@vendor=x", "tenant@vendor=x"),
        (b"a=has space", "a=has space"),
        (b"A=1", ""),
        (b"a", ""),
        (b"a=", ""),
        (b"a=b=c", ""),
        (b"a=1,a=2", ""),
        (b"a=\xff", ""),
        (b"a=\x07", ""),
        (b",".join(b"k%d=v" % n for n in range(33)), ""),
        (b"a=1," + b" " * 32_000, "a=1"),
        (b"a=1," + b" " * 33_000, ""),
        (b"long=" + b"v" * 200 + b",a=" + b"1" * 120 + b",b=" + b"2" * 200, "a=" + "1" * 120),
        (
            b",".join(b"k%d=%s" % (n, b"v" * 100) for n in range(6)),
            ",".join(f"k{n}={'v' * 100}" for n in range(4)),
        ),
    ],
)
def test_tracestate_is_passed_on_within_limits(header: bytes, accepted: str) -> None:
    assert accepted_tracestate(header) == accepted


@given(st.binary(max_size=2_000))
def test_any_tracestate_stays_within_limits(header: bytes) -> None:
    assert len(accepted_tracestate(header)) <= 512


def test_one_id_is_sampled_alike_everywhere_and_the_ratio_is_kept() -> None:
    ids = [new_id(32) for _ in range(4_000)]
    assert not any(sampled_by_ratio(one, 0.0) for one in ids)
    assert all(sampled_by_ratio(one, 1.0) for one in ids)
    few = {one for one in ids if sampled_by_ratio(one, 0.25)}
    assert 800 < len(few) < 1_200
    assert few <= {one for one in ids if sampled_by_ratio(one, 0.5)}


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        pytest.param([], QosClass.BEST_EFFORT, id="no containers"),
        pytest.param([({}, {})], QosClass.BEST_EFFORT, id="nothing is asked for"),
        pytest.param([({"cpu": "0"}, {"memory": "0"})], QosClass.BEST_EFFORT, id="zeros"),
        pytest.param([({"nvidia.com/gpu": "1"}, {})], QosClass.BEST_EFFORT, id="other resources only"),
        pytest.param([({"cpu": "1"}, {})], QosClass.BURSTABLE, id="a request without a limit"),
        pytest.param(
            [({"cpu": "1", "memory": "1Gi"}, {"cpu": "1000m", "memory": "1024Mi"})],
            QosClass.GUARANTEED,
            id="equal in other words",
        ),
        pytest.param([({}, {"cpu": 1, "memory": "1Gi"})], QosClass.GUARANTEED, id="limits alone"),
        pytest.param([({}, {"cpu": "1"})], QosClass.BURSTABLE, id="no limit of memory"),
        pytest.param(
            [({"cpu": "500m"}, {"cpu": "1", "memory": "1Gi"})], QosClass.BURSTABLE, id="a smaller request"
        ),
        pytest.param(
            [({}, {"cpu": "1", "memory": "1Gi"}), ({}, {})], QosClass.BURSTABLE, id="one container without"
        ),
        pytest.param([({"cpu": "much"}, {"cpu": "-1"})], QosClass.BEST_EFFORT, id="no quantities"),
    ],
)
def test_the_class_of_a_pod(
    containers: list[tuple[dict[str, str | int], dict[str, str | int]]], expected: QosClass
) -> None:
    assert pod_qos_class(containers) is expected
