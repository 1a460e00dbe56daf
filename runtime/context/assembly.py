"""What a worker needs for contexts, by its settings: nothing that is not asked for is imported."""

import socket
from typing import TYPE_CHECKING

from mcp2026.api.scheduling_context import QosClass
from mcp2026.runtime.context.observer import RequestObserver
from mcp2026.runtime.context.request_context import RequestContexts, Tokens
from mcp2026.runtime.context.request_log import RequestLog
from mcp2026.runtime.metrics.runtime_metrics import RuntimeMetrics
from mcp2026.runtime.settings import Settings

if TYPE_CHECKING:
    from mcp2026.runtime.context.key_keeper import KeyKeeper
    from mcp2026.runtime.context.span_export import SpanExport

_FIRST_KEYS_SECONDS = 5.0
"""How long a worker waits for its first key set before it serves without."""
_LAST_SPANS_SECONDS = 2.0


class Contexts:
    """The threads behind contexts, and what the rest of a worker uses of them."""

    def __init__(self, settings: Settings, metrics: RuntimeMetrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._keys: KeyKeeper | None = None
        self._spans: SpanExport | None = None
        slow_ms = settings.slow_request_ms
        self.observer = RequestObserver(
            RequestContexts(
                self._tokens(),
                reject=settings.sla_policy == "reject",
                own_class=QosClass(settings.qos_class) if settings.qos_class else None,
                trace_ratio=settings.trace_ratio if settings.otlp_endpoint else None,
                count_token=metrics.sla_token,
            ),
            RequestLog(
                slow_ns=None if slow_ms is None else int(slow_ms * 1e6),
                every=settings.request_log,
                left_out=metrics.log_line_left_out,
            ),
            self._span_export(),
            lambda requests: metrics.spans_dropped("queue_full", requests),
        )

    def ready(self) -> None:
        """Wait until the first keys are there, if there are to be any, but not for long. Blocks."""
        if self._keys is not None:
            self._keys.wait(_FIRST_KEYS_SECONDS)

    def close(self) -> None:
        """Send what is still to be sent, for a short time. Blocks."""
        if self._keys is not None:
            self._keys.close()
        if self._spans is not None:
            self._spans.close(_LAST_SPANS_SECONDS)

    def _tokens(self) -> Tokens | None:
        settings = self._settings
        if settings.sla_keys is None or settings.pod_uid is None:
            return None
        from mcp2026.runtime.context.key_keeper import KeyKeeper
        from mcp2026.runtime.context.key_source import key_source
        from mcp2026.runtime.context.token_check import TokenCheck

        self._keys = KeyKeeper(key_source(settings.sla_keys), self._metrics.sla_key_failure)
        self._keys.start()
        return TokenCheck(self._keys, settings.sla_audience, settings.pod_uid)

    def _span_export(self) -> "SpanExport | None":
        settings = self._settings
        if settings.otlp_endpoint is None:
            return None
        from mcp2026.runtime.context.span_export import SpanExport

        attributes = {"service.name": "mcp2026-server", "host.name": socket.gethostname()}
        if settings.pod_uid is not None:
            attributes["k8s.pod.uid"] = settings.pod_uid
        self._spans = SpanExport(
            settings.otlp_endpoint,
            attributes=attributes,
            failed_to_export=lambda spans: self._metrics.spans_dropped("export_failed", spans),
        )
        self._spans.start()
        return self._spans
