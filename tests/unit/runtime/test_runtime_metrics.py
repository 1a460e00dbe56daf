"""Counting in several processes, and what a scrape and the statistics make of it."""

import os
import re
import time
from collections.abc import Iterator

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families

from mcp2026.runtime.batching.causes import Cause
from mcp2026.runtime.errors import ErrorCode
from mcp2026.runtime.metrics import exemplars
from mcp2026.runtime.metrics.families import SERVER, VERSION
from mcp2026.runtime.metrics.runtime_metrics import RuntimeMetrics, block_sizes
from mcp2026.runtime.metrics.series import Layout
from mcp2026.runtime.metrics.shared_blocks import (
    BlockSizes,
    NoBlockLeftError,
    SharedBlocks,
    create_shared_memory,
)
from mcp2026.runtime.metrics.version_statistics import BatchStatistics, Duration

WORKERS = 2


@pytest.fixture
def descriptor() -> Iterator[int]:
    made = create_shared_memory(block_sizes(WORKERS))
    yield made
    os.close(made)


@pytest.fixture
def parent(descriptor: int) -> RuntimeMetrics:
    made = RuntimeMetrics(descriptor, WORKERS, WORKERS)
    made.claim("", (), 0)
    made.claim("m", ("1",), 3)
    return made


def test_a_scrape_adds_up_all_processes_and_a_successor_counts_on(
    descriptor: int, parent: RuntimeMetrics
) -> None:
    workers = [RuntimeMetrics(descriptor, WORKERS, row) for row in range(WORKERS)]
    workers[0].version("m", "1").answered(1, [3_000_000], 0)
    workers[1].version("m", "1").answered(1, [40_000_000_000], 0)
    workers[1].load(7, 9)
    workers[1].version("m").failed(ErrorCode.QUEUE_FULL)
    workers[1].version().failed(ErrorCode.NOT_FOUND)
    successor = RuntimeMetrics(descriptor, WORKERS, 1)
    successor.reset_gauges()
    successor.version("m", "1").answered(1, [0], 0)
    for line in (
        'mcp2026_requests_total{code="200",model="m",version="1"} 3.0',
        'mcp2026_requests_total{code="503",model="m",version=""} 1.0',
        'mcp2026_request_failures_total{model="m",reason="queue_full",version=""} 1.0',
        'mcp2026_request_failures_total{model="",reason="not_found",version=""} 1.0',
        'mcp2026_request_duration_seconds_bucket{le="0.0025",model="m",version="1"} 1.0',
        'mcp2026_request_duration_seconds_bucket{le="0.005",model="m",version="1"} 2.0',
        'mcp2026_request_duration_seconds_bucket{le="30.0",model="m",version="1"} 2.0',
        'mcp2026_request_duration_seconds_bucket{le="+Inf",model="m",version="1"} 3.0',
        'mcp2026_request_duration_seconds_sum{model="m",version="1"} 40.003',
        "mcp2026_queue_rows 0.0",
        'mcp2026_serving_revision{model="m",version=""} 3.0',
    ):
        assert line in parent.exposition().decode().splitlines()


def test_parts_of_a_request_are_summed_over_requests(descriptor: int, parent: RuntimeMetrics) -> None:
    for row in range(WORKERS):
        version = RuntimeMetrics(descriptor, WORKERS, row).version("m", "1")
        version.queued([2_000])
        version.executed(5, 2, 10, 300, Cause.SIZE, cache_hit=row == 1)
        version.answered(5, [5_000], 40)
        version.failed(ErrorCode.DEADLINE_EXCEEDED, 900)
    seen = parent.statistics("m", "1")
    assert (seen.inference_count, seen.execution_count) == (10, 2)
    assert (seen.success, seen.fail) == (Duration(2, 10_000), Duration(2, 1_800))
    assert (seen.queue, seen.compute_output) == (Duration(2, 4_000), Duration(2, 80))
    assert (seen.compute_input, seen.compute_infer) == (Duration(4, 40), Duration(4, 1_200))
    assert seen.batches == (BatchStatistics(5, 2, 20, 600, 80),)
    assert seen.last_inference_ms > 1_700_000_000_000
    with pytest.raises(KeyError):
        parent.statistics("m", "2")


@pytest.mark.parametrize(
    ("durations_ns", "up_to_1_ms", "up_to_5_ms", "all_of_them"),
    [
        ([], 0, 0, 0),
        ([1_000_000], 1, 1, 1),
        ([1_000_001, 2_000_000, 2_500_000], 0, 3, 3),
        ([900_000, 4_000_000, 60_000_000_000], 1, 2, 3),
    ],
    ids=["none", "one, on a bound", "all in one bucket", "each in its own"],
)
def test_the_durations_of_a_batch_are_counted_one_by_one(
    parent: RuntimeMetrics, durations_ns: list[int], up_to_1_ms: int, up_to_5_ms: int, all_of_them: int
) -> None:
    version = parent.version("m", "1")
    version.queued(durations_ns)
    version.answered(3, durations_ns, 0)
    text = parent.exposition().decode()
    for name in ("mcp2026_queue_duration_seconds", "mcp2026_request_duration_seconds"):
        labels = 'model="m",version="1"'
        assert f'{name}_bucket{{le="0.001",{labels}}} {up_to_1_ms}.0' in text
        assert f'{name}_bucket{{le="0.005",{labels}}} {up_to_5_ms}.0' in text
        assert f"{name}_count{{{labels}}} {all_of_them}.0" in text
    assert f'mcp2026_requests_total{{code="200",model="m",version="1"}} {all_of_them}.0' in text
    assert parent.statistics("m", "1").success.ns == pytest.approx(sum(durations_ns))


def test_a_version_that_comes_back_counts_on(parent: RuntimeMetrics) -> None:
    parent.version("m", "1").answered(1, [1], 0)
    parent.retire("m", ("1",))
    parent.claim("m", ("1",), 4)
    assert parent.statistics("m", "1").success.count == 1


def test_when_room_runs_out_the_retired_give_way_and_the_served_never() -> None:
    sizes = BlockSizes(rows=1, server_columns=1, version_columns=1, capacity=2)
    descriptor = create_shared_memory(sizes)
    blocks = SharedBlocks(descriptor, sizes)
    first = blocks.claim("a", "1")
    blocks.version_row(first, 0)[0] = 7.0
    blocks.claim("b", "1")
    with pytest.raises(NoBlockLeftError):
        blocks.claim("c", "1")
    blocks.retire("a", "1")
    assert blocks.claim("c", "1") == first
    assert blocks.version_row(first, 0)[0] == 0.0
    assert sorted(names for _, *names in blocks.named()) == [["b", "1"], ["c", "1"]]
    os.close(descriptor)


@pytest.mark.parametrize("layout", [SERVER.layout, VERSION.layout])
def test_series_never_overlap(layout: Layout) -> None:
    used = [
        column
        for family in layout.families
        for values in family.series()
        for column in range(layout.column(family, *values), layout.column(family, *values) + family.width)
    ]
    assert sorted(used) == list(range(layout.columns))


TRACES = [f"{number:032x}" for number in (2**127 + 5, 2**100 - 1, 77)]


def exemplars_of(parent: RuntimeMetrics) -> dict[str, str]:
    """Return what follows the buckets that have an exemplar, by their bounds."""
    text = parent.exposition(openmetrics=True).decode()
    return dict(re.findall(r'duration_seconds_bucket\{le="([^"]+)",[^}]*\} \S+ # (\{\S+ \S+) ', text))


def test_openmetrics_has_the_newest_trace_of_each_bucket_over_all_processes(
    descriptor: int, parent: RuntimeMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = [RuntimeMetrics(descriptor, WORKERS, row).version("m", "1") for row in range(WORKERS)]
    for now, worker, trace, took_ns in [
        (2_000.0, workers[0], TRACES[0], 4_100_000),
        (1_000.0, workers[1], TRACES[1], 4_900_000),
        (1_500.5, workers[1], TRACES[2], 60_000_000_000),
    ]:
        monkeypatch.setattr(time, "time", lambda now=now: now)
        worker.answered(1, [took_ns], 0)
        worker.exemplar(trace, took_ns)
    assert exemplars_of(parent) == {
        "0.005": f'{{trace_id="{TRACES[0]}"}} 0.0041',
        "+Inf": f'{{trace_id="{TRACES[2]}"}} 60.0',
    }
    assert parent.exposition(openmetrics=True).endswith(b"# EOF\n")
    assert list(openmetrics_families(parent.exposition(openmetrics=True).decode()))
    assert b" # " not in parent.exposition()


def test_half_an_exemplar_is_not_told(descriptor: int, parent: RuntimeMetrics) -> None:
    blocks = SharedBlocks(descriptor, block_sizes(WORKERS))
    block = blocks.find("m", "1")
    assert block is not None
    parent.version("m", "1").exemplar(TRACES[0], 1_000)
    row = blocks.version_row(block, WORKERS)
    row[exemplars.FIRST + 3] = 5.0
    assert exemplars_of(parent) == {}


def test_what_becomes_of_tokens_spans_and_lines_is_counted(parent: RuntimeMetrics) -> None:
    parent.sla_token("verified")
    parent.sla_token("wrong_pod")
    parent.sla_key_failure()
    parent.spans_dropped("queue_full", 3)
    parent.log_line_left_out()
    for line in (
        'mcp2026_sla_tokens_total{result="verified"} 1.0',
        'mcp2026_sla_tokens_total{result="wrong_pod"} 1.0',
        'mcp2026_sla_tokens_total{result="expired"} 0.0',
        "mcp2026_sla_key_failures_total 1.0",
        'mcp2026_spans_dropped_total{reason="queue_full"} 3.0',
        "mcp2026_request_log_lines_left_out_total 1.0",
    ):
        assert line in parent.exposition().decode().splitlines()
