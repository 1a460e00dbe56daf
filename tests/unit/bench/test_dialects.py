"""Each body says the same tensor, and answers in every form are read back to it."""

import base64
import json
from pathlib import Path

import numpy as np
import pytest

from bench import dialects, protobuf
from bench.errors import WrongAnswerError
from bench.samples import Sample
from mcp2026.runtime.protocol.open_inference.open_inference_pb2 import ModelInferRequest, ModelInferResponse
from tools.models import generate

ROWS = np.array([[0.1, -2.5, 3e-7]], np.float32)


def test_json_bodies_bring_back_the_same_float32() -> None:
    for body, key in ((dialects.flat(ROWS)[1], "input"), (dialects.nested(ROWS)[1], "input")):
        assert np.array_equal(np.array(json.loads(body)[key], np.float32).reshape(ROWS.shape), ROWS)
    v2 = json.loads(dialects.v2_json(ROWS)[1])["inputs"][0]
    assert np.array_equal(np.array(v2["data"], np.float32).reshape(v2["shape"]), ROWS)


def test_numbers_are_sent_as_short_as_clients_send_them() -> None:
    assert b"[0.1,-2.5,3e-07]" in dialects.flat(ROWS)[1]


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (dialects.flat(ROWS), b'{"output":[1.5,2.5],"shape":[1,2]}'),
        (dialects.nested(ROWS), b'{"output":[[1.5,2.5]]}'),
        (dialects.v2_json(ROWS), b'{"outputs":[{"name":"output","data":[1.5,2.5]}]}'),
        (dialects.v2_binary(ROWS), b'{"outputs":[{"name":"output","data":[1.5,2.5]}]}'),
        (dialects.octets(ROWS), np.array([1.5, 2.5], np.float32).tobytes()),
        (
            dialects.base64_in_json(ROWS),
            json.dumps(
                {"output": base64.b64encode(np.array([1.5, 2.5], np.float32).tobytes()).decode()}
            ).encode(),
        ),
    ],
)
def test_answers_are_read(message: dialects.Message, answer: bytes) -> None:
    decode = message[2]
    assert decode({}, answer).ravel().tolist() == [1.5, 2.5]


def test_a_binary_answer_is_read_behind_its_json() -> None:
    head = b'{"outputs":[]}'
    headers = {dialects.JSON_LENGTH: str(len(head))}
    decode = dialects.v2_binary(ROWS)[2]
    assert decode(headers, head + ROWS.tobytes()).tolist() == ROWS[0].tolist()


def test_a_binary_request_says_where_its_json_ends() -> None:
    headers, body, _ = dialects.v2_binary(ROWS)
    length = int(dict(headers)[dialects.JSON_LENGTH])
    assert json.loads(body[:length])["inputs"][0]["parameters"]["binary_data_size"] == len(body) - length
    assert body[length:] == ROWS.tobytes()


def test_the_grpc_request_is_what_the_protocols_own_code_reads() -> None:
    request = ModelInferRequest.FromString(dialects.v2_grpc("mlp", np.zeros((1, 300), np.float32))[1])
    assert request.model_name == "mlp"
    (tensor,) = request.inputs
    assert (tensor.name, tensor.datatype, list(tensor.shape)) == ("input", "FP32", [1, 300])
    assert request.raw_input_contents[0] == bytes(1200)


def test_grpc_answers_are_read_with_raw_and_with_typed_contents() -> None:
    raw = ModelInferResponse(model_name="mlp", raw_output_contents=[ROWS.tobytes()])
    typed = ModelInferResponse(model_name="mlp", id="7")
    tensor = typed.outputs.add(name="output", datatype="FP32", shape=[1, 3])
    tensor.contents.fp32_contents.extend(ROWS[0].tolist())
    for answer in (raw, typed):
        assert np.array_equal(protobuf.infer_response_output(answer.SerializeToString()), ROWS[0])


@pytest.mark.parametrize(
    "message", [b"", b"\x32\xff", b"\xff", ModelInferResponse(id="x").SerializeToString()]
)
def test_a_grpc_answer_without_a_tensor_is_wrong(message: bytes) -> None:
    with pytest.raises(WrongAnswerError):
        protobuf.infer_response_output(message)


def test_only_the_right_answer_is_accepted(tmp_path: Path) -> None:
    sample = Sample("add", generate("add", tmp_path))
    assert sample.accepts(sample.row + 1)
    assert sample.accepts((sample.row + 1).ravel() * np.float32(1.0001))
    assert not sample.accepts(sample.row)
    assert not sample.accepts((sample.row + 1)[:, :8])
    assert not sample.accepts(np.full_like(sample.row, np.nan))
