"""Inference over HTTP: what clients send is understood, what is wrong is named, whatever the bytes are."""

import gzip
import json
import zlib
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.protocol.inflating import Room
from mcp2026.runtime.protocol.open_inference.compression import accepted, compress, decompress
from mcp2026.runtime.protocol.open_inference.http_answers import BINARY, HEADER_LENGTH, HttpAnswers
from mcp2026.runtime.protocol.open_inference.http_codec import (
    compressed,
    decode_infer,
    encode_infer,
)
from mcp2026.runtime.protocol.open_inference.http_plans import HttpPlans
from mcp2026.runtime.protocol.open_inference.requests import InferRequest
from mcp2026.runtime.shared_memory.regions import SharedMemoryRegions
from tests.unit.runtime.signatures import LEVELS, LIMITS, tensor, version

REGIONS = SharedMemoryRegions()
KNOWN = HttpPlans()
TWO = version(
    (tensor("a", "FP32", None, 3), tensor("s", "BYTES", None, 1)),
    (tensor("y", "FP32", None, 3), tensor("t", "BYTES", None, 1)),
)
ONE = version((tensor("x", "FP32", None, 3),), (tensor("y", "FP32", None, 3),))


def decode(
    body: bytes | dict[str, Any], *blobs: bytes, target: Any = TWO, **headers: bytes
) -> InferRequest[HttpAnswers]:
    sent = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    if isinstance(body, dict):
        text = json.dumps(body).encode()
        if blobs:
            sent[HEADER_LENGTH] = b"%d" % len(text)
        body = b"".join([text, *blobs])
    request = decode_infer(body, sent, target, REGIONS, LIMITS, LEVELS, KNOWN)
    again = decode_infer(body, sent, target, REGIONS, LIMITS, LEVELS, KNOWN)  # now it is known
    for field in ("rows", "outputs", "id", "wanted"):
        assert getattr(again, field) == getattr(request, field)
    assert [array.tolist() for array in again.inputs] == [array.tolist() for array in request.inputs]
    return again


def refused(body: bytes | dict[str, Any], *blobs: bytes, **more: Any) -> RequestError:
    with pytest.raises(RequestError) as refusal:
        decode(body, *blobs, **more)
    return refusal.value


def json_input(name: str = "x", **changes: Any) -> dict[str, Any]:
    return {"name": name, "shape": [2, 3], "datatype": "FP32", "data": [1, 2, 3, 4, 5, 6]} | changes


def test_binary_tensors_follow_the_json_in_its_order_and_are_not_copied() -> None:
    strings = b"\x01\x00\x00\x00p\x02\x00\x00\x00qr"
    numbers = np.arange(6, dtype=np.float32)
    request = decode(
        {
            "id": "one",
            "inputs": [
                {
                    "name": "s",
                    "shape": [2, 1],
                    "datatype": "BYTES",
                    "parameters": {"binary_data_size": len(strings)},
                },
                {"name": "a", "shape": [2, 3], "datatype": "FP32", "parameters": {"binary_data_size": 24}},
            ],
            "parameters": {"binary_data_output": True, "priority": 3, "timeout": 2_000, "mine": "yes"},
        },
        strings,
        numbers.tobytes(),
    )
    a, s = request.inputs
    assert a.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert not a.flags.owndata
    assert s.tolist() == [[b"p"], [b"qr"]]
    assert (request.rows, request.id) == (2, "one")
    assert request.wanted == (3, 2_000_000, "")
    assert [output.binary for output in request.outputs] == [True, True]


def test_json_alone_is_enough_also_with_the_header_that_some_clients_always_send() -> None:
    body = json.dumps({"inputs": [json_input()]}).encode()
    for headers in ({}, {"inference_header_content_length": b"%d" % len(body)}):
        request = decode(body, target=ONE, **headers)
        assert request.inputs[0].tolist() == [[1, 2, 3], [4, 5, 6]]
        assert request.outputs[0].binary is False


def test_header_0_means_one_row_of_the_only_input() -> None:
    row = np.array([1, 2, 3], np.float32)
    request = decode(row.tobytes(), target=ONE, inference_header_content_length=b"0")
    assert request.inputs[0].tolist() == [[1, 2, 3]]
    assert request.outputs[0].binary

    text = version((tensor("s", "BYTES", None, 1),), (tensor("y", "FP32", None),))
    raw = decode(b"free text", target=text, inference_header_content_length=b"0")
    assert raw.inputs[0].tolist() == [[b"free text"]]

    sound = version((tensor("w", "INT16", None),), (tensor("y", "FP32", None),), shared=False)
    wave = decode(b"\x01\x00\x02\x00", target=sound, inference_header_content_length=b"0")
    assert wave.inputs[0].tolist() == [1, 2]


def test_a_request_may_have_more_rows_than_a_run() -> None:
    assert decode({"inputs": [json_input(shape=[9, 3], data=[0] * 27)]}, target=ONE).rows == 9


def test_inputs_with_different_rows_are_refused() -> None:
    texts = json_input("s", datatype="BYTES", shape=[1, 1], data=["p"])
    assert refused({"inputs": [json_input("a"), texts]}).field == "shape"


def test_the_tenant_and_the_priority_can_come_from_headers() -> None:
    body = {"inputs": [json_input()]}
    assert decode(body, target=ONE, x_mcp_tenant_id=b"acme", x_mcp_priority=b"2").wanted[::2] == (2, "acme")
    assert decode(body, target=ONE, x_mcp_priority=b"11").wanted.priority == 0
    with pytest.raises(RequestError, match=r"^x-mcp-priority: 'high' is not accepted"):
        decode(body, target=ONE, x_mcp_priority=b"high")


@pytest.mark.parametrize(
    ("changes", "field", "problem"),
    [
        ({"name": "z"}, "inputs", "no input 'z'"),
        ({"datatype": "FP64"}, "inputs.x.datatype", "not what it takes"),
        ({"datatype": "nonsense"}, "inputs.x.datatype", "not what it takes"),
        ({"shape": [2, 4]}, "inputs.x.shape", "does not fit"),
        ({"shape": [-2, -3]}, "inputs.x.shape", ""),
        ({"shape": [0, 3]}, "inputs.x.shape", ""),
        ({"shape": [2**40, 3]}, "inputs.x.shape", "too many values"),
        ({"shape": [6]}, "inputs.x.shape", "1 dimensions"),
        ({"shape": [1] * 70}, "inputs.x.shape", "70 dimensions"),
        ({"shape": [2**70, 3]}, "inputs.x.shape", ""),
        ({"shape": "x"}, "inputs[0].shape", "Expected `array`"),
        ({"shape": [3, 3]}, "inputs.x.data", "holds 6 values"),
        ({"parameters": {"binary_data_size": 24}}, "inputs.x", "nowhere or twice"),
        ({"parameters": {"classification": [1]}}, "inputs[0].parameters[...]", "Expected"),
        ({"parameters": {"shared_memory_region": "r"}}, "inputs.x.shared_memory_byte_size", "is missing"),
        (
            {"parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 24}},
            "shared_memory_region",
            "no shared memory region 'r'",
        ),
        (
            {"parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 10**9}},
            "inputs.x.shared_memory_byte_size",
            "too much",
        ),
        (
            {"parameters": {"shared_memory_region": "r", "shared_memory_byte_size": -1}},
            "inputs.x.shared_memory_byte_size",
            "",
        ),
    ],
)
def test_an_input_that_does_not_fit_is_named(changes: dict[str, Any], field: str, problem: str) -> None:
    error = refused({"inputs": [json_input(**changes)]}, target=ONE)
    assert error.field == field
    assert problem in error.message


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({}, "body"),
        ({"inputs": []}, "inputs"),
        ({"inputs": [json_input(), json_input()]}, "inputs"),
        ({"inputs": [json_input()], "outputs": [{"name": "z"}]}, "outputs"),
        ({"inputs": [json_input()], "outputs": [{"name": "y"}, {"name": "y"}]}, "outputs"),
        ({"inputs": [json_input()], "outputs": [{}]}, "outputs[0]"),
        ({"inputs": [json_input()], "parameters": {"sequence_id": 5}}, "parameters.sequence_id"),
        ({"inputs": [json_input()], "parameters": {"sequence_start": True}}, "parameters.sequence_start"),
        ({"inputs": [json_input()], "parameters": {"priority": "high"}}, "parameters.priority"),
        ({"inputs": [json_input()], "parameters": {"timeout": -1}}, "parameters.timeout"),
        ({"inputs": [json_input()], "parameters": {"triton_x": 1}}, "parameters.triton_x"),
        (
            {"inputs": [json_input()], "parameters": {"binary_data_output": 1}},
            "parameters.binary_data_output",
        ),
        ({"inputs": [json_input()], "id": 7}, "id"),
        (
            {
                "inputs": [json_input()],
                "outputs": [{"name": "y", "parameters": {"classification": 1, "shared_memory_region": "r"}}],
            },
            "outputs.y.parameters.shared_memory_byte_size",
        ),
    ],
)
def test_a_request_that_lacks_or_repeats_something_is_named(document: dict[str, Any], field: str) -> None:
    assert refused(document, target=ONE).field == field


@pytest.mark.parametrize(
    ("sent", "announced", "field"),
    [
        (20, 24, "body"),
        (28, 24, "body"),
        (20, 20, "inputs.x (binary data)"),
        (24, -1, "inputs.x.binary_data_size"),
        (24, 10**30, "inputs.x.binary_data_size"),
        (24, "24", "inputs.x.binary_data_size"),
    ],
)
def test_binary_data_of_another_size_is_refused(sent: int, announced: Any, field: str) -> None:
    tensors = [json_input(parameters={"binary_data_size": announced})]
    del tensors[0]["data"]
    assert refused({"inputs": tensors}, bytes(sent), target=ONE).field == field


@pytest.mark.parametrize("length", [b"-1", b"x", b"", b"99999", b"9" * 40, b"0x10", b"1.0"])
def test_a_header_length_that_is_none_is_refused(length: bytes) -> None:
    error = refused(
        json.dumps({"inputs": [json_input()]}).encode(), target=ONE, inference_header_content_length=length
    )
    assert error.field == HEADER_LENGTH.decode()


def test_the_answer_has_a_version_as_text_and_flat_data() -> None:
    request = decode({"id": "q", "inputs": [json_input()]}, target=ONE)
    response = encode_infer(request, [np.arange(6, dtype=np.float32).reshape(2, 3)])
    assert response.content_type == b"application/json"
    assert response.headers == ()
    assert json.loads(response.body) == {
        "model_name": "m",
        "model_version": "7",
        "id": "q",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [2, 3], "data": [0, 1, 2, 3, 4, 5]}],
    }


def test_binary_outputs_follow_the_json_and_only_they_make_it_binary() -> None:
    tensors = [json_input("a"), json_input("s", datatype="BYTES", shape=[2, 1], data=["p", "q"])]
    request = decode(
        {"inputs": tensors, "outputs": [{"name": "t", "parameters": {"binary_data": True}}, {"name": "y"}]}
    )
    y = np.arange(6, dtype=np.float32).reshape(2, 3)
    response = encode_infer(request, [y, np.array([["ä"], [b"\xff"]], object)])
    headers = dict(response.headers)
    length = int(headers[HEADER_LENGTH])
    document = json.loads(response.body[:length])
    assert response.content_type == BINARY
    assert [output["name"] for output in document["outputs"]] == ["t", "y"]
    assert document["outputs"][0]["parameters"] == {"binary_data_size": 11}
    assert document["outputs"][1]["data"] == [0, 1, 2, 3, 4, 5]
    assert response.body[length:] == b"\x02\x00\x00\x00\xc3\xa4\x01\x00\x00\x00\xff"


def test_classification_answers_the_highest_values_of_each_row() -> None:
    request = decode(
        {"inputs": [json_input()], "outputs": [{"name": "y", "parameters": {"classification": 2}}]},
        target=ONE,
    )
    response = encode_infer(request, [np.array([[1, 3, 3], [np.nan, 0, -1]], np.float32)])
    (output,) = json.loads(response.body)["outputs"]
    assert output["datatype"] == "BYTES"
    assert output["shape"] == [2, 2]
    assert output["data"] == ["3.000000:1", "3.000000:2", "0.000000:1", "-1.000000:2"]


def test_an_answer_is_compressed_as_a_whole() -> None:
    request = decode({"inputs": [json_input(shape=[1, 3], data=[1, 2, 3])]}, target=ONE)
    plain = encode_infer(request, [np.zeros((1, 3_000), np.float32)])
    for encoding, read in (("gzip", gzip.decompress), ("deflate", zlib.decompress)):
        response = compressed(plain, encoding)
        assert (b"content-encoding", encoding.encode()) in response.headers
        assert read(response.body) == plain.body


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_compressed_body_is_bounded_and_whole(encoding: str) -> None:
    room = Room(1_000)
    bomb = compress(bytes(10_000_000), encoding)
    with pytest.raises(RequestError) as refusal:
        decompress(bomb, encoding, 1_000, room)
    assert refusal.value.code is ErrorCode.BODY_TOO_LARGE
    with pytest.raises(RequestError) as refusal:
        decompress(bomb, encoding, 10_000_000, room)
    assert refusal.value.code is ErrorCode.QUEUE_FULL
    body = compress(b"content", encoding)
    assert decompress(body, encoding, 7, room) == b"content"
    for wrong in (body[:-1], body + b"x", b"content", b""):
        with pytest.raises(RequestError):
            decompress(wrong, encoding, 100, room)


def test_the_encoding_with_the_highest_weight_is_taken() -> None:
    assert accepted(b"gzip, deflate, br") == "gzip"
    assert accepted(b"*;q=0.1, deflate;q=0.3, gzip;q=0.2") == "deflate"
    assert accepted(b"br, identity;q=1, gzip;q=0") is None
    assert accepted(b"gzip;q=nonsense") is None


words = st.text(max_size=4)
values = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), words)
junk = st.recursive(
    values, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4)
)
numbers = st.one_of(st.integers(-5, 5), st.sampled_from([2**31, 2**62, 2**63, 2**64, 10**30]), values)
parameters = st.dictionaries(
    st.sampled_from(
        [
            "binary_data_size",
            "binary_data",
            "classification",
            "shared_memory_region",
            "shared_memory_offset",
            "shared_memory_byte_size",
            "priority",
            "timeout",
            "sequence_id",
        ]
    ),
    numbers,
    max_size=3,
)
tensors = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["a", "s", "x"]) | words,
        "shape": st.lists(numbers, max_size=4) | st.sampled_from([[1, 3], [2, 1]]),
        "datatype": st.sampled_from(["FP32", "BYTES", "INT8"]),
    },
    optional={"data": junk | st.sampled_from([[1, 2, 3], ["p", "q"]]), "parameters": parameters},
)
documents = st.fixed_dictionaries(
    {"inputs": st.lists(tensors, max_size=3)},
    optional={
        "outputs": st.lists(
            st.fixed_dictionaries({"name": st.sampled_from(["y", "t"])}, optional={"parameters": parameters}),
            max_size=3,
        ),
        "parameters": parameters,
        "id": values,
    },
)


def survives(body: bytes, headers: dict[bytes, bytes]) -> None:
    for target in (ONE, TWO):
        with suppress(RequestError):  # any other exception fails the test
            assert decode_infer(body, headers, target, REGIONS, LIMITS, LEVELS, KNOWN).rows >= 1


@given(documents | junk, st.binary(max_size=40), st.integers(-3, 3), st.booleans())
def test_whatever_is_sent_gets_an_answer_in_words(document: Any, blob: bytes, shift: int, cut: bool) -> None:
    text = json.dumps(document).encode()
    body = text + blob
    length = max(0, len(text) + shift)
    survives(body, {HEADER_LENGTH: b"%d" % length})
    survives(body[: len(body) // 2] if cut else body, {})


@given(st.binary(max_size=200), st.sampled_from([b"0", b"1", b"17", None]))
def test_bytes_of_any_kind_get_an_answer_in_words(body: bytes, length: bytes | None) -> None:
    survives(body, {} if length is None else {HEADER_LENGTH: length})


def test_plans_are_forgotten_before_they_fill_the_memory() -> None:
    known = HttpPlans(most=3, longest=400)
    for number in range(20):
        document = {"inputs": [json_input(parameters={"binary_data_size": 24, "n": number})]}
        del document["inputs"][0]["data"]
        text = json.dumps(document).encode()
        headers = {HEADER_LENGTH: b"%d" % len(text)}
        decode_infer(text + bytes(24), headers, ONE, REGIONS, LIMITS, LEVELS, known)
        assert known.count(ONE) <= 3
    assert known.find(ONE, text)[0] is not None
    assert known.find(TWO, text)[0] is None
    assert known.find(ONE, bytes(401))[0] is None


def test_the_data_of_one_request_is_never_that_of_the_next() -> None:
    for data in ([1] * 6, [2] * 6):
        assert decode({"inputs": [json_input(data=data)]}, target=ONE).inputs[0].tolist()[0][0] == data[0]
