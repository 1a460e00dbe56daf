"""Spans of a real server as a collector gets them, and a server whose collector is away."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.contract.runtime.server_process import PATIENCE, Server, post
from tests.contract.runtime.span_receiver import SpanReceiver

PARENT = "00f067aa0ba902b7"
INPUT = np.zeros((1, 64), np.float32)


def trace_header(trace_id: str, flags: str = "01") -> dict[str, str]:
    return {"traceparent": f"00-{trace_id}-{PARENT}-{flags}", "tracestate": "vendor=1"}


def infer(server: Server, headers: dict[str, str], **more: Any) -> int:
    body = {"input": INPUT.ravel().tolist(), "shape": list(INPUT.shape), **more}
    return server.request("POST", "/v1/infer", body, headers).status


def attributes(span: Span) -> dict[str, Any]:
    return {one.key: getattr(one.value, str(one.value.WhichOneof("value"))) for one in span.attributes}


@pytest.fixture
def collector() -> Iterator[SpanReceiver]:
    receiver = SpanReceiver()
    yield receiver
    receiver.close()


@pytest.fixture
def traced(collector: SpanReceiver, start: Any) -> Server:
    server: Server = start("mlp", "--otlp-endpoint", collector.url, "--trace-ratio", "0", "--pod-uid", "p-1")
    return server


def test_a_sampled_request_gives_spans_of_its_server_part_its_waiting_and_its_execution(
    collector: SpanReceiver, traced: Server
) -> None:
    trace_id = "a" * 31 + "1"
    assert infer(traced, {}) == 200  # begins here, by the ratio not sampled
    assert infer(traced, trace_header("b" * 32, "00")) == 200  # by its parent not sampled
    headers = trace_header(trace_id) | {"x-mcp-priority": "2", "x-mcp-qos-class": "Burstable"}
    body = {"input": INPUT.ravel().tolist(), "shape": list(INPUT.shape)}
    answer = traced.request("POST", "/v1/infer", body, headers)
    spans = {span.name: span for span in collector.wait_for(3, trace_id)}
    server, queue, execute = spans["infer mlp"], spans["queue"], spans["execute"]
    assert server.span_id.hex() == answer.headers["traceparent"].split("-")[2]
    assert server.parent_span_id.hex() == PARENT
    assert (server.kind, server.trace_state) == (Span.SPAN_KIND_SERVER, "vendor=1")
    assert attributes(server) == {
        "mcp2026.model": "mlp",
        "mcp2026.version": "1",
        "mcp2026.tenant": "",
        "mcp2026.priority": 2,
        "mcp2026.qos_class": "Burstable",
    }
    assert queue.parent_span_id == execute.parent_span_id == server.span_id
    assert server.start_time_unix_nano == queue.start_time_unix_nano
    assert queue.end_time_unix_nano == execute.start_time_unix_nano
    assert execute.end_time_unix_nano <= server.end_time_unix_nano
    (batch,) = [span for span in collector.wait_for(4) if span.name == "batch mlp"]
    assert [(link.trace_id, link.span_id) for link in batch.links] == [(server.trace_id, server.span_id)]
    assert [link.span_id for link in execute.links] == [batch.span_id]
    assert len(collector.spans) == 4
    assert collector.resources[0]["service.name"] == "mcp2026-server"
    assert collector.resources[0]["k8s.pod.uid"] == "p-1"


def test_one_batch_is_linked_to_all_its_requests(collector: SpanReceiver, traced: Server) -> None:
    body = json.dumps({"input": INPUT.ravel().tolist(), "shape": list(INPUT.shape)}).encode()
    ids = [f"{number:032x}" for number in range(1, 9)]
    requests = [post(body, b"traceparent: 00-%b-%b-01" % (one.encode(), PARENT.encode())) for one in ids]
    requests[-1] = requests[-1].replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1)
    assert traced.raw(b"".join(requests)).count(b"HTTP/1.1 200 OK") == 8
    traced.stop()  # what waits is sent before it ends
    batches = [span for span in collector.spans if span.name == "batch mlp"]
    linked = [link.trace_id.hex() for batch in batches for link in batch.links]
    assert sorted(linked) == ids
    assert len(batches) < 8
    assert sum(attributes(batch)["mcp2026.batch.rows"] for batch in batches) == 8


def test_a_request_that_fails_has_a_span_that_says_why(collector: SpanReceiver, traced: Server) -> None:
    trace_id = "c" * 32
    assert infer(traced, trace_header(trace_id), model="none") == 404
    (span,) = collector.wait_for(1, trace_id)
    assert span.status.code == Status.STATUS_CODE_ERROR
    assert attributes(span)["error.type"] == "not_found"


def test_every_trace_that_begins_here_is_sent_if_the_ratio_is_one(
    collector: SpanReceiver, start: Any
) -> None:
    server = start("mlp", "--otlp-endpoint", collector.url + "/v1/traces", "--trace-ratio", "1")
    reply = server.request("POST", "/v2/models/mlp/infer", b"{}")
    _, trace_id, span_id, flags = reply.headers["traceparent"].split("-")
    assert flags == "01"
    (span,) = collector.wait_for(1, trace_id)
    assert span.span_id.hex() == span_id
    assert span.parent_span_id == b""


def test_a_server_goes_on_without_its_collector_counts_what_is_lost_and_finds_it_again(start: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    server = start("mlp", "--otlp-endpoint", f"http://127.0.0.1:{port}")
    assert infer(server, trace_header("d" * 32)) == 200
    server.wait_for_log(lambda line: "takes no spans" in line["message"])
    assert infer(server, trace_header("e" * 32)) == 200
    assert server.metric("mcp2026_spans_dropped_total", reason="export_failed") >= 4
    receiver = SpanReceiver(port)
    try:
        server.wait_until(
            lambda: infer(server, trace_header("f" * 32)) == 200 and receiver.spans, "the collector is found"
        )
        server.wait_for_log(lambda line: "takes spans again" in line["message"])
    finally:
        receiver.close()


def test_nothing_of_opentelemetry_or_of_keys_is_imported_unless_it_is_asked_for() -> None:
    program = "import sys, mcp2026.runtime.process.worker; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True
    ).stdout.split()
    assert "mcp2026.runtime.context.assembly" in modules
    assert not {"opentelemetry", "jwt", "cryptography", "requests"} & set(modules)
