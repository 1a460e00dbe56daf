"""The one object that a process counts with."""

import time
from bisect import bisect_left
from typing import Literal

from prometheus_client.samples import Exemplar

from mcp2026.runtime.batching.causes import Cause
from mcp2026.runtime.errors import STATUS, ErrorCode
from mcp2026.runtime.metrics import exemplars
from mcp2026.runtime.metrics import version_statistics as statistics
from mcp2026.runtime.metrics.families import REQUEST_SECONDS, ROWS, SECONDS, SERVER, VERSION
from mcp2026.runtime.metrics.negotiation_counts import GAUGES, NegotiationCounts, carrier_totals
from mcp2026.runtime.metrics.series import Block, exposition
from mcp2026.runtime.metrics.shared_blocks import BlockSizes, SharedBlocks
from mcp2026.runtime.metrics.version_statistics import VersionStatistics, read_statistics
from mcp2026.runtime.negotiation.sessions import CarrierTotals
from mcp2026.runtime.negotiation.terms import Carrier

_PER_SECOND = 1e9
_QUEUE_NS = tuple([bound * _PER_SECOND for bound in SECONDS])
_REQUEST_NS = tuple([bound * _PER_SECOND for bound in REQUEST_SECONDS])
ANY = ""
"""Version of a request that failed before its version was known, and model of one whose model was not."""

_column = VERSION.layout.column
_OK = _column(VERSION.requests, "200")
_STATUS_COLUMN = {code: _column(VERSION.requests, str(STATUS[code].http)) for code in ErrorCode}
_REASON_COLUMN = {code: _column(VERSION.failures, code.value) for code in ErrorCode}
_CANCELLED = _column(VERSION.cancelled)
_REQUEST_SECONDS = _column(VERSION.request_seconds)
_QUEUE_SECONDS = _column(VERSION.queue_seconds)
_EXECUTION_SECONDS = _column(VERSION.execution_seconds)
_BATCH_ROWS = _column(VERSION.batch_rows)
_CAUSE_COLUMN = {cause: _column(VERSION.batches, cause.value) for cause in Cause}
_CACHE_HIT = _column(VERSION.tensor_cache, "hit")
_CACHE_MISS = _column(VERSION.tensor_cache, "miss")
_REVISION = _column(VERSION.revision)
_METRICS = slice(0, VERSION.layout.columns)
_ALL = slice(0, statistics.STATISTICS_END)


class VersionMetrics:
    """What this process counts for one version. Every call is cheap."""

    __slots__ = ("_row",)

    def __init__(self, row: "memoryview[float]") -> None:
        self._row = row

    def answered(self, rows: int, request_ns: list[int], encode_ns: int) -> None:
        """Count requests of one batch that got their results, and how long after they arrived.

        The batch had `rows` rows, and it took `encode_ns` to encode all the answers.
        """
        row = self._row
        row[_OK] += len(request_ns)
        _observe_all(row, _REQUEST_SECONDS, _REQUEST_NS, request_ns)
        row[statistics.OUTPUT_NS] += encode_ns
        if rows <= statistics.LARGEST_BATCH:
            row[statistics.BATCHES + rows * statistics.BATCH_COLUMNS + 3] += encode_ns

    def exemplar(self, trace_id: str, request_ns: int) -> None:
        """Keep the trace of a request that got its result as an example of how long requests take."""
        bucket = bisect_left(_REQUEST_NS, request_ns)
        kept = exemplars.RequestExemplar(trace_id, request_ns / _PER_SECOND, time.time())
        exemplars.keep(self._row, bucket, kept)

    def failed(self, code: ErrorCode, request_ns: int = 0) -> None:
        """Count a request that got an error."""
        row = self._row
        row[_STATUS_COLUMN[code]] += 1
        row[_REASON_COLUMN[code]] += 1
        row[statistics.FAILED] += 1
        row[statistics.FAILED_NS] += request_ns

    def revision(self, revision: int) -> None:
        """Set the revision that is live; only the parent does."""
        self._row[_REVISION] = revision

    def cancelled(self) -> None:
        """Count a request whose caller left."""
        self._row[_CANCELLED] += 1

    def queued(self, waited_ns: list[int]) -> None:
        """Count how long requests waited in the queue."""
        _observe_all(self._row, _QUEUE_SECONDS, _QUEUE_NS, waited_ns)

    def executed(
        self, rows: int, requests: int, assemble_ns: int, run_ns: int, cause: Cause, *, cache_hit: bool
    ) -> None:
        """Count one execution for `requests` requests with `rows` rows in all, which left for `cause`."""
        row = self._row
        row[_CAUSE_COLUMN[cause]] += 1
        _observe(row, _EXECUTION_SECONDS, SECONDS, run_ns / _PER_SECOND)
        _observe(row, _BATCH_ROWS, ROWS, rows)
        row[_CACHE_HIT if cache_hit else _CACHE_MISS] += 1
        row[statistics.PARTS] += requests
        row[statistics.INPUT_NS] += assemble_ns * requests
        row[statistics.RUN_NS] += run_ns * requests
        row[statistics.LAST_MS] = time.time() * 1e3
        if rows <= statistics.LARGEST_BATCH:
            start = statistics.BATCHES + rows * statistics.BATCH_COLUMNS
            row[start] += 1
            row[start + 1] += assemble_ns
            row[start + 2] += run_ns


def block_sizes(workers: int) -> BlockSizes:
    """Return the sizes of the shared memory: one row per worker and one for their parent."""
    return BlockSizes(workers + 1, SERVER.layout.columns, exemplars.VERSION_COLUMNS)


class RuntimeMetrics:
    """What one process counts. All calls come from one thread, but for those that say otherwise."""

    def __init__(self, descriptor: int, workers: int, row: int) -> None:
        """Use row `row` of the memory behind `descriptor`; the parent's is the last, `workers`."""
        self._blocks = SharedBlocks(descriptor, block_sizes(workers))
        self._workers = workers
        self._row_index = row
        self._row = self._blocks.server_row(row)
        column = SERVER.layout.column
        self._queued_rows = column(SERVER.queued_rows)
        self._pending = column(SERVER.pending)
        self._connections = column(SERVER.connections)
        self._accept_failures = column(SERVER.accept_failures)
        self._workers_ready = column(SERVER.workers_ready)
        self._worker_restarts = column(SERVER.worker_restarts)
        self._sla_key_failures = column(SERVER.sla_key_failures)
        self._log_lines_left_out = column(SERVER.log_lines_left_out)
        self.negotiation = NegotiationCounts(self._row)

    # --- the parent

    def claim(self, model: str, version_ids: tuple[str, ...], revision: int) -> None:
        """Make room for a model and its versions before any worker loads it.

        Raises:
            NoBlockLeftError: too many versions are served.

        """
        for version_id in (ANY, *version_ids):
            self._blocks.claim(model, version_id)
        self.version(model, ANY).revision(revision)

    def retire(self, model: str, version_ids: tuple[str, ...]) -> None:
        """Allow the series of versions that are served no more to be given up when room is needed."""
        for version_id in version_ids:
            self._blocks.retire(model, version_id)

    def reset_gauges(self, row: int | None = None) -> None:
        """Set the gauges of a row to zero: its process has just begun, or has ended."""
        cells = self._row if row is None else self._blocks.server_row(row)
        for index in (self._queued_rows, self._pending, self._connections, self._workers_ready, *GAUGES):
            cells[index] = 0.0

    def worker_restarted(self) -> None:
        """Count a worker that ended unasked."""
        self._row[self._worker_restarts] += 1

    # --- a worker

    def version(self, model: str = ANY, version_id: str = ANY) -> VersionMetrics:
        """Return what counts for a version that the parent has claimed."""
        block = self._blocks.find(model, version_id)
        assert block is not None, f"nobody claimed {model!r} {version_id!r}"
        return VersionMetrics(self._blocks.version_row(block, self._row_index))

    def load(self, queued_rows: int, pending: int) -> None:
        """Set the present load."""
        self._row[self._queued_rows] = queued_rows
        self._row[self._pending] = pending

    def connections(self, count: int) -> None:
        """Set the number of open connections."""
        self._row[self._connections] = count

    def connection_waits(self) -> None:
        """Count a failure to accept connections, which wait in the kernel's queue."""
        self._row[self._accept_failures] += 1

    def worker_ready(self, *, ready: bool) -> None:
        """Say whether this worker serves."""
        self._row[self._workers_ready] = float(ready)

    def sla_token(self, result: str) -> None:
        """Count a request by what became of its token."""
        self._row[SERVER.layout.column(SERVER.sla_tokens, result)] += 1

    def sla_key_failure(self) -> None:
        """Count a key set that could not be read. Only the thread that reads it does."""
        self._row[self._sla_key_failures] += 1

    def spans_dropped(self, reason: Literal["queue_full", "export_failed"], count: int) -> None:
        """Count what is not sent. For each reason only one thread does."""
        self._row[SERVER.layout.column(SERVER.spans_dropped, reason)] += count

    def log_line_left_out(self) -> None:
        """Count a line that would have been too many."""
        self._row[self._log_lines_left_out] += 1

    # --- whoever is asked

    def exposition(self, *, openmetrics: bool = False) -> bytes:
        """Return the sum over all processes in Prometheus' text format, or in OpenMetrics with exemplars."""
        nothing: list[Block] = []
        models: list[Block] = []
        versions: list[Block] = []
        for block, model, version_id in self._blocks.named():
            kind = versions if version_id else models if model else nothing
            totals = self._blocks.version_totals(block, _METRICS)
            told = {VERSION.request_seconds.name: self._exemplars(block)} if openmetrics else {}
            kind.append(Block((model, version_id), totals, told))
        return exposition(
            [
                (SERVER.layout, [Block((), self._blocks.server_totals())]),
                (VERSION.of_versions, versions),
                (VERSION.of_models, models),
                (VERSION.of_nothing, nothing),
            ],
            openmetrics=openmetrics,
        )

    def _exemplars(self, block: int) -> list[Exemplar | None]:
        found = exemplars.newest(self._blocks.version_rows(block, exemplars.COLUMNS))
        return [one and Exemplar({"trace_id": one.trace_id}, one.seconds, one.at) for one in found]

    def batches(self) -> dict[Cause, int]:
        """Return the batches of all processes, by why they left, of everything that is or was served."""
        counts = dict.fromkeys(Cause, 0)
        for block, _, version_id in self._blocks.named():
            if version_id:
                totals = self._blocks.version_totals(block, _METRICS)
                for cause, column in _CAUSE_COLUMN.items():
                    counts[cause] += int(totals[column])
        return counts

    def carriers(self) -> dict[Carrier, CarrierTotals]:
        """Return what all processes counted of negotiated batching."""
        return carrier_totals(self._blocks.server_totals())

    def statistics(self, model: str, version_id: str) -> VersionStatistics:
        """Return what a version did, summed over all processes.

        Raises:
            KeyError: it was never served.

        """
        block = self._blocks.find(model, version_id)
        if block is None:
            raise KeyError(model, version_id)
        totals = self._blocks.version_totals(block, _ALL)
        rows = range(self._workers + 1)
        last_ms = max(self._blocks.version_row(block, row)[statistics.LAST_MS] for row in rows)
        return read_statistics(totals, last_ms)


def _observe_all(
    row: "memoryview[float]", start: int, bounds_ns: tuple[float, ...], durations_ns: list[int]
) -> None:
    """Count durations; those of one batch mostly fall into one bucket."""
    if not durations_ns:
        return
    bucket = bisect_left(bounds_ns, min(durations_ns))
    if bucket == bisect_left(bounds_ns, max(durations_ns)):
        row[start + bucket] += len(durations_ns)
    else:
        for duration in durations_ns:
            row[start + bisect_left(bounds_ns, duration)] += 1
    row[start + len(bounds_ns) + 1] += sum(durations_ns) / _PER_SECOND


def _observe(row: "memoryview[float]", start: int, bounds: tuple[float, ...], value: float) -> None:
    row[start + bisect_left(bounds, value)] += 1
    row[start + len(bounds) + 1] += value
