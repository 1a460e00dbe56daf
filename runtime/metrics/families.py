"""Every metric of a server, by name."""

from typing import get_args

from mcp2026.api.batching_negotiation import Refusal
from mcp2026.api.scheduling_context import SlaRefusal
from mcp2026.runtime.batching.causes import Cause
from mcp2026.runtime.errors import STATUS, ErrorCode
from mcp2026.runtime.metrics.series import Family, Layout
from mcp2026.runtime.negotiation.terms import Carrier

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_STEPS = ("1", "1.25", "1.6", "2", "2.5", "3.15", "4", "5", "6.3", "8")
REQUEST_SECONDS = (
    *(
        bound
        for bound in (float(f"{step}e{decade}") for decade in range(-4, 2) for step in _STEPS)
        if SECONDS[0] <= bound < SECONDS[-1]
    ),
    SECONDS[-1],
)
"""Ten to a decade: a canary's p95 is compared with that of the others as exactly as these are apart."""
SLA_VERIFIED = "verified"
ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)

_STATUSES = ("code", tuple(sorted({"200", *(str(status.http) for status in STATUS.values())})))
_REASONS = ("reason", tuple(code.value for code in ErrorCode))
_CARRIERS = ("carrier", tuple(carrier.value for carrier in Carrier))


class VersionFamilies:
    """The metrics of one version; all have the labels `model` and `version`.

    A model has a block with the empty version as well, for requests that failed before one was chosen, and
    so has the empty model, for requests that failed before the model was known.
    """

    def __init__(self) -> None:
        self.requests = Family(
            "mcp2026_requests", "Inference requests answered, by HTTP status.", "counter", (_STATUSES,)
        )
        self.failures = Family(
            "mcp2026_request_failures",
            "Inference requests that failed, by reason; exactly one reason each.",
            "counter",
            (_REASONS,),
        )
        self.cancelled = Family(
            "mcp2026_requests_cancelled", "Requests whose caller left before the answer.", "counter"
        )
        self.request_seconds = Family(
            "mcp2026_request_duration_seconds",
            "From the whole request read to its answer encoded, of successful requests.",
            "histogram",
            (),
            REQUEST_SECONDS,
        )
        self.queue_seconds = Family(
            "mcp2026_queue_duration_seconds",
            "From arrival to the start of the execution.",
            "histogram",
            (),
            SECONDS,
        )
        self.execution_seconds = Family(
            "mcp2026_execution_duration_seconds", "One execution of a batch.", "histogram", (), SECONDS
        )
        self.batch_rows = Family("mcp2026_batch_rows", "Rows in one execution.", "histogram", (), ROWS)
        self.batches = Family(
            "mcp2026_batches",
            "Executions, by why the batch left; exactly one cause each.",
            "counter",
            (("cause", tuple(cause.value for cause in Cause)),),
        )
        self.tensor_cache = Family(
            "mcp2026_tensor_cache",
            "Batches that reused buffers (hit) or allocated them (miss).",
            "counter",
            (("result", ("hit", "miss")),),
        )
        self.revision = Family(
            "mcp2026_serving_revision",
            "Revision of the serving configuration that is live.",
            "gauge",
        )
        families = [value for value in vars(self).values() if isinstance(value, Family)]
        self.layout = Layout(families, ("model", "version"))
        self.of_versions = self.layout.only(*(family for family in families if family is not self.revision))
        """What is told of each version."""
        self.of_models = self.layout.only(self.requests, self.failures, self.revision)
        """What is told of a model without a version."""
        self.of_nothing = self.layout.only(self.requests, self.failures)
        """What is told of requests whose model is not known."""


class ServerFamilies:
    """The metrics of the server as a whole."""

    def __init__(self) -> None:
        self.queued_rows = Family("mcp2026_queue_rows", "Rows that wait to run.", "gauge")
        self.pending = Family("mcp2026_pending_requests", "Requests taken in and not yet answered.", "gauge")
        self.connections = Family("mcp2026_open_connections", "Open client connections.", "gauge")
        self.accept_failures = Family(
            "mcp2026_accept_failures",
            "Attempts to accept a connection that failed, mostly for want of a file descriptor; it waits.",
            "counter",
        )
        self.workers_ready = Family("mcp2026_workers_ready", "Worker processes that serve.", "gauge")
        self.worker_restarts = Family(
            "mcp2026_worker_restarts", "Workers that ended unasked and were started again.", "counter"
        )
        self.sla_tokens = Family(
            "mcp2026_sla_tokens",
            "Requests by what became of their SLA token: verified, or why it was not taken.",
            "counter",
            (("result", (SLA_VERIFIED, *(reason.value for reason in SlaRefusal))),),
        )
        self.sla_key_failures = Family(
            "mcp2026_sla_key_failures", "Times that the key set of SLA tokens could not be read.", "counter"
        )
        self.spans_dropped = Family(
            "mcp2026_spans_dropped",
            "Not sent: requests that found the queue full, spans that the collector did not take.",
            "counter",
            (("reason", ("queue_full", "export_failed")),),
        )
        self.log_lines_left_out = Family(
            "mcp2026_request_log_lines_left_out",
            "Lines about failed or slow requests that would have been too many.",
            "counter",
        )
        self.http2_connections = Family(
            "mcp2026_http2_connections",
            "Open HTTP/2 connections, by whether their settings negotiate batching.",
            "gauge",
            (("batching", ("negotiated", "single")),),
        )
        self.sessions = Family(
            "mcp2026_batching_sessions",
            "Open connections that negotiated batching, by what carried the client's offer.",
            "gauge",
            (_CARRIERS,),
        )
        self.sessions_begun = Family(
            "mcp2026_batching_sessions_begun",
            "Connections that negotiated batching, by what carried the client's offer.",
            "counter",
            (_CARRIERS,),
        )
        self.negotiated_requests = Family(
            "mcp2026_batching_requests",
            "Requests for which negotiated batching was active.",
            "counter",
            (_CARRIERS,),
        )
        self.refused_offers = Family(
            "mcp2026_batching_offers_refused",
            "Offers to negotiate batching that were malformed or out of range.",
            "counter",
            (_CARRIERS, ("reason", get_args(Refusal))),
        )
        self.layout = Layout([value for value in vars(self).values() if isinstance(value, Family)])


VERSION = VersionFamilies()
SERVER = ServerFamilies()
