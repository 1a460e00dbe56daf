"""A collector that takes spans by OTLP over HTTP, and remembers them."""

import gzip
import http.server
import threading
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.contract.runtime.server_process import PATIENCE


class SpanReceiver(http.server.ThreadingHTTPServer):
    """Listens on a free port of its own, or on `port`."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.spans: list[Span] = []
        self.resources: list[dict[str, str]] = []
        self.news = threading.Condition()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def take(self, request: ExportTraceServiceRequest) -> None:
        with self.news:
            for resource in request.resource_spans:
                attributes = resource.resource.attributes
                self.resources.append({one.key: one.value.string_value for one in attributes})
                for scope in resource.scope_spans:
                    self.spans += scope.spans
            self.news.notify_all()

    def wait_for(self, count: int, trace_id: str | None = None) -> list[Span]:
        """Return the spans of a trace, or all, once there are so many."""

        def found() -> list[Span]:
            wanted = bytes.fromhex(trace_id) if trace_id is not None else None
            return [span for span in self.spans if wanted in (None, span.trace_id)]

        with self.news:
            assert self.news.wait_for(lambda: len(found()) >= count, PATIENCE), self.spans
            return found()

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: SpanReceiver

    def do_POST(self) -> None:
        assert self.path == "/v1/traces"
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.take(ExportTraceServiceRequest.FromString(body))
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        pass
