"""Traces and SLA tokens on a real server: HTTP and gRPC side by side, keys that rotate while it serves."""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import numpy as np
import pytest

from mcp2026.api.contract import native_pb2
from mcp2026.api.scheduling_context import QosClass, SlaClaims
from mcp2026.api.sla_token import SigningKey, encode_key_set, generate_signing_key, issue_sla_token
from mcp2026.runtime.protocol.open_inference import open_inference_pb2 as pb
from tests.contract.runtime.server_process import PATIENCE, Server

POD = "6f1d2c3e-0000-4000-8000-000000000001"
AUDIENCE = "mcp2026-runtime"
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE_ID}-{PARENT}-01"
FIRST, SECOND, STRANGER = (generate_signing_key(name) for name in ("first", "second", "stranger"))
GOLD = SlaClaims(QosClass.GUARANTEED, 1, 5, "acme", "gold")
FORM = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class Answer(NamedTuple):
    """What both protocols say of a request."""

    ok: bool
    code: str
    said: dict[str, str]
    """Of the response: headers or trailers, names in lower case."""
    text: str


Ask = Callable[..., Answer]


def token(key: SigningKey = FIRST, pod: str = POD, audience: str = AUDIENCE, age: float = 0) -> str:
    return issue_sla_token(key, GOLD, audience=audience, pod_uid=pod, now=time.time() - age)


def native(server: Server, headers: dict[str, str], body: bytes | None = None) -> Answer:
    content = body or json.dumps({"input": [0.0] * 64, "shape": [1, 64]}).encode()
    reply = server.request("POST", "/v1/infer", content, headers)
    text = "" if reply.status == 200 else reply.error["message"]
    return Answer(reply.status == 200, str(reply.status), reply.headers, text)


def over_http(server: Server, headers: dict[str, str], body: bytes | None = None) -> Answer:
    tensor = {"name": "input", "shape": [1, 64], "datatype": "FP32", "data": [0.0] * 64}
    content = body or json.dumps({"inputs": [tensor]}).encode()
    reply = server.request("POST", "/v2/models/mlp/infer", content, headers)
    text = "" if reply.status == 200 else reply.json["error"]
    return Answer(reply.status == 200, str(reply.status), reply.headers, text)


def over_grpc(server: Server, headers: dict[str, str], body: bytes | None = None) -> Answer:
    request = pb.ModelInferRequest(model_name="mlp" if body is None else "none")
    request.inputs.add(name="input", datatype="FP32", shape=[1, 64])
    request.raw_input_contents.append(np.zeros(64, np.float32).tobytes())
    return unary(server, headers, "/inference.GRPCInferenceService/ModelInfer", request.SerializeToString())


def native_over_grpc(server: Server, headers: dict[str, str], body: bytes | None = None) -> Answer:
    request = native_pb2.InferRequest(
        model="mlp" if body is None else "none",
        input=native_pb2.Values(numbers=[0.0] * 64),
        shape=native_pb2.Shape(sizes=[1, 64]),
    )
    return unary(server, headers, "/mcp2026.v1.InferenceService/Infer", request.SerializeToString())


def unary(server: Server, headers: dict[str, str], path: str, message: bytes) -> Answer:
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        try:
            metadata = tuple(headers.items())
            _, outcome = channel.unary_unary(path).with_call(message, metadata=metadata, timeout=PATIENCE)
        except grpc.RpcError as failed:
            outcome = failed
        said = {str(name): str(value) for name, value in outcome.trailing_metadata() or ()}
        code = outcome.code()
        return Answer(code is grpc.StatusCode.OK, code.name, said, outcome.details() or "")


OVER_GRPC = (over_grpc, native_over_grpc)
WAYS = pytest.mark.parametrize(
    "ask", [native, over_http, *OVER_GRPC], ids=["native", "http", "grpc", "native grpc"]
)


@pytest.fixture(scope="module")
def plain(model: Any) -> Iterator[Server]:
    server = Server("--model-path", str(model("mlp")), "--threads", "1", "--workers", "2")
    yield server
    server.close()


@WAYS
def test_a_request_without_a_trace_is_answered_as_ever(plain: Server, ask: Ask) -> None:
    answer = ask(plain, {"x-mcp-sla-token": "nonsense"})
    assert answer.ok
    assert not {"traceparent", "x-mcp-qos-class"} & answer.said.keys()


@WAYS
def test_a_trace_is_continued_in_the_answer(plain: Server, ask: Ask) -> None:
    first, second = (
        ask(plain, {"traceparent": TRACEPARENT, "x-mcp-qos-class": "Burstable"}).said for _ in range(2)
    )
    assert re.fullmatch(f"00-{TRACE_ID}-[0-9a-f]{{16}}-01", first["traceparent"])
    assert PARENT not in first["traceparent"]
    assert first["traceparent"] != second["traceparent"]
    assert first["x-mcp-qos-class"] == "Burstable"


@WAYS
@pytest.mark.parametrize(
    "header", ["00-" + "0" * 32 + f"-{PARENT}-01", TRACEPARENT.upper(), "nonsense", TRACEPARENT + "-more"]
)
def test_a_malformed_trace_is_a_new_one_and_no_error(plain: Server, ask: Ask, header: str) -> None:
    answer = ask(plain, {"traceparent": header})
    assert answer.ok
    assert FORM.fullmatch(answer.said["traceparent"])
    assert TRACE_ID not in answer.said["traceparent"].lower()


@WAYS
@pytest.mark.parametrize("headers", [{}, {"traceparent": TRACEPARENT}], ids=["no trace", "a trace"])
def test_an_error_names_the_trace_of_its_log_line(plain: Server, ask: Ask, headers: dict[str, str]) -> None:
    answer = ask(plain, headers, b'{"inputs": 7}')
    assert not answer.ok
    _, trace_id, span_id, _ = answer.said["traceparent"].split("-")
    assert (trace_id == TRACE_ID) is bool(headers)
    line = plain.wait_for_log(lambda line: line.get("span_id") == span_id)
    assert line["trace_id"] == trace_id
    assert line["reason"] in ("invalid_argument", "not_found")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nowhere", 404), ("GET", "/v1/infer", 405), ("GET", "/v2/nowhere", 404), ("POST", "/v2", 405)],
)
def test_refusals_before_the_body_name_the_trace_too(
    plain: Server, method: str, path: str, status: int
) -> None:
    for headers in ({}, {"traceparent": TRACEPARENT}):
        reply = plain.request(method, path, b"", headers)
        assert reply.status == status
        assert FORM.fullmatch(reply.headers["traceparent"])
        assert (TRACE_ID in reply.headers["traceparent"]) is bool(headers)


@pytest.mark.parametrize("method", ["Nothing", "ModelMetadata"])
def test_failed_calls_of_other_methods_name_the_trace_too(plain: Server, method: str) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{plain.grpc_port}") as channel:
        call = channel.unary_unary(f"/inference.GRPCInferenceService/{method}")
        for metadata in ((), (("traceparent", TRACEPARENT),)):
            with pytest.raises(grpc.RpcError) as failed:
                call(b"\x0a\x01x", metadata=metadata, timeout=PATIENCE)
            said = dict(failed.value.trailing_metadata())
            assert FORM.fullmatch(said["traceparent"])
            assert (TRACE_ID in said["traceparent"]) is bool(metadata)


def test_a_stream_names_its_trace_at_its_end(plain: Server) -> None:
    request = pb.ModelInferRequest(model_name="mlp")
    request.inputs.add(name="input", datatype="FP32", shape=[1, 64])
    request.raw_input_contents.append(np.zeros(64, np.float32).tobytes())
    with grpc.insecure_channel(f"127.0.0.1:{plain.grpc_port}") as channel:
        stream = channel.stream_stream(
            "/inference.GRPCInferenceService/ModelStreamInfer",
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelStreamInferResponse.FromString,
        )
        call = stream(iter([request] * 3), metadata=(("traceparent", TRACEPARENT),), timeout=PATIENCE)
        assert [answer.error_message for answer in call] == [""] * 3
        assert TRACE_ID in dict(call.trailing_metadata())["traceparent"]


def test_openmetrics_shows_the_trace_of_a_recent_request_and_the_plain_page_does_not(plain: Server) -> None:
    trace_id = "a" * 31 + "1"
    assert native(plain, {"traceparent": f"00-{trace_id}-{PARENT}-01"}).ok
    page = plain.request("GET", "/metrics", None, {"accept": "application/openmetrics-text; version=1.0.0"})
    assert page.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert re.search(
        rb'duration_seconds_bucket\{[^}]*\} \S+ # \{trace_id="%b"\}' % trace_id.encode(), page.body
    )
    assert page.body.endswith(b"# EOF\n")
    plain_page = plain.request("GET", "/metrics")
    assert plain_page.headers["content-type"] == "text/plain; version=1.0.0; charset=utf-8"
    assert b"trace_id" not in plain_page.body


# --- tokens


class Guarded(NamedTuple):
    server: Server
    keys: Path

    def put(self, *keys: SigningKey) -> None:
        """Replace the key set in one step, and wait until the server has seen it."""
        seen = len(self.server.log)
        new = self.keys.with_suffix(".new")
        new.write_bytes(encode_key_set(*keys))
        new.replace(self.keys)
        wanted = sorted(key.key_id for key in keys)
        self.server.wait_for_log(lambda line: line.get("key_ids") == wanted, seen)

    def counted(self, result: str) -> float:
        return self.server.metric("mcp2026_sla_tokens_total", result=result)


def guard(folder: Path, model: Path, policy: str) -> Guarded:
    keys = folder / f"{policy}.json"
    keys.write_bytes(encode_key_set(FIRST))
    server = Server(
        *("--model-path", str(model), "--threads", "1"),
        *("--sla-keys", str(keys), "--sla-policy", policy, "--pod-uid", POD, "--request-log"),
    )
    return Guarded(server, keys)


@pytest.fixture(scope="module")
def guarded(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Guarded]]:
    folder = tmp_path_factory.mktemp("keys")
    made = {policy: guard(folder, model("mlp"), policy) for policy in ("lowest", "reject")}
    yield made
    for one in made.values():
        one.server.close()


def _forged() -> str:
    head, payload, signature = token().split(".")
    return f"{head}.{payload}.{signature[:-4]}AAAA"


BAD_TOKENS = [
    ("missing", lambda: None),
    ("malformed", lambda: "nonsense"),
    ("malformed", lambda: "x" * 5_000),
    ("unsupported_algorithm", lambda: "eyJhbGciOiJub25lIiwia2lkIjoiZmlyc3QifQ.e30."),
    ("unknown_key", lambda: token(STRANGER)),
    ("bad_signature", _forged),
    ("expired", lambda: token(age=931)),
    ("not_yet_valid", lambda: token(age=-60)),
    ("wrong_audience", lambda: token(audience="other")),
    ("wrong_pod", lambda: token(pod="other")),
]


@WAYS
@pytest.mark.parametrize(("reason", "make"), BAD_TOKENS)
def test_a_bad_token_is_served_last_or_refused_and_counted(
    guarded: dict[str, Guarded], ask: Ask, reason: str, make: Callable[[], str | None]
) -> None:
    bad = make()
    headers = {"x-mcp-priority": "1", "x-mcp-tenant-id": "acme", "traceparent": TRACEPARENT}
    headers |= {"x-mcp-sla-token": bad} if bad is not None else {}
    for policy, one in guarded.items():
        before = one.counted(reason)
        answer = ask(one.server, headers)
        span_id = answer.said["traceparent"].split("-")[2]
        line = one.server.wait_for_log(lambda line, span_id=span_id: line.get("span_id") == span_id)
        if policy == "lowest":
            assert answer.ok
            assert (line["priority"], line["tenant"], line["qos_class"]) == (10, "", "BestEffort")
        else:
            assert answer.code in ("401", "UNAUTHENTICATED")
            assert answer.text.startswith(f"x-mcp-sla-token: {reason}")
            assert line["reason"] == "unauthenticated"
            if ask not in OVER_GRPC:
                assert answer.said["www-authenticate"] == 'MCP-SLA-Token realm="mcp2026"'
        assert answer.said["x-mcp-qos-class"] == "BestEffort"
        assert one.counted(reason) == before + 1


@WAYS
def test_what_a_good_token_says_wins_over_the_labels(guarded: dict[str, Guarded], ask: Ask) -> None:
    for one in guarded.values():
        before = one.counted("verified")
        labels = {"x-mcp-priority": "9", "x-mcp-tenant-id": "beta", "x-mcp-qos-class": "BestEffort"}
        answer = ask(one.server, {"x-mcp-sla-token": token(), **labels})
        assert answer.ok
        assert answer.said["x-mcp-qos-class"] == "Guaranteed"
        span_id = answer.said["traceparent"].split("-")[2]
        line = one.server.wait_for_log(lambda line, span_id=span_id: line.get("span_id") == span_id)
        assert (line["priority"], line["tenant"], line["qos_class"]) == (1, "acme", "Guaranteed")
        assert one.counted("verified") == before + 1


def test_keys_rotate_while_the_server_serves(guarded: dict[str, Guarded]) -> None:
    one = guarded["reject"]
    old, new = token(FIRST), token(SECOND)

    def codes() -> list[str]:
        return [over_http(one.server, {"x-mcp-sla-token": each}).code for each in (old, new)]

    assert codes() == ["200", "401"]
    one.put(FIRST, SECOND)
    assert codes() == ["200", "200"]
    one.put(SECOND)
    assert codes() == ["401", "200"]
    one.keys.write_bytes(b"{")
    one.server.wait_for_log(lambda line: "cannot be read" in line["message"])
    assert codes() == ["401", "200"]
    assert one.server.metric("mcp2026_sla_key_failures_total") >= 1
    one.put(FIRST)
    assert codes() == ["200", "401"]
