"""Inference over gRPC: read and written as protobuf does it, whatever the order of the fields."""

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2 as client

from mcp2026.runtime.errors import RequestError
from mcp2026.runtime.protocol.open_inference import open_inference_pb2 as messages
from mcp2026.runtime.protocol.open_inference.grpc_answers import GrpcAnswers
from mcp2026.runtime.protocol.open_inference.grpc_codec import (
    Inference,
    KnownMessages,
    decode_infer,
    encode_infer,
)
from mcp2026.runtime.protocol.open_inference.requests import InferRequest
from mcp2026.runtime.protocol.open_inference.wire import bytes_field, split_request, varint
from mcp2026.runtime.shared_memory.regions import SharedMemoryRegions
from tests.unit.runtime.signatures import LEVELS, LIMITS, tensor, version

REGIONS = SharedMemoryRegions()
KNOWN = KnownMessages()
ONE = version((tensor("x", "FP32", None, 3),), (tensor("y", "FP32", None, 3), tensor("t", "BYTES", None)))


def ask(target: Any = ONE, raw: tuple[bytes, ...] = (), **fields: Any) -> client.ModelInferRequest:
    message = client.ModelInferRequest(model_name="m", **fields)
    message.raw_input_contents.extend(raw)
    return message


def decode(
    message: Any, target: Any = ONE, metadata: dict[bytes, bytes] | None = None
) -> InferRequest[GrpcAnswers]:
    content = message if isinstance(message, bytes) else message.SerializeToString()
    more = (metadata or {}, target, REGIONS, LIMITS, LEVELS, KNOWN)
    request = decode_infer(Inference(content), *more)
    again = decode_infer(Inference(content, KNOWN), *more)  # now it is known
    for field in ("rows", "outputs", "id", "wanted"):
        assert getattr(again, field) == getattr(request, field)
    assert [array.tolist() for array in again.inputs] == [array.tolist() for array in request.inputs]
    return again


def x(**changes: Any) -> Any:
    return client.ModelInferRequest.InferInputTensor(
        **({"name": "x", "datatype": "FP32", "shape": [2, 3]} | changes)
    )


def parameter(**choice: Any) -> client.InferParameter:
    return client.InferParameter(**choice)


def test_raw_inputs_are_views_of_the_message() -> None:
    numbers = np.arange(6, dtype=np.float32)
    message = ask(inputs=[x()], raw=(numbers.tobytes(),), id="one")
    message.parameters["priority"].uint64_param = 3
    message.parameters["timeout"].int64_param = 5
    message.parameters["mine"].string_param = "yes"
    request = decode(message, metadata={b"x-mcp-tenant-id": b"acme"})
    assert request.inputs[0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert not request.inputs[0].flags.owndata
    assert request.wanted == (3, 5_000, "acme")
    assert (request.id, request.rows, len(request.outputs)) == ("one", 2, 2)


@pytest.mark.parametrize(
    ("datatype", "field", "values"),
    [
        ("BOOL", "bool_contents", [True, False]),
        ("INT8", "int_contents", [-128, 127]),
        ("INT16", "int_contents", [-1, 1]),
        ("INT32", "int_contents", [-(2**31), 1]),
        ("INT64", "int64_contents", [-(2**63), 1]),
        ("UINT8", "uint_contents", [0, 255]),
        ("UINT16", "uint_contents", [0, 1]),
        ("UINT32", "uint_contents", [0, 2**32 - 1]),
        ("UINT64", "uint64_contents", [0, 2**64 - 1]),
        ("FP16", "fp32_contents", [1.5, -2]),
        ("FP32", "fp32_contents", [1.5, -2]),
        ("FP64", "fp64_contents", [0.1, -2]),
        ("BYTES", "bytes_contents", [b"p", "ä".encode()]),
    ],
)
def test_typed_contents_are_taken_for_every_datatype(datatype: str, field: str, values: list[Any]) -> None:
    target = version((tensor("x", datatype, None),), (tensor("y", datatype, None),))
    contents = client.InferTensorContents(**{field: values})
    request = decode(ask(inputs=[x(datatype=datatype, shape=[2], contents=contents)]), target)
    assert request.inputs[0].tolist() == values


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (ask(inputs=[x()]), "inputs.x.contents.fp32_contents"),
        (ask(inputs=[x()], raw=(bytes(20),)), "inputs.x"),
        (ask(inputs=[x()], raw=(bytes(24), b"")), "raw_input_contents"),
        (ask(inputs=[], raw=(b"",)), "inputs"),
        (ask(inputs=[x(), x()], raw=(bytes(24), bytes(24))), "inputs"),
        (
            ask(inputs=[x(contents=client.InferTensorContents(fp32_contents=[1]))], raw=(bytes(24),)),
            "inputs.x.contents",
        ),
        (ask(inputs=[x(shape=[-1, -24])], raw=(bytes(24),)), "inputs.x.shape"),
        (ask(inputs=[x(shape=[2**62, 3])], raw=(bytes(24),)), "inputs.x.shape"),
        (
            ask(inputs=[x(parameters={"classification": parameter()})], raw=(bytes(24),)),
            "parameters.classification",
        ),
        (
            ask(inputs=[x()], raw=(bytes(24),), parameters={"sequence_id": parameter(int64_param=1)}),
            "parameters.sequence_id",
        ),
        (
            ask(inputs=[x()], raw=(bytes(24),), parameters={"priority": parameter(double_param=1.0)}),
            "parameters.priority",
        ),
        (b"\xff\xff", "message"),
        (b"\x0a\x05m", "message"),
    ],
)
def test_what_does_not_fit_is_named(message: Any, field: str) -> None:
    with pytest.raises(RequestError) as refusal:
        decode(message)
    assert refusal.value.field == field


def test_strings_that_onnx_cannot_hold_are_the_clients_mistake() -> None:
    target = version((tensor("x", "BYTES", None),), (tensor("y", "BYTES", None),))
    contents = client.InferTensorContents(bytes_contents=[b"\xff"])
    for message in (
        ask(inputs=[x(datatype="BYTES", shape=[1], contents=contents)]),
        ask(inputs=[x(datatype="BYTES", shape=[1])], raw=(b"\x01\x00\x00\x00\xff",)),
    ):
        with pytest.raises(RequestError, match="UTF-8"):
            decode(message, target)


def test_the_answer_is_what_a_client_reads() -> None:
    request = decode(ask(inputs=[x()], raw=(bytes(24),), id="q"))
    y = np.arange(6, dtype=np.float32).reshape(2, 3)[:, ::-1]
    parts = encode_infer(request, [y, np.array(["p", b"q"], object)], final=True)
    answer = client.ModelInferResponse.FromString(b"".join(parts))
    assert (answer.model_name, answer.model_version, answer.id) == ("m", "7", "q")
    assert answer.parameters["triton_final_response"].bool_param
    assert [(o.name, o.datatype, list(o.shape)) for o in answer.outputs] == [
        ("y", "FP32", [2, 3]),
        ("t", "BYTES", [2]),
    ]
    assert np.frombuffer(answer.raw_output_contents[0], np.float32).tolist() == [2, 1, 0, 5, 4, 3]
    assert answer.raw_output_contents[1] == b"\x01\x00\x00\x00p\x01\x00\x00\x00q"


def test_classes_are_answered_as_texts() -> None:
    output = client.ModelInferRequest.InferRequestedOutputTensor(name="y")
    output.parameters["classification"].int64_param = 1
    request = decode(ask(inputs=[x()], raw=(bytes(24),), outputs=[output]))
    parts = encode_infer(request, [np.array([[1, 3, 2]], np.float32), np.array([b""], object)])
    answer = client.ModelInferResponse.FromString(b"".join(parts))
    assert (answer.outputs[0].datatype, list(answer.outputs[0].shape)) == ("BYTES", [1, 1])
    assert answer.raw_output_contents[0][4:] == b"3.000000:1"


@given(st.integers(0, 2**40), st.lists(st.binary(max_size=300), max_size=3))
def test_fields_of_bytes_are_written_as_protobuf_writes_them(value: int, parts: list[bytes]) -> None:
    length = sum(map(len, parts))
    written = b"".join(bytes_field(6, parts))
    assert written == b"\x32" + varint(length) + b"".join(parts)
    answer = client.ModelInferResponse.FromString(written)
    assert list(answer.raw_output_contents) == [b"".join(parts)]
    number = client.StatisticDuration.FromString(b"\x08" + varint(value))
    assert number.count == value


texts = st.text(max_size=5)
requests = st.builds(
    lambda names, raw, request_id, keys: messages.ModelInferRequest(
        model_name="m",
        id=request_id,
        inputs=[{"name": name, "shape": [1, 2]} for name in names],
        outputs=[{"name": name} for name in names],
        raw_input_contents=raw,
        parameters={key: messages.InferParameter(int64_param=5) for key in keys},
    ),
    st.lists(texts, max_size=3),
    st.lists(st.binary(max_size=200), max_size=3),
    texts,
    st.sets(texts, max_size=2),
)


@given(requests, st.randoms(use_true_random=False))
def test_cutting_the_tensors_out_reads_what_protobuf_reads(message: Any, random: Any) -> None:
    content = message.SerializeToString()
    assert split_request(content) is not None
    pieces = [content]
    if random.random() < 0.5:  # fields in another order are another way to say the same
        pieces = [messages.ModelInferRequest(raw_input_contents=[b"first"]).SerializeToString(), content]
    whole = messages.ModelInferRequest.FromString(b"".join(pieces))
    read = Inference(b"".join(pieces))
    assert together(read) == whole


def together(read: Inference) -> Any:
    """Return the message that was taken apart."""
    message = messages.ModelInferRequest.FromString(read.head)
    assert message.id == ""
    message.id = read.id
    message.raw_input_contents.extend([bytes(raw) for raw in read.raw])
    return message


@given(requests, st.integers(0, 400), st.binary(max_size=3))
def test_a_message_that_was_damaged_gets_an_answer_in_words(
    message: Any, place: int, bytes_there: bytes
) -> None:
    content = message.SerializeToString()
    damaged = content[:place] + bytes_there + content[place + len(bytes_there) :]
    for candidate in (damaged, content[:place]):
        with suppress(RequestError):  # any other exception fails the test
            read = Inference(candidate)
            assert read.message == messages.ModelInferRequest.FromString(read.head)
            assert together(read) == messages.ModelInferRequest.FromString(candidate)
            decode(candidate)


@given(st.binary(max_size=60))
def test_bytes_of_any_kind_get_an_answer_in_words(content: bytes) -> None:
    with suppress(RequestError):
        decode(content)
