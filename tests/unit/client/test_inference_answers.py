"""Questions for inferences have this form; answers that make no sense are told from those that do."""

import json
from typing import Any

import numpy as np
import pytest

from mcp2026.client.errors import ClientError, InvalidRequestError, ProtocolError
from mcp2026.client.exchange import GrpcResponse, HttpResponse
from mcp2026.client.open_inference import open_inference_pb2 as messages
from mcp2026.client.operations.inference import Inference

ROWS = np.arange(4, dtype=np.float32).reshape(2, 2)
LENGTH = "inference-header-content-length"


def answer(outputs: Any, tail: bytes = b"", length: str | None = None, **more: Any) -> HttpResponse:
    head = json.dumps({"model_name": "m", "model_version": "1", "outputs": outputs, **more}).encode()
    headers = {LENGTH: str(len(head)) if length is None else length}
    return HttpResponse(200, headers, bytearray(head + tail))


def output(name: str = "y", size: Any = 16, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "datatype": "FP32",
        "shape": [2, 2],
        "parameters": {"binary_data_size": size},
        **more,
    }


def question(**more: Any) -> Inference:
    return Inference({"x": ROWS}, **{"model": "m", **more})


def test_a_question_in_the_binary_form() -> None:
    asked = question(
        model="a/b",
        version="v 2",
        outputs=("y",),
        priority=1,
        tenant="acme",
        request_id="r",
        headers=(("traceparent", "t"),),
    )
    request = asked.http_request(0.25)
    assert (request.method, request.path) == ("POST", "/v2/models/a%2Fb/versions/v%202/infer")
    head, tensor = request.body
    assert dict(request.headers) == {
        "content-type": "application/octet-stream",
        LENGTH: str(len(head)),
        "traceparent": "t",
        "x-mcp-tenant-id": "acme",
    }
    assert json.loads(bytes(head)) == {
        "id": "r",
        "inputs": [
            {"name": "x", "shape": [2, 2], "datatype": "FP32", "parameters": {"binary_data_size": 16}}
        ],
        "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
        "parameters": {"timeout": 250_000, "priority": 1},
    }
    assert bytes(tensor) == ROWS.tobytes()


def test_a_question_as_a_message() -> None:
    asked = question(version="v2", outputs=("y",), priority=1, tenant="acme", request_id="r").grpc_request(
        0.25
    )
    message = messages.ModelInferRequest.FromString(asked.message)
    assert (message.model_name, message.model_version, message.id) == ("m", "v2", "r")
    assert message.parameters["timeout"].int64_param == 250_000
    assert message.parameters["priority"].uint64_param == 1
    assert [(tensor.name, tensor.datatype, list(tensor.shape)) for tensor in message.inputs] == [
        ("x", "FP32", [2, 2])
    ]
    assert list(message.raw_input_contents) == [ROWS.tobytes()]
    assert [wanted.name for wanted in message.outputs] == ["y"]
    assert asked.metadata == (("x-mcp-tenant-id", "acme"),)


def test_the_same_question_has_the_same_bytes() -> None:
    first, second = question(priority=3), question(priority=3)
    assert first.http_request(0.5).body == second.http_request(0.5).body
    assert first.grpc_request(0.5) == second.grpc_request(0.5)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"model": ""}, "model"),
        ({"priority": -1}, "priority"),
        ({"priority": 2**63}, "priority"),
        ({"tenant": ""}, "tenant"),
        ({"tenant": "a" * 64}, "tenant"),
        ({"tenant": "a\r\nb"}, "tenant"),
        ({"tenant": "ü"}, "tenant"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_it_is_sent(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        question(**wrong)
    assert refused.value.field == field
    assert refused.value.allowed


def test_outputs_come_in_binary_in_json_or_both() -> None:
    as_json = {"name": "z", "datatype": "INT64", "shape": [2], "data": [1, 2]}
    result = question().http_answer(answer([output(), as_json], ROWS.tobytes(), id="r"))
    assert list(result) == ["y", "z"]
    np.testing.assert_array_equal(result["y"], ROWS)
    np.testing.assert_array_equal(result["z"], [1, 2])
    for read in (result.__getitem__, result.text):
        with pytest.raises(KeyError, match="no output 'a'; there are y, z"):
            read("a")
    assert (result.model, result.version, result.request_id, len(result)) == ("m", "1", "r", 2)
    assert repr(result) == "InferenceResult(m/1, y: float32[2, 2], z: int64[2])"


def test_a_server_that_has_no_binary_form_answers_in_json() -> None:
    output = {"name": "z", "datatype": "INT64", "shape": [2], "parameters": None, "data": [1, 2]}
    body = {"id": None, "model_name": None, "model_version": None, "outputs": [output]}
    result = question().http_answer(HttpResponse(200, {}, bytearray(json.dumps(body).encode())))
    assert result["z"].tolist() == [1, 2]
    assert (result.model, result.version) == ("m", "")


@pytest.mark.parametrize(
    "response",
    [
        HttpResponse(200, {}, bytearray(b"")),
        HttpResponse(200, {}, bytearray(b"[]")),
        HttpResponse(200, {}, bytearray(b"{}")),
        HttpResponse(200, {}, bytearray(b"\xff")),
        HttpResponse(302, {}, bytearray(b"")),
        answer(None),
        answer("y"),
        answer([7]),
        answer([{"name": "y"}]),
        answer([output()], b""),
        answer([output()], bytes(15)),
        answer([output()], bytes(17)),
        answer([output(size=-1)], bytes(16)),
        answer([output(size="16")], bytes(16)),
        answer([output(shape=[2, -2])], bytes(16)),
        answer([output(shape="2")], bytes(16)),
        answer([output(datatype="FP12")], bytes(16)),
        answer([output(datatype=None)], bytes(16)),
        answer([output(name={})], bytes(16)),
        answer([], length="9999"),
        answer([], length="-1"),
        answer([], length="x"),
        answer([], length="1"),
    ],
)
def test_an_answer_that_makes_no_sense_is_a_protocol_error(response: HttpResponse) -> None:
    with pytest.raises(ProtocolError):
        question().http_answer(response)


@pytest.mark.parametrize(
    "message",
    [
        b"\xff",
        messages.ModelInferResponse(
            outputs=[{"name": "y", "datatype": "FP32", "shape": [1]}]
        ).SerializeToString(),
        messages.ModelInferResponse(
            outputs=[{"name": "y", "datatype": "FP32", "shape": [2]}], raw_output_contents=[bytes(4)]
        ).SerializeToString(),
        messages.ModelInferResponse(raw_output_contents=[bytes(4)]).SerializeToString(),
    ],
)
def test_a_message_that_makes_no_sense_is_a_protocol_error(message: bytes) -> None:
    with pytest.raises(ProtocolError):
        question().grpc_answer(GrpcResponse(message, {}))


def test_a_refusal_is_the_error_that_it_says() -> None:
    with pytest.raises(ClientError, match="too many") as refused:
        question().http_answer(HttpResponse(503, {"retry-after": "1"}, bytearray(b'{"error": "too many"}')))
    assert refused.value.retry_after == 1.0  # type: ignore[attr-defined]
