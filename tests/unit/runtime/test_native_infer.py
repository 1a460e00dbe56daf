"""Inference as messages: what a request means, and every refusal, is what the body over HTTP gets."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from msgspec.structs import replace

from mcp2026.api.contract.messages import document_of, message_of
from mcp2026.api.contract.native_pb2 import InferRequest, InferResponse
from mcp2026.api.contract.rpc_status import ErrorDetail, decode_status
from mcp2026.api.contract.validation import check
from mcp2026.api.contract.violations import ContractError
from mcp2026.api.grpc_codes import GrpcCode
from mcp2026.api.serving import Batching, ServedVersion, single_version
from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.model.loaded import ServedModel, served_model
from mcp2026.runtime.model.signature import STRING, TensorSpec
from mcp2026.runtime.model.store import ModelStore
from mcp2026.runtime.protocol.grpc.service import CallHead, Reply
from mcp2026.runtime.protocol.json_codec import JsonCodec
from mcp2026.runtime.protocol.json_turns import LARGE_BODY, LARGE_VALUES, at_once
from mcp2026.runtime.protocol.native.infer_messages import Inference, answer, fitting
from mcp2026.runtime.protocol.native.infer_method import InferMethod
from mcp2026.runtime.protocol.open_inference.datatypes import bf16_from_fp32
from tests.unit.runtime.loaded_versions import metrics_for
from tests.unit.runtime.signatures import tensor, version

LONGEST = 30 * 10**9
DATATYPES = ("FP32", "FP64", "FP16", "BF16", "INT8", "INT64", "UINT8", "UINT64", "BOOL", "BYTES")


def served(inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...] | None = None) -> ServedModel:
    one = version(inputs, outputs or (tensor("y", "FP32", None, 2), tensor("z", "FP32", None, 2)))
    counters: Any = metrics_for(single_version("m.onnx", Batching())).version("m", "")
    config = replace(one.config, versions=(ServedVersion("7", "m.onnx"),))
    return served_model(config, [one], lambda _model, _version: counters)


class Service:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.submitted = asyncio.Event()
        self.cancelled = asyncio.Event()

    def submit(self, call: Any) -> Callable[[], None]:
        self.calls.append(call)
        self.submitted.set()
        return self.cancelled.set


class World:
    """One process that serves one model over both transports."""

    def __init__(self, *specs: TensorSpec) -> None:
        self.model = served(specs)
        self.store = ModelStore()
        self.store.put(self.model)
        self.service = Service()
        metrics = metrics_for(self.model.config)
        service: Any = self.service
        self.method = InferMethod(metrics, self.store, service, LONGEST)
        self.codec = JsonCodec(self.store, LONGEST)
        self.replies: list[Reply] = []

    def ask(self, message: InferRequest, timeout_ns: int | None = None) -> Any:
        return self.method(CallHead("", {}, timeout_ns), message.SerializeToString(), self.replies.append)

    def over_grpc(self, message: InferRequest) -> Any:
        self.ask(message)
        if self.replies:
            return told(self.replies.pop())
        call = self.service.calls.pop()
        read = call.inference
        assert (call.inputs, call.rows, call.timeout_ns) == (read.inputs, read.rows, read.timeout_ns)
        return meaning(read)

    def over_http(self, document: Any) -> Any:
        try:
            return meaning(self.codec.decode(json.dumps(document).encode()))
        except RequestError as error:
            return error.code.value, error.message, error.field, error.rule, error.allowed


def meaning(read: Any) -> Any:
    arrays = [(array.dtype, array.shape, array.tolist()) for array in read.inputs]
    return arrays, read.rows, read.outputs, read.timeout_ns, read.id, read.simple


def told(reply: Reply) -> ErrorDetail:
    assert reply.code is not GrpcCode.OK
    detail = decode_status(dict(reply.trailers)[b"grpc-status-details-bin"])
    assert detail is not None
    assert detail.message == reply.detail
    return detail


WORLDS = {datatype: World(tensor("x", datatype, None, 2)) for datatype in DATATYPES}
PAIR = World(tensor("a", "FP32", None, 2), tensor("b", "INT64", None, 2))

NUMBERS = (
    some.integers(-3, 300)
    | some.floats(-70_000, 70_000)
    | some.integers(-(2**63), 2**64 - 1)
    | some.sampled_from([1e39, -1e300, 0.5, 65_520.0, -0.0])
)
LISTS = some.one_of(
    *(
        some.lists(element, min_size=low, max_size=high)
        for element in (NUMBERS, some.integers(0, 9), some.booleans(), some.text(max_size=3))
        for low, high in ((2, 2), (4, 4), (1, 5))
    )
)
SHAPES = some.sampled_from([[1, 2], [2, 2], [1], [2], [0, 2], [9, 2], [-1, 2], [1] * 33, [2, 1]])
TENSORS = some.fixed_dictionaries({"data": LISTS, "shape": SHAPES})
MORE = {
    "model": some.sampled_from(["m", "n"]),
    "version_id": some.sampled_from(["7", "8"]),
    "outputs": some.lists(some.sampled_from(["y", "z", "w"]), min_size=1, max_size=3),
    "timeout_ms": some.sampled_from([0.0, -1.0, 250.0, 1e12, 0.25]),
    "id": some.text(max_size=3),
}
SIMPLE = some.fixed_dictionaries({"input": LISTS, "shape": SHAPES}, optional=MORE)
NAMED = some.fixed_dictionaries(
    {"inputs": some.dictionaries(some.sampled_from("abx"), TENSORS, min_size=1)},
    optional={**MORE, "input": LISTS, "shape": SHAPES},
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(some.sampled_from([*WORLDS.values(), PAIR]), SIMPLE | NAMED)
def test_a_message_means_what_its_document_means(world: World, document: dict[str, Any]) -> None:
    try:
        message = message_of("InferRequest", document)
    except ContractError:
        return  # no message can say it
    # The document of a message may hold 1 where this one has 1.0: JSON tells them apart only for integers.
    assert world.over_grpc(message) == world.over_http(document_of(message))


@pytest.mark.parametrize("datatype", DATATYPES)
def test_a_request_that_fits_is_read_without_a_document(datatype: str) -> None:
    world = WORLDS[datatype]
    values: list[Any] = [1, 0]
    if datatype == "BOOL":
        values = [True, False]
    elif datatype == "BYTES":
        values = ["ä", ""]
    elif datatype.startswith(("FP", "BF")):
        values = [0.5, -2.0]
    message = message_of("InferRequest", {"input": values, "shape": [1, 2], "id": "i"})
    found = fitting(message, world.model, world.model.versions["7"], LONGEST)
    assert (found is not None) == (datatype != "BF16")
    assert world.over_grpc(message)[4] == "i"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda message: message.MergeFromString(b"\x9a\x06\x01a"),
        lambda message: message.input.MergeFromString(b"\x9a\x06\x01a"),
        lambda message: message.shape.MergeFromString(b"\x9a\x06\x01a"),
        lambda message: message.input.integers.append(1),
        lambda message: message.input.numbers.__setitem__(0, float("nan")),
        lambda message: message.ClearField("shape"),
        lambda message: message.ClearField("input"),
        lambda message: message.inputs["x"].shape.sizes.append(1),
        lambda message: setattr(message, "timeout_ms", float("inf")),
    ],
)
def test_what_only_a_message_can_say_is_refused(spoil: Any) -> None:
    world = WORLDS["FP32"]
    message = message_of("InferRequest", {"input": [0.5, 1.5], "shape": [1, 2]})
    spoil(message)
    detail = world.over_grpc(message)
    assert detail.code == "invalid_argument"
    assert detail.field
    assert detail.rule


def test_bytes_that_are_no_message_are_refused() -> None:
    world = WORLDS["FP32"]
    world.method(CallHead("", {}, None), b"\x0a\x05a", world.replies.append)
    detail = told(world.replies.pop())
    assert (detail.code, detail.field, detail.rule) == ("invalid_argument", "body", "type")


def test_the_shorter_of_two_deadlines_counts() -> None:
    world = WORLDS["FP32"]
    message = message_of("InferRequest", {"input": [0.5, 1.5], "shape": [1, 2], "timeout_ms": 100.0})
    for asked, expected in ((None, 100_000_000), (50_000_000, 50_000_000), (10**12, 100_000_000)):
        world.ask(message, asked)
        assert world.service.calls.pop().timeout_ns == expected


def test_a_version_by_weight_is_chosen_once_for_a_request() -> None:
    world = World(tensor("x", "BF16", None, 2))
    chosen: list[int] = []
    world.model.traffic.choose = lambda: (chosen.append(1), "7")[1]
    world.over_grpc(message_of("InferRequest", {"input": [0.5, 1.5], "shape": [1, 2]}))
    assert chosen == [1]


def test_a_fault_of_our_own_is_answered() -> None:
    world = World(tensor("x", "FP32", None, 2))
    world.method._service = None  # type: ignore[assignment]
    world.ask(message_of("InferRequest", {"input": [0.5, 1.5], "shape": [1, 2]}))
    assert told(world.replies.pop()).code == "internal"


# --- large messages


async def test_a_large_message_is_looked_at_in_turns() -> None:
    world = World(tensor("x", "FP32", None, 2))
    rows = LARGE_BODY // 8
    message = message_of("InferRequest", {"input": ["x" * 8] * (2 * rows), "shape": [rows, 2]})
    replied: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    world.method(CallHead("", {}, None), message.SerializeToString(), replied.set_result)
    assert not replied.done()
    assert told(await replied) == world.over_http(document_of(message))


async def test_a_large_message_that_needs_a_closer_look_is_served() -> None:
    world = World(tensor("x", "BF16", None, 2))
    message = message_of("InferRequest", {"input": [0.5, 1.5] * 8, "shape": [8, 2], "id": "x" * LARGE_BODY})
    cancel = world.ask(message)
    await world.service.submitted.wait()
    (call,) = world.service.calls
    call.respond(Reply(b"answer"))
    assert world.replies == [Reply(b"answer")]
    await asyncio.sleep(0)  # the call has ended
    cancel()
    await asyncio.sleep(0)
    assert not world.service.cancelled.is_set()


async def test_a_caller_that_leaves_cancels_what_was_submitted() -> None:
    world = World(tensor("x", "BF16", None, 2))
    message = message_of("InferRequest", {"input": [0.5, 1.5], "shape": [1, 2], "id": "x" * LARGE_BODY})
    cancel = world.ask(message)
    await world.service.submitted.wait()
    cancel()
    await world.service.cancelled.wait()
    assert not world.replies


# --- answers


def outputs_of(datatype: str, values: Array) -> tuple[Inference, list[Array]]:
    spec = tensor("y", datatype, None, 2)
    model = served((tensor("x", "FP32", None, 2),), (spec,))
    return Inference(model.versions["7"], (), 1, (0,), LONGEST, None, True), [values]


@pytest.mark.parametrize(
    ("datatype", "values", "expected"),
    [
        ("FP32", np.array([[0.5, -1]], np.float32), [0.5, -1.0]),
        ("FP32", np.array([[np.nan, np.inf]], np.float32), ["NaN", "Infinity"]),
        ("FP64", np.array([[1e300, -0.0]]), [1e300, -0.0]),
        ("FP16", np.array([[0.5, 65504]], np.float16), [0.5, 65504.0]),
        ("BF16", bf16_from_fp32(np.array([[0.5, -2]], np.float32)), [0.5, -2.0]),
        ("INT8", np.array([[-128, 127]], np.int8), [-128, 127]),
        ("INT64", np.array([[-(2**63), 2**63 - 1]]), [-(2**63), 2**63 - 1]),
        ("UINT64", np.array([[0, 2**64 - 1]], np.uint64), [0, 2**64 - 1]),
        ("UINT64", np.array([[0, 7]], np.uint64), [0, 7]),
        ("BOOL", np.array([[True, False]]), [True, False]),
        ("BYTES", np.array([["ä".encode(), b""]], STRING), ["ä", ""]),
        ("FP32", np.zeros((0, 2), np.float32), []),
    ],
)
def test_an_answer_has_every_type(datatype: str, values: Array, expected: list[Any]) -> None:
    inference, outputs = outputs_of(datatype, values)
    message = InferResponse.FromString(at_once(answer(inference, outputs)))
    document = document_of(message, answer=True)
    check("InferResponse", document)
    spec = inference.version.signature.outputs[0]
    assert document == {
        "model": "m",
        "version_id": "7",
        **({"output": expected} if expected else {"output": []}),
        "shape": list(values.shape),
        "dtype": spec.dtype_name,
    }


def test_named_answers_and_the_id() -> None:
    model = served((tensor("x", "FP32", None, 2),))
    inference = Inference(model.versions["7"], (), 1, (0, 1), LONGEST, "i", False)
    arrays = [np.ones((1, 2), np.float32), np.zeros((1, 2), np.float32)]
    document = document_of(InferResponse.FromString(at_once(answer(inference, arrays))), answer=True)
    check("InferResponse", document)
    assert document == {
        "model": "m",
        "version_id": "7",
        "id": "i",
        "outputs": {
            "y": {"data": [1.0, 1.0], "shape": [1, 2], "dtype": "float32"},
            "z": {"data": [0.0, 0.0], "shape": [1, 2], "dtype": "float32"},
        },
    }


def test_many_whole_numbers_are_written_in_turns() -> None:
    values = np.arange(2 * LARGE_VALUES + 2).reshape(-1, 2)
    inference, outputs = outputs_of("INT64", values)
    work = answer(inference, outputs)
    assert sum(1 for _ in iter(lambda: next(work, "end"), "end")) == 2
    message = InferResponse.FromString(at_once(answer(inference, outputs)))
    assert list(message.output.integers) == values.ravel().tolist()


def test_a_text_that_is_not_utf_8_is_refused() -> None:
    inference, outputs = outputs_of("BYTES", np.array([[b"\xff", b""]], STRING))
    with pytest.raises(RequestError) as caught:
        at_once(answer(inference, outputs))
    assert caught.value.code is not ErrorCode.INTERNAL
