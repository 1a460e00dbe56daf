"""The statistics of the Open Inference Protocol: what a version did, as counts and nanoseconds.

Contract: the statistics extension of Triton (`ModelStatistics`). All durations of the parts of a request are
sums over requests, so that a part divided by its count is the mean of one request.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mcp2026.runtime.metrics.families import REQUEST_SECONDS, ROWS, SECONDS, VERSION

LARGEST_BATCH = 128
"""Batches with more rows are in the sums, but have no line of their own."""

_FIRST = VERSION.layout.columns
INPUT_NS, RUN_NS, OUTPUT_NS, PARTS, FAILED, FAILED_NS, LAST_MS = range(_FIRST, _FIRST + 7)
"""Columns behind those of the metrics."""
BATCHES = _FIRST + 7
BATCH_COLUMNS = 4
"""Per number of rows: executions, and the nanoseconds of input, run and output."""
STATISTICS_END = BATCHES + (LARGEST_BATCH + 1) * BATCH_COLUMNS


@dataclass(frozen=True)
class Duration:
    """How often something happened, and how long it took in all."""

    count: int
    ns: int


@dataclass(frozen=True)
class BatchStatistics:
    """All executions with one number of rows."""

    batch_size: int
    count: int
    input_ns: int
    infer_ns: int
    output_ns: int


@dataclass(frozen=True)
class VersionStatistics:
    """One version, summed over all processes of the server."""

    inference_count: int
    """Rows."""
    execution_count: int
    last_inference_ms: int
    """Milliseconds since the epoch, 0 if there was none."""
    success: Duration
    fail: Duration
    queue: Duration
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration
    batches: tuple[BatchStatistics, ...]


def read_statistics(totals: Sequence[float], last_inference_ms: float) -> VersionStatistics:
    """Return the statistics in a version's block, given the sums of all its columns."""
    family = VERSION
    column = family.layout.column
    success = _histogram(totals, column(family.request_seconds), len(REQUEST_SECONDS))
    queue = _histogram(totals, column(family.queue_seconds), len(SECONDS))
    rows_at = column(family.batch_rows)
    executions = sum(totals[rows_at : rows_at + len(ROWS) + 1])
    parts = int(totals[PARTS])
    return VersionStatistics(
        inference_count=int(totals[rows_at + len(ROWS) + 1]),
        execution_count=int(executions),
        last_inference_ms=int(last_inference_ms),
        success=success,
        fail=Duration(int(totals[FAILED]), int(totals[FAILED_NS])),
        queue=queue,
        compute_input=Duration(parts, int(totals[INPUT_NS])),
        compute_infer=Duration(parts, int(totals[RUN_NS])),
        compute_output=Duration(success.count, int(totals[OUTPUT_NS])),
        batches=tuple(_batches(totals)),
    )


def _histogram(totals: Sequence[float], start: int, bounds: int) -> Duration:
    cells = totals[start : start + bounds + 2]
    return Duration(int(sum(cells[:-1])), int(cells[-1] * 1e9))


def _batches(totals: Sequence[float]) -> list[BatchStatistics]:
    found = []
    for rows in range(1, LARGEST_BATCH + 1):
        start = BATCHES + rows * BATCH_COLUMNS
        count, input_ns, infer_ns, output_ns = map(int, totals[start : start + BATCH_COLUMNS])
        if count:
            found.append(BatchStatistics(rows, count, input_ns, infer_ns, output_ns))
    return found
