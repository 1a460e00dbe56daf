"""The short way through JSON gives what the long way gives, to the last bit and the last word of an error."""

import gc
import json
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp2026.api.serving import Batching, single_version
from mcp2026.runtime.errors import RequestError
from mcp2026.runtime.model.signature import TensorSpec
from mcp2026.runtime.model.store import ModelStore
from mcp2026.runtime.protocol import json_codec, json_turns
from mcp2026.runtime.protocol.json_codec import JsonCodec
from mcp2026.runtime.protocol.json_form import numbers
from tests.unit.runtime.loaded_versions import loaded_model
from tools.models import generate

MODELS = {"add": "f", "halves": "f", "integers": "i", "booleans": "b", "pair": "f"}


def long_way(_body: bytes) -> Any:
    raise msgspec.DecodeError("not in the usual form")


@pytest.fixture(scope="module")
def store_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ModelStore]:
    folder = tmp_path_factory.mktemp("models")
    stores: dict[str, ModelStore] = {}

    def get(name: str) -> ModelStore:
        if name not in stores:
            stores[name] = ModelStore()
            config = single_version(str(generate(name, folder)), Batching())
            stores[name].put(loaded_model(config))
        return stores[name]

    return get


def outcome(codec: JsonCodec, body: bytes) -> Any:
    try:
        request = codec.decode(body)
    except RequestError as error:
        return error.code, error.message, error.field, error.allowed
    arrays = [(array.dtype, array.shape, array.tobytes()) for array in request.inputs]
    return arrays, request.rows, request.outputs, request.timeout_ns, request.id, request.simple


WHOLE = st.integers(-3, 300)
NUMBER = (
    st.floats(allow_nan=False, allow_infinity=False).map(json.dumps)
    | st.floats(width=16, allow_nan=False, allow_infinity=False).map(json.dumps)
    | st.integers(-(2**65), 2**65).map(str)
    | st.sampled_from(
        ["65519.99", "65520", "3.4028235677973366e38", "3.4028235677973362e38", "1e400", "-0.0"]
    )
    | st.sampled_from(["1e39", "-2e100", "7.038531e-26", "1E5", "0.1e1", "1" * 400])
)
ODD = st.sampled_from(
    ["true", "false", "null", '"1"', "[1]", "{}", "NaN", "Infinity", "-Infinity", "01", "1.", ""]
)
TRUTH = st.sampled_from(["true", "false"])


MODERATE = (
    st.floats(-60_000, 60_000, width=16).map(json.dumps) | st.floats(-1, 1).map(json.dumps) | WHOLE.map(str)
)


VALUES = {"booleans": TRUTH, "integers": WHOLE.map(str)}


def listed(values: st.SearchStrategy[str], size: int) -> st.SearchStrategy[str]:
    """Return lists of `size` values, of which at most one is not as moderate as the others."""

    def text(items: list[str], odd: str, place: int) -> str:
        return "[" + ", ".join([*items[:place], odd, *items[place + 1 :]]) + "]"

    place = st.integers(0, size - 1)
    return st.builds(text, st.lists(values, min_size=size, max_size=size), values | NUMBER | ODD, place)


INPUT = (
    listed(MODERATE, 16)
    | listed(MODERATE, 4)
    | listed(WHOLE.map(str), 4)
    | listed(TRUTH, 4)
    | st.sampled_from(["null", "3", "[]", '"text"', "{}", "[1,]", "[" * 2_000])
)
SHAPE = st.sampled_from(
    ["[1, 16]", "[1,4]", "[4]", "[2, 2]", "[0, 4]", "[-1, 4]", "[1.0, 4]", "null", "[]", "[1, 4, 1]", "{}"]
) | st.just("[" + "1" * 400 + "]")
FIELDS: dict[str, st.SearchStrategy[str]] = {
    "input": INPUT,
    "shape": SHAPE,
    "outputs": st.sampled_from(["null", "[]", '["output"]', '["y"]', '["output", "output"]', "3"]),
    "model": st.sampled_from(["null", '"other"', "3", '"\\ud800"']),
    "version_id": st.sampled_from(["null", '"1"', '"2"', "1"]),
    "timeout_ms": st.sampled_from(["null", "5", "0.001", "0", "-1", "1e9", '"5"', "1e400"]),
    "id": st.sampled_from(["null", '"x"', '"\\u00e9\\n"', "7"]),
    "inputs": st.sampled_from(["null", "{}", '{"input": {"data": [1, 2, 3, 4], "shape": [1, 4]}}']),
    "unknown": st.just("1"),
}


@st.composite
def bodies(draw: st.DrawFn, size: int, values: st.SearchStrategy[str]) -> bytes:
    """Return bodies of which many differ from the usual one in a single value at most."""
    often = st.integers(0, 3)
    usual = [
        ("input", draw(listed(values, size) if draw(often) else INPUT)),
        ("shape", f"[1, {size}]" if draw(often) else draw(SHAPE)),
    ]
    more = [] if draw(often) else draw(st.lists(st.sampled_from(sorted(FIELDS)), max_size=2))
    members = usual + [(name, draw(FIELDS[name])) for name in more]
    if draw(st.booleans()):
        members = draw(st.permutations(members))
    text = "{" + ", ".join(f'"{name}": {value}' for name, value in members) + "}"
    cut = draw(st.integers(0, 40))
    return (text if cut else text[: len(text) // 2]).encode()


@pytest.mark.parametrize("name", MODELS)
def test_both_ways_agree_on_every_document(store_of: Callable[[str], ModelStore], name: str) -> None:
    store = store_of(name)
    size = 16 if name == "add" else 4
    value = True if name == "booleans" else 1
    usual = json.dumps({"input": [value] * size, "shape": [1, size]}).encode()
    short, long, sliced = JsonCodec(store, 10**9), JsonCodec(store, 10**9), JsonCodec(store, 10**9)

    outcome(short, usual)  # the usual shape is known now

    @settings(max_examples=400, deadline=None)
    @given(bodies(size, VALUES.get(name, MODERATE)))
    def agree(body: bytes) -> None:
        long._decode = long_way
        expected = outcome(long, body)
        assert outcome(short, body) == expected
        sliced._decode = long_way
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(json_codec, "LARGE_BODY", 8)
            patch.setattr(json_turns, "LARGE_BODY", 8)
            assert outcome(sliced, body) == expected

    agree()


@pytest.mark.parametrize(
    ("name", "number"), [("add", "1e39"), ("add", "3.4028235677973366e38"), ("halves", "65520")]
)
def test_a_number_too_large_is_refused_also_in_a_known_shape(
    store_of: Callable[[str], ModelStore], name: str, number: str
) -> None:
    codec = JsonCodec(store_of(name), 10**9)
    size = 16 if name == "add" else 4
    codec.decode(json.dumps({"input": [1] * size, "shape": [1, size]}).encode())
    body = f'{{"input": [{number}{", 1" * (size - 1)}], "shape": [1, {size}]}}'.encode()
    with pytest.raises(RequestError, match="too large"):
        codec.decode(body)


@pytest.mark.parametrize(("name", "values"), [("add", 16), ("halves", 4), ("integers", 4)])
def test_the_second_request_of_a_shape_takes_the_short_way(
    store_of: Callable[[str], ModelStore], name: str, values: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec = JsonCodec(store_of(name), 10**9)
    body = json.dumps({"input": [1] * values, "shape": [1, values]}).encode()
    first = outcome(codec, body)
    monkeypatch.setattr(codec, "_fit", None)
    assert outcome(codec, body) == first


def test_what_is_known_of_a_version_goes_with_it(tmp_path) -> None:
    store = ModelStore()
    model = loaded_model(single_version(str(generate("add", tmp_path)), Batching()))
    store.put(model)
    codec = JsonCodec(store, 10**9)
    codec.decode(json.dumps({"input": [1] * 16, "shape": [1, 16]}).encode())
    assert len(codec._forms) == 1
    store.remove(model.name, "")
    del model
    gc.collect()
    assert codec._forms == {}


# --- answers


def read(text: bytes, dtype: Any) -> np.ndarray[Any, Any]:
    words = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
    return np.array([words.get(value, value) for value in json.loads(text)], dtype)  # type: ignore[call-overload]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["f2", "f4", "f8"]), st.binary(max_size=400), st.integers(1, 3))
def test_every_float_comes_back_to_the_last_bit(dtype: str, memory: bytes, step: int) -> None:
    size = np.dtype(dtype).itemsize
    array = np.frombuffer(memory[: len(memory) // size * size], dtype)[::step]
    back = read(numbers(array), np.float64).astype(dtype)
    np.testing.assert_array_equal(back, array)
    np.testing.assert_array_equal(np.signbit(back[array == 0]), np.signbit(array[array == 0]))


def test_digits_are_few_and_survive_a_reader_that_rounds_twice() -> None:
    assert numbers(np.float32([[0.1, 1 / 3], [-0.0, 1e-7]])) == b"[0.1,0.33333334,-0.0,1e-7]"
    twice = np.uint32([0x15AE43FD, 0x95AE43FD]).view(np.float32)
    np.testing.assert_array_equal(read(numbers(twice), np.float64).astype(np.float32), twice)


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_integers_are_exact(dtype: str) -> None:
    limits = np.iinfo(dtype)
    assert json.loads(numbers(np.array([limits.min, 0, limits.max], dtype))) == [limits.min, 0, limits.max]


def test_truths_and_scalars_and_empty_arrays_are_lists() -> None:
    assert numbers(np.array([[True], [False]])) == b"[true,false]"
    assert numbers(np.array(2.5, np.float32)) == b"[2.5]"
    assert numbers(np.zeros((0, 3), np.float32)) == b"[]"


def test_types_that_are_held_otherwise_are_named_as_users_know_them() -> None:
    assert TensorSpec("x", np.dtype(np.uint16), (None,), "BF16").dtype_name == "bfloat16"
    assert TensorSpec("x", np.dtype(np.object_), (None,), "BYTES").dtype_name == "string"
