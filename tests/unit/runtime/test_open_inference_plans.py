"""A request that asks what was asked before is read by a plan: as it is read precisely, or not at all."""

import gc
import json
import uuid
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp2026.runtime.errors import RequestError
from mcp2026.runtime.protocol.open_inference import grpc_codec, http_codec
from mcp2026.runtime.protocol.open_inference import open_inference_pb2 as messages
from mcp2026.runtime.protocol.open_inference.grpc_codec import Inference, KnownMessages
from mcp2026.runtime.protocol.open_inference.http_answers import HEADER_LENGTH
from mcp2026.runtime.protocol.open_inference.http_plans import HttpPlans
from mcp2026.runtime.protocol.open_inference.skeletons import without_lists
from mcp2026.runtime.shared_memory.regions import SharedMemoryRegions
from tests.unit.runtime.signatures import LEVELS, LIMITS, tensor, version

ONE = version((tensor("x", "FP32", None, 3),), (tensor("y", "FP32", None, 3),))
TWO = version(
    (tensor("x", "FP32", None, 3), tensor("n", "INT8", None, 2)),
    (tensor("y", "FP32", None, 3), tensor("t", "BYTES", None, 1)),
)
OUTPUTS = [np.arange(6, dtype=np.float32).reshape(2, 3) / 3, np.array([[b"p"], [b"qr"]], object)]
TENANT = {b"x-mcp-tenant-id": b"acme"}


class Reading:
    """Reads requests of one client by what it learned of them, and each precisely, too."""

    def __init__(self, regions: SharedMemoryRegions | None = None) -> None:
        self.regions = regions or SharedMemoryRegions()
        self.plans = HttpPlans()
        self.messages = KnownMessages()

    def http(self, body: bytes, target: Any = ONE, headers: dict[bytes, bytes] | None = None) -> Any:
        more = (headers or {}, target, self.regions, LIMITS, LEVELS)
        return _same(
            lambda: http_codec.decode_infer(body, *more, HttpPlans()),
            lambda: http_codec.decode_infer(body, *more, self.plans),
            lambda request: _plain(
                http_codec.encode_infer(request, OUTPUTS[: len(target.signature.outputs)])
            ),
        )

    def grpc(self, content: bytes, target: Any = ONE, headers: dict[bytes, bytes] | None = None) -> Any:
        more = (headers or {}, target, self.regions, LIMITS, LEVELS)

        def learned() -> Any:
            inference = Inference(content, self.messages)
            self.messages.names(inference)
            return grpc_codec.decode_infer(inference, *more, self.messages)

        return _same(
            lambda: grpc_codec.decode_infer(Inference(content), *more, KnownMessages()),
            learned,
            lambda request: b"".join(
                grpc_codec.encode_infer(request, OUTPUTS[: len(target.signature.outputs)])
            ),
        )


def _same(precisely: Any, learned: Any, answer: Any) -> Any:
    """Return the request, or the error, having seen that both ways give the same."""
    wanted, request = _attempt(precisely), _attempt(learned)
    if isinstance(wanted, RequestError) or isinstance(request, RequestError):
        assert (str(request), request.field) == (str(wanted), wanted.field)
        return request
    for field in ("rows", "outputs", "id", "wanted", "regions"):
        assert getattr(request, field) == getattr(wanted, field)
    for one, other in zip(request.inputs, wanted.inputs, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes() if one.dtype != object else one.tolist() == other.tolist()
    assert str(_attempt(lambda: answer(request))) == str(_attempt(lambda: answer(wanted)))
    return request


def _attempt(work: Any) -> Any:
    try:
        return work()
    except RequestError as error:
        return error


def _plain(response: Any) -> Any:
    return response.status, response.body, response.content_type, response.headers


def listed(data: Any = (1, 2, 3, 4, 5, 6), **more: Any) -> dict[str, Any]:
    return {"name": "x", "shape": [2, 3], "datatype": "FP32", "data": data} | more


def planned(reading: Reading, target: Any = ONE) -> int:
    """Return how many plans there are."""
    return reading.plans.count(target)


# --- JSON


@pytest.mark.parametrize(
    "spelled",
    [
        lambda document: json.dumps(document),
        lambda document: json.dumps(document, separators=(",", ":")),
        lambda document: json.dumps(document, indent=2),
        lambda document: json.dumps(dict(reversed(document.items()))),
    ],
)
def test_a_list_is_read_by_a_plan_however_the_json_is_spelled(spelled: Any) -> None:
    reading = Reading()
    for data in ([1, 2, 3, 4, 5, 6], [0.5, -1e-3, 7, 1e30, -0.0, 2.5], [1, 2, 3], [1, 2, 3, 4, 5, 1e39]):
        reading.http(spelled({"inputs": [listed(data)], "parameters": {"priority": 2}}).encode())
    assert planned(reading) == 1


def test_ids_do_not_fill_the_memory_and_come_back() -> None:
    reading = Reading()
    for number in range(500):
        for document in (
            {"id": f"r-{number}", "inputs": [listed()]},
            {"inputs": [listed()], "id": f"r-{number}"},
        ):
            request = reading.http(json.dumps(document, separators=(",", ":")).encode())
            assert request.id == f"r-{number}"
    assert planned(reading) == 1


@pytest.mark.parametrize(
    "text",
    [
        '{"id":"a","inputs":[X],"id":"b"}',
        '{"id":"a","inputs":[X],"\\u0069d":"b"}',
        '{"inputs":[X],"id":""}',
        '{"id":"a","inputs":[X],"id":""}',
        '{"id":"a\\u0041","inputs":[X]}',
        '{"id":"ä","inputs":[X]}',
        '{"id":"a"}',
        '{"id":"a",}',
        '{"id":"a","inputs":[X],"more":{"data":[1]}}',
        '{"id":"a","inputs":[X],"more":"\\"data\\":[1]"}',
        '{"id":"a","inputs":[X],"more":["data",[1]]}',
        ' {"id":"a","inputs":[X]}',
        '{"inputs":[X],"outputs":[{"name":"y","parameters":{"data":"[]"}}]}',
        '{"inputs":[{"name":"x","shape":[2,3],"datatype":"FP32","data":[9],"data":[1,2,3,4,5,6]}]}',
        '{"inputs":[{"name":"x","shape":[2,3],"datatype":"FP32","data":[1,2,3,4,5,6],"data":[9]}]}',
        '{"inputs":[{"name":"x","shape":[2,3],"datatype":"FP32","data":[1,2,3,4,5,6],"data":[6,5,4,3,2,1]}]}',
        '{"inputs":[{"name":"x","shape":[2,3],"datatype":"FP32","data":[1,2,3,4,5,6]},{"data":[6,5]}]}',
        '{"inputs":[{"name":"x","shape":[2,3],"datatype":"FP32","data":[]}]}',
        '{"inputs":[{"name":"x","shape":[2,3],"datatype":"FP32","data":[}]}',
        '{"inputs":[{"name":"x","shape":[2,3],"datatype":"FP32","data":]}]}',
        '{"inputs":[{"name":"x","shape":[2,3],"datatype":"FP32","data":[[1,2,3],[4,5,6]]}]}',
        '{"inputs":[{"name":"x","shape":[2,3],"datatype":"FP32","data":[1,2,3,4,5,6]',
        '{"inputs":[{"data":[1,2,3,4,5,6],"name":"x","shape":[2,3],"datatype":"FP32"}]}',
    ],
)
def test_members_that_only_look_like_id_and_data_are_left_to_the_precise_way(text: str) -> None:
    reading = Reading()
    plain = json.dumps({"inputs": [listed()]}, separators=(",", ":")).encode()
    for data in ([1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1]):
        tensor_text = json.dumps(listed(data), separators=(",", ":"))
        for other_id in ("a", "c", ""):
            body = text.replace("X", tensor_text).replace('"id":"a"', f'"id":"{other_id}"').encode()
            reading.http(body)
            reading.http(plain)  # now this one was the last
            reading.http(body)


numbers = st.one_of(
    st.integers(-130, 130),
    st.floats(),
    st.sampled_from([2**31, 2**62, 10**30, 3.4e38, 3.5e38, 1e-45, True, False, None, "1", [1], {}]),
)


@given(
    st.lists(st.tuples(st.lists(numbers, max_size=7), st.lists(numbers, max_size=5)), max_size=4),
    st.booleans(),
)
def test_lists_of_any_values_are_read_as_precisely_or_refused_in_the_same_words(
    rows: Any, swapped: bool
) -> None:
    reading = Reading()
    fit = ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4])
    for data, bits in [fit, *rows, fit]:
        inputs = [listed(data), {"name": "n", "shape": [2, 2], "datatype": "INT8", "data": bits}]
        reading.http(json.dumps({"inputs": inputs[::-1] if swapped else inputs}).encode(), TWO)
    assert planned(reading, TWO) == 1


@pytest.mark.parametrize(
    ("datatype", "values"),
    [
        ("BOOL", [True, False, 1, 0, 2, "x"]),
        ("INT8", [-128, 127, 128, 1.0, 1.5]),
        ("UINT16", [0, 65_535, 65_536, -1]),
        ("INT64", [2**63 - 1, -(2**63), 2**63]),
        ("UINT64", [2**64 - 1, 2**64, -1]),
        ("FP16", [65_504, 65_519.9, 65_520, 1e-8, 0.1]),
        ("FP32", [3.4028235677973366e38, 3.4028235677973362e38, 1e-46, 0.1]),
        ("FP64", [1.7976931348623157e308, 5e-324, 0.1]),
        ("BF16", [3.39e38, 3.4e38, 0.1]),
        ("BYTES", ["a", "ä", 5]),
    ],
)
def test_every_datatype_in_json_holds_what_it_holds_precisely(datatype: str, values: list[Any]) -> None:
    target = version((tensor("x", datatype, None),), (tensor("y", "FP32", None, 3),))
    reading = Reading()
    for value in (*values, *values):
        one = {"name": "x", "shape": [1], "datatype": datatype, "data": [value]}
        reading.http(json.dumps({"inputs": [one]}).encode(), target)


@given(
    st.text(max_size=200) | st.binary(max_size=60).map(lambda raw: raw.decode("latin-1")), st.integers(0, 300)
)
def test_a_body_that_was_damaged_is_never_read_by_a_plan_alone(junk: str, place: int) -> None:
    reading = Reading()
    body = json.dumps({"id": "one", "inputs": [listed()]}, separators=(",", ":")).encode()
    reading.http(body)
    for text in (body[:place] + junk.encode() + body[place:], body[:place] + junk.encode()):
        reading.http(text)
        reading.http(text)


def test_a_text_with_thousands_of_lists_is_not_cut() -> None:
    assert not without_lists(b'"data":[]' * 10_000)[1]


# --- bytes behind the JSON


@given(
    st.lists(
        st.tuples(st.binary(max_size=30), st.sampled_from(["", "7", "a b", 'q"', "ä"]), st.booleans()),
        max_size=4,
    ),
    st.booleans(),
)
def test_bytes_behind_the_json_are_read_as_precisely(rows: Any, as_json: bool) -> None:
    reading = Reading()
    inputs = [
        {"name": "n", "shape": [2, 2], "datatype": "INT8", "parameters": {"binary_data_size": 4}},
        {"name": "x", "shape": [2, 3], "datatype": "FP32", "parameters": {"binary_data_size": 24}},
    ]
    parameters = {"binary_data_output": not as_json, "timeout": 5}
    for blob, request_id, tenant in [(bytes(28), "", False), *rows, (bytes(range(28)), "last", True)]:
        document = {"id": request_id, "inputs": inputs, "parameters": parameters}
        if not request_id:
            del document["id"]
        text = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
        reading.http(text + blob, TWO, {HEADER_LENGTH: b"%d" % len(text)} | (TENANT if tenant else {}))
    assert planned(reading, TWO) == 1


def test_truths_and_texts_behind_the_json_are_looked_at_each_time() -> None:
    target = version((tensor("b", "BOOL", None), tensor("s", "BYTES", None)), (tensor("y", "FP32", None),))
    inputs = [
        {"name": "b", "shape": [1], "datatype": "BOOL", "parameters": {"binary_data_size": 1}},
        {"name": "s", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 5}},
    ]
    text = json.dumps({"inputs": inputs}).encode()
    reading = Reading()
    for blob in (b"\1\1\0\0\0a", b"\7\1\0\0\0b", b"\0\1\0\0\0\xff", b"\1\2\0\0\0a"):
        reading.http(text + blob, target, {HEADER_LENGTH: b"%d" % len(text)})


# --- shared memory


@pytest.fixture
def memory() -> Iterator[SharedMemory]:
    region = SharedMemory(f"test-{uuid.uuid4().hex}", create=True, size=4_096)
    yield region
    region.close()
    region.unlink()


def in_region() -> bytes:
    part = {"shared_memory_region": "r", "shared_memory_byte_size": 24}
    one = {"name": "x", "shape": [2, 3], "datatype": "FP32", "parameters": part}
    wanted = {"name": "y", "parameters": part | {"shared_memory_offset": 512}}
    return json.dumps({"inputs": [one], "outputs": [wanted]}).encode()


def test_a_plan_asks_for_its_region_each_time(memory: SharedMemory) -> None:
    reading = Reading()
    regions = reading.regions
    regions.register("r", memory.name, 0, 1_024)
    memory.buf[:24] = np.arange(6, dtype=np.float32).tobytes()
    memory.buf[1_024 : 1_024 + 24] = np.ones(6, np.float32).tobytes()
    first = reading.http(in_region())
    assert planned(reading) == 1
    assert reading.http(in_region()).inputs[0].tolist() == [[0, 1, 2], [3, 4, 5]]
    http_codec.encode_infer(first, OUTPUTS[:1])
    assert bytes(memory.buf[512:536]) == OUTPUTS[0].tobytes()

    regions.unregister("r")
    assert reading.http(in_region()).field == "shared_memory_region"
    regions.register("r", memory.name, 1_024, 1_024)
    assert reading.http(in_region()).inputs[0].tolist() == [[1, 1, 1], [1, 1, 1]]
    regions.unregister("r")
    regions.register("r", memory.name, 0, 520)
    with pytest.raises(RequestError, match="24 bytes from offset 512"):
        http_codec.encode_infer(reading.http(in_region()), OUTPUTS[:1])
    regions.unregister("r")
    regions.register("r", memory.name, 0, 20)
    assert reading.http(in_region()).field == "byte_size"
    regions.unregister("r")
    assert reading.http(in_region()).field == "shared_memory_region"


def test_a_plan_does_not_keep_a_region_open(memory: SharedMemory) -> None:
    reading = Reading()
    reading.regions.register("r", memory.name, 0, 1_024)
    reading.http(in_region())
    region = reading.regions.get("r")
    reading.regions.unregister("r")
    gc.collect()
    assert len(gc.get_referrers(region)) <= 1


# --- gRPC


def message(target: Any, request_id: str = "", **more: Any) -> messages.ModelInferRequest:
    made = messages.ModelInferRequest(model_name="m", id=request_id, **more)
    made.inputs.add(name="x", datatype="FP32", shape=[2, 3])
    if target is TWO:
        made.inputs.add(name="n", datatype="INT8", shape=[2, 2])
    return made


@given(
    st.sampled_from([ONE, TWO]),
    st.lists(
        st.tuples(
            st.sampled_from(["", "7", "18", "ä", "x" * 200]),
            st.lists(st.sampled_from([bytes(24), b"\1\2\3\4", b"\xff" * 24, b"", b"12345"]), max_size=3),
            st.sampled_from(["", "7"]),
            st.integers(0, 9),
        ),
        max_size=6,
    ),
)
def test_raw_tensors_are_read_as_precisely(target: Any, rows: Any) -> None:
    reading = Reading()
    fit = [bytes(range(24)), b"\1\2\3\4"][: len(target.signature.inputs)]
    for request_id, raw, version_id, damage in [
        ("", fit, "", 0),
        *rows,
        ("9", fit, "7", 0),
        ("", fit, "", 0),
    ]:
        for raws in (raw, fit):
            made = message(target, request_id, model_version=version_id, raw_input_contents=raws)
            content = made.SerializeToString()
            reading.grpc(content, target, TENANT if damage == 1 else {})
            reading.grpc(content, target)
            if damage == 2:
                reading.grpc(content[:-1], target)
            if damage == 3:
                reading.grpc(content + content, target)
            if damage == 4:
                reading.grpc(
                    content[: 7 + len(request_id)] + b"\x1a\x01z" + content[7 + len(request_id) :], target
                )


@given(st.binary(min_size=1, max_size=3), st.integers(0, 80))
def test_a_message_that_was_damaged_is_never_read_by_a_plan_alone(junk: bytes, place: int) -> None:
    reading = Reading()
    content = message(TWO, "one", raw_input_contents=[bytes(24), bytes(4)]).SerializeToString()
    reading.grpc(content, TWO)
    reading.grpc(content[:place] + junk + content[place + len(junk) :], TWO)
    reading.grpc(content[:place] + junk + content[place:], TWO)


def test_ids_of_messages_do_not_fill_the_memory_and_come_back() -> None:
    reading = Reading()
    for number in range(500):
        content = message(ONE, f"r-{number}", raw_input_contents=[bytes(24)]).SerializeToString()
        assert reading.grpc(content).id == f"r-{number}"
    known = reading.messages
    assert len(known._names) == 2
    assert len(known._sizes) == known.plans.count(ONE) == 1


def test_beginnings_of_messages_are_forgotten_before_they_fill_the_memory() -> None:
    reading = Reading()
    reading.messages = known = KnownMessages(most=8)
    for number in range(100):
        made = message(ONE, raw_input_contents=[bytes(24)])
        made.parameters[f"n{number}"].int64_param = number
        reading.grpc(made.SerializeToString())
        assert max(len(known._names), len(known._sizes)) <= 9


def test_what_was_learned_of_a_version_goes_with_it() -> None:
    reading = Reading()
    retired = version((tensor("x", "FP32", None, 3),), (tensor("y", "FP32", None, 3),))
    reading.http(json.dumps({"inputs": [listed()]}).encode(), retired)
    reading.grpc(message(ONE, raw_input_contents=[bytes(24)]).SerializeToString(), retired)
    assert reading.plans._plans._of_version
    assert reading.messages.plans._of_version
    del retired
    gc.collect()
    assert not reading.plans._plans._of_version
    assert not reading.plans._latest
    assert not reading.messages.plans._of_version
    assert not reading.messages.questions._of_version
