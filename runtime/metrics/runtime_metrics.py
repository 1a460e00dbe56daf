"""The runtime's metrics, by name, and the one object that a process counts with."""

from bisect import bisect_left

from mcp2026.api.serving import ServingConfig
from mcp2026.runtime.errors import STATUS, ErrorCode
from mcp2026.runtime.metrics.series import Family, Layout, exposition
from mcp2026.runtime.metrics.shared_table import SharedTable

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
_PER_SECOND = 1e9
UNKNOWN = ""
"""Version of a request that failed before its version was known."""


class Families:
    """Every metric of a server that serves `config`."""

    def __init__(self, config: ServingConfig) -> None:
        model = ("model", (config.model,))
        version = ("version", tuple(served.version_id for served in config.versions))
        any_version = ("version", (*version[1], UNKNOWN))
        statuses = tuple(sorted({"200", *(str(status.http) for status in STATUS.values())}))
        reasons = tuple(code.value for code in ErrorCode)
        labels = (model, version)
        self.requests = Family(
            "mcp2026_requests",
            "Inference requests answered, by HTTP status.",
            "counter",
            (model, any_version, ("code", statuses)),
        )
        self.failures = Family(
            "mcp2026_request_failures",
            "Inference requests that failed, by reason; exactly one reason each.",
            "counter",
            (model, any_version, ("reason", reasons)),
        )
        self.cancelled = Family(
            "mcp2026_requests_cancelled", "Requests whose caller left before the answer.", "counter", (model,)
        )
        self.request_seconds = Family(
            "mcp2026_request_duration_seconds",
            "From the whole request read to its answer encoded, of successful requests.",
            "histogram",
            labels,
            _SECONDS,
        )
        self.queue_seconds = Family(
            "mcp2026_queue_duration_seconds",
            "From arrival to the start of the execution.",
            "histogram",
            labels,
            _SECONDS,
        )
        self.execution_seconds = Family(
            "mcp2026_execution_duration_seconds", "One execution of a batch.", "histogram", labels, _SECONDS
        )
        self.batch_rows = Family(
            "mcp2026_batch_rows", "Rows in one execution.", "histogram", labels, tuple(map(float, _ROWS))
        )
        self.tensor_cache = Family(
            "mcp2026_tensor_cache",
            "Batches that reused buffers (hit) or allocated them (miss).",
            "counter",
            (*labels, ("result", ("hit", "miss"))),
        )
        self.queued_rows = Family("mcp2026_queue_rows", "Rows that wait to run.", "gauge", (model,))
        self.pending = Family(
            "mcp2026_pending_requests", "Requests taken in and not yet answered.", "gauge", (model,)
        )
        self.connections = Family("mcp2026_open_connections", "Open client connections.", "gauge")
        self.workers_ready = Family("mcp2026_workers_ready", "Worker processes that serve.", "gauge")
        self.worker_restarts = Family(
            "mcp2026_worker_restarts", "Workers that ended unasked and were started again.", "counter"
        )
        self.revision = Family(
            "mcp2026_serving_revision", "Revision of the serving configuration.", "gauge", (model,)
        )
        self.layout = Layout([value for value in vars(self).values() if isinstance(value, Family)])


class VersionMetrics:
    """The columns of one version, looked up once."""

    def __init__(self, families: Families, model: str, version_id: str) -> None:
        column = families.layout.column
        self.ok = column(families.requests, model, version_id, "200")
        self.request_seconds = column(families.request_seconds, model, version_id)
        self.queue_seconds = column(families.queue_seconds, model, version_id)
        self.execution_seconds = column(families.execution_seconds, model, version_id)
        self.batch_rows = column(families.batch_rows, model, version_id)
        self.cache_hit = column(families.tensor_cache, model, version_id, "hit")
        self.cache_miss = column(families.tensor_cache, model, version_id, "miss")


class RuntimeMetrics:
    """What one process counts. All calls come from one thread."""

    def __init__(self, config: ServingConfig, table_descriptor: int, rows: int, row: int) -> None:
        self._families = families = Families(config)
        self._table = SharedTable(table_descriptor, rows, families.layout.columns)
        self._row = self._table.row(row)
        self._model = config.model
        self._revision = config.revision
        self._versions = {
            served.version_id: VersionMetrics(families, config.model, served.version_id)
            for served in config.versions
        }
        column = families.layout.column
        self._queued_rows = column(families.queued_rows, config.model)
        self._pending = column(families.pending, config.model)
        self._cancelled = column(families.cancelled, config.model)
        self._connections = column(families.connections)
        self._workers_ready = column(families.workers_ready)
        self._worker_restarts = column(families.worker_restarts)
        self._revision_column = column(families.revision, config.model)

    def reset_gauges(self, row: int | None = None) -> None:
        """Set the gauges of a row to zero: its process has just begun, or has ended."""
        cells = self._row if row is None else self._table.row(row)
        for index in (self._queued_rows, self._pending, self._connections, self._workers_ready):
            cells[index] = 0.0

    def answered(self, version_id: str, arrived_ns: int, now_ns: int) -> None:
        """Count a request that got its result."""
        version = self._versions[version_id]
        self._row[version.ok] += 1
        self._observe(version.request_seconds, _SECONDS, (now_ns - arrived_ns) / _PER_SECOND)

    def failed(self, version_id: str | None, code: ErrorCode) -> None:
        """Count a request that got an error."""
        version = version_id if version_id in self._versions else UNKNOWN
        assert version is not None
        families, column = self._families, self._families.layout.column
        self._row[column(families.requests, self._model, version, str(STATUS[code].http))] += 1
        self._row[column(families.failures, self._model, version, code.value)] += 1

    def cancelled(self) -> None:
        """Count a request whose caller left."""
        self._row[self._cancelled] += 1

    def queued(self, version_id: str, waited_ns: int) -> None:
        """Count a request's time in the queue."""
        self._observe(self._versions[version_id].queue_seconds, _SECONDS, waited_ns / _PER_SECOND)

    def executed(self, version_id: str, rows: int, run_ns: int, cache: tuple[int, int]) -> None:
        """Count one execution; `cache` has the buffer hits and misses since the last call."""
        version = self._versions[version_id]
        self._observe(version.execution_seconds, _SECONDS, run_ns / _PER_SECOND)
        self._observe(version.batch_rows, _ROWS, rows)
        hits, misses = cache
        self._row[version.cache_hit] += hits
        self._row[version.cache_miss] += misses

    def load(self, queued_rows: int, pending: int) -> None:
        """Set the present load."""
        self._row[self._queued_rows] = queued_rows
        self._row[self._pending] = pending

    def connections(self, count: int) -> None:
        """Set the number of open connections."""
        self._row[self._connections] = count

    def worker_ready(self, *, ready: bool) -> None:
        """Say whether this worker serves."""
        self._row[self._workers_ready] = float(ready)

    def worker_restarted(self) -> None:
        """Count a worker that ended unasked."""
        self._row[self._worker_restarts] += 1

    def exposition(self) -> bytes:
        """Return the sum over all processes in Prometheus' text format."""
        totals = self._table.totals()
        totals[self._revision_column] = float(self._revision)
        return exposition(self._families.layout, totals)

    def _observe(self, start: int, bounds: tuple[float, ...], value: float) -> None:
        row = self._row
        row[start + bisect_left(bounds, value)] += 1
        row[start + len(bounds) + 1] += value


def table_size(config: ServingConfig, workers: int) -> tuple[int, int]:
    """Return rows and columns of the table: one row per worker and one for their parent."""
    return workers + 1, Families(config).layout.columns
