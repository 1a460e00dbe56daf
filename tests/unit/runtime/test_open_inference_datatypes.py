"""Tensors survive the wire and JSON; bytes that are no tensor are refused in words."""

import math
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mcp2026.runtime.errors import RequestError
from mcp2026.runtime.protocol.json_form import numbers
from mcp2026.runtime.protocol.open_inference.datatypes import (
    DATATYPES,
    bf16_from_fp32,
    fp32_from_bf16,
    from_wire,
    to_wire,
)
from mcp2026.runtime.protocol.open_inference.json_data import from_json, texts

NUMBERS = [name for name in DATATYPES if name != "BYTES"]


def arrays(name: str) -> st.SearchStrategy[Any]:
    """Return arrays as a model gives them."""
    datatype = DATATYPES[name]
    shapes = hnp.array_shapes(max_dims=3, max_side=4)
    if name == "BYTES":
        return hnp.arrays(object, shapes, elements=st.binary(max_size=8))
    return hnp.arrays(datatype.dtype, shapes)


named_arrays = st.sampled_from(list(DATATYPES)).flatmap(lambda name: st.tuples(st.just(name), arrays(name)))


@given(named_arrays)
def test_every_tensor_comes_back_from_the_wire(case: tuple[str, Any]) -> None:
    name, array = case
    wire = b"".join(to_wire(name, array))
    back = from_wire(DATATYPES[name], wire, array.size, "x").reshape(array.shape)
    assert back.tobytes() == array.tobytes() if name != "BYTES" else (back == array).all()


@given(named_arrays, st.integers(-2, 2).filter(bool))
def test_a_tensor_of_another_size_is_refused(case: tuple[str, Any], more: int) -> None:
    name, array = case
    wire = b"".join(to_wire(name, array))
    with pytest.raises(RequestError) as refusal:
        from_wire(DATATYPES[name], wire, max(0, array.size + more), "x")
    assert refusal.value.field == "x"
    assert refusal.value.allowed


@given(st.binary(max_size=64), st.integers(0, 2**40))
def test_bytes_that_are_no_strings_are_refused_before_memory_is_taken(content: bytes, count: int) -> None:
    try:
        strings = from_wire(DATATYPES["BYTES"], content, count, "x")
    except RequestError:
        return
    assert b"".join(to_wire("BYTES", strings)) == content


def test_a_byte_that_is_neither_0_nor_1_is_true() -> None:
    assert from_wire(DATATYPES["BOOL"], b"\x00\x01\x02\xff", 4, "x").tobytes() == b"\x00\x01\x01\x01"


@given(st.floats(width=32))
def test_bf16_is_rounded_as_other_libraries_round_it(value: float) -> None:
    bits = bf16_from_fp32(np.array([value], np.float32))
    expected = np.array([value], np.float32).astype(ml_dtypes.bfloat16)
    if math.isnan(value):
        assert np.isnan(fp32_from_bf16(bits)).all()
    else:
        assert bits[0] == expected.view(np.uint16)[0]
        assert fp32_from_bf16(bits)[0] == np.float32(expected[0])


@given(named_arrays.filter(lambda case: case[0] != "BYTES"))
def test_every_number_comes_back_from_json(case: tuple[str, Any]) -> None:
    name, array = case
    text = numbers(fp32_from_bf16(array) if name == "BF16" else array)
    data = msgspec.Raw(text)
    if b"Infinity" in text or b"NaN" in text:
        with pytest.raises(RequestError):
            from_json(DATATYPES[name], data, array.size, "x")
    else:
        assert from_json(DATATYPES[name], data, array.size, "x").tobytes() == array.tobytes()


@given(hnp.arrays(object, hnp.array_shapes(max_dims=2, max_side=4), elements=st.text(max_size=5)))
def test_texts_come_back_from_json_as_bytes(array: Any) -> None:
    try:
        text = msgspec.json.encode(texts(array, "x"))
    except UnicodeEncodeError:
        return  # half a surrogate pair is no text
    back = from_json(DATATYPES["BYTES"], msgspec.Raw(text), array.size, "x")
    assert [element.decode() for element in back] == array.ravel().tolist()


def test_bytes_that_are_no_text_name_the_way_out() -> None:
    with pytest.raises(RequestError) as refusal:
        texts(np.array([b"\xff"], object), "outputs.y")
    assert refusal.value.field == "outputs.y"
    assert "binary_data" in str(refusal.value.allowed)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("FP32", "[[1, 2], [3, 4]]"),
        ("FP32", " [ [ [1], [2] ], [ [3], [4] ] ]"),
        ("BF16", "[[1, 2], [3, 4]]"),
        ("FP16", "[1, 2, 3, 4]"),
        ("UINT8", "[[1, 2, 3, 4]]"),
    ],
)
def test_nested_lists_are_taken_in_row_major_order(name: str, text: str) -> None:
    array = from_json(DATATYPES[name], msgspec.Raw(text.encode()), 4, "x")
    numbers = fp32_from_bf16(array) if name == "BF16" else array
    assert numbers.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("FP32", "[true, 1]", "Expected `float`, got `bool`"),
        ("FP32", "[[1], 2]", "lists beside values"),
        ("FP32", "[1, [2]]", "Expected `float`"),
        ("FP32", "[1, 1e39]", "too large for FP32"),
        ("FP16", "[1, 65520]", "too large for FP16"),
        ("BF16", "[1, 3.4e38]", "too large for BF16"),
        ("FP64", "[1, NaN]", "malformed"),
        ("INT8", "[1, 128]", "a number that INT8 cannot"),
        ("UINT64", "[1, -1]", "a number that UINT64 cannot"),
        ("INT32", "[1, 1.5]", "Expected `int`"),
        ("BOOL", "[true, 2]", "Expected"),
        ("BYTES", "[1, 2]", "Expected `str`"),
        ("FP32", "[1]", "holds 1 values"),
        ("FP32", "[[], []]", "holds 0 values"),
        ("FP32", "{}", "Expected `array`"),
        ("FP32", "[" * 100 + "]" * 100, "nested too deeply"),
        ("FP32", "[" * 100_000, ""),
    ],
)
def test_json_that_is_no_tensor_is_refused_with_its_problem(name: str, text: str, problem: str) -> None:
    with pytest.raises(RequestError) as refusal:
        from_json(DATATYPES[name], msgspec.Raw(text.encode()), 2, "x")
    assert problem in str(refusal.value)
    assert refusal.value.allowed


def test_zero_and_one_are_truth_values_too() -> None:
    assert from_json(DATATYPES["BOOL"], msgspec.Raw(b"[1, false, 0, true]"), 4, "x").tolist() == [
        True,
        False,
        False,
        True,
    ]
