"""Arrays go over the wire and come back; what is no tensor is refused, there and back."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mcp2026.client.datatypes import DTYPES, Array, Tensor, from_json, from_wire, to_wire
from mcp2026.client.errors import InvalidRequestError, ProtocolError

NUMBERS = st.sampled_from(sorted(DTYPES)).flatmap(
    lambda name: st.tuples(st.just(name), arrays.arrays(DTYPES[name], arrays.array_shapes(min_side=0)))
)


def there_and_back(array: Array | Tensor) -> Array:
    tensor = to_wire("x", array)
    return from_wire("x", tensor.datatype, tensor.shape, bytearray(tensor.content))


@given(NUMBERS)
def test_numbers_of_every_type_and_shape_come_back_bit_by_bit(named: tuple[str, Array]) -> None:
    name, array = named
    assert to_wire("x", array).datatype == name
    back = there_and_back(array)
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())


@pytest.mark.parametrize("name", sorted(set(DTYPES) - {"BOOL"}))
def test_arrays_in_another_order_are_put_in_the_order_of_the_wire(name: str) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(DTYPES[name])
    for other in (array.astype(array.dtype.newbyteorder(">")), np.asfortranarray(array), array[::-1, :, ::2]):
        np.testing.assert_array_equal(there_and_back(other), other)


def test_numbers_are_not_copied_and_come_back_writable() -> None:
    array = np.arange(4, dtype=np.float32)
    content = to_wire("x", array).content
    array[0] = 7
    assert bytes(content) == array.tobytes()
    assert there_and_back(array).flags.writeable


def test_numbers_behind_an_odd_number_of_bytes_are_aligned() -> None:
    body = bytearray(b"\0" + np.arange(4, dtype=np.float32).tobytes())
    array = from_wire("x", "FP32", (4,), memoryview(body)[1:])
    assert array.flags.aligned
    np.testing.assert_array_equal(array, np.arange(4))


@given(st.lists(st.binary(max_size=40) | st.text(max_size=40), max_size=8))
def test_strings_and_bytes_come_back_as_bytes(elements: list[str | bytes]) -> None:
    array = np.empty(len(elements), dtype=object)
    array[:] = elements
    expected = [element.encode() if isinstance(element, str) else element for element in elements]
    assert there_and_back(array).tolist() == expected


def test_text_need_not_be_an_array_of_objects() -> None:
    assert there_and_back(np.array([["a", "ü"], ["", "long enough"]])).tolist() == [
        [b"a", "ü".encode()],
        [b"", b"long enough"],
    ]
    assert there_and_back(np.array([b"a\0b", b"c"])).tolist() == [b"a\0b", b"c"]
    assert to_wire("x", [["a"]]).content == b"\1\0\0\0a"


@pytest.mark.parametrize(
    "value", [0.0, -0.0, 1.0, 1.00390625, 3.0e38, np.inf, -np.inf, 1e-40, 65504.0, 2.0**127 * (2 - 2**-9)]
)
def test_bf16_is_rounded_as_everywhere(value: float) -> None:
    rounded = np.array([value], np.float32).astype(ml_dtypes.bfloat16)
    assert to_wire("x", Tensor([value], "BF16")).content == rounded.tobytes()
    assert there_and_back(rounded) == rounded.astype(np.float32)


def test_bf16_keeps_what_is_no_number() -> None:
    nan = np.array([0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(there_and_back(Tensor(nan, "BF16"))).all()


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (np.array([1 + 2j]), "complex128 is no tensor"),
        (np.array([1.0], np.longdouble), "is no tensor"),
        (np.array(["2026-01-01"], "M8[D]"), "is no tensor"),
        ([None], "an element is a NoneType"),
        ([1, "a", object()], "an element is a int"),
        (Tensor(["a"], "BF16"), "is not BF16"),
        (Tensor([1.0], "FP32"), "'FP32' is not the datatype of an array of float64"),
    ],
)
def test_what_is_no_tensor_is_refused_with_its_name(value: object, says: str) -> None:
    with pytest.raises(InvalidRequestError, match=says) as refused:
        to_wire("x", np.array(value, object) if isinstance(value, list) else value)  # type: ignore[arg-type]
    assert refused.value.field == "x"
    assert refused.value.allowed


@pytest.mark.parametrize(
    ("datatype", "shape", "content"),
    [
        ("FP32", (2,), b"\0" * 7),
        ("FP32", (2,), b"\0" * 9),
        ("FP32", (-1,), b""),
        ("FP32", (2**62, 2**62), b""),
        ("FP12", (1,), b"\0"),
        ("BYTES", (1,), b"\1\0\0"),
        ("BYTES", (1,), b"\1\0\0\0"),
        ("BYTES", (1,), b"\0\0\0\0\0"),
        ("BYTES", (2,), b"\4\0\0\0abcd"),
        ("BYTES", (2**40,), b"\0\0\0\0"),
        ("BYTES", (1,), b"\xff\xff\xff\xff"),
    ],
)
def test_an_answer_that_is_no_such_tensor_is_not_believed(
    datatype: str, shape: tuple[int, ...], content: bytes
) -> None:
    with pytest.raises(ProtocolError, match="output y"):
        from_wire("y", datatype, shape, content)


@pytest.mark.parametrize(
    ("datatype", "values", "expected"),
    [
        ("FP32", [[1, 2.5]], np.array([[1, 2.5]], np.float32)),
        ("INT64", [1, 2], np.array([[1, 2]])),
        ("BOOL", [True, False], np.array([[True, False]])),
        ("BF16", [1.5, 2], np.array([[1.5, 2]], np.float32)),
        ("BYTES", ["a", "ü"], np.array([[b"a", "ü".encode()]], object)),
    ],
)
def test_numbers_in_json_are_read_too(datatype: str, values: object, expected: Array) -> None:
    array = from_json("y", datatype, [1, 2], values)
    assert array.dtype == expected.dtype
    assert array.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("datatype", "values"),
    [("FP32", [1]), ("FP32", ["a", "b"]), ("FP32", None), ("UINT8", [1, 300]), ("X", [1, 2])],
)
def test_json_that_is_no_such_tensor_is_not_believed(datatype: str, values: object) -> None:
    with pytest.raises(ProtocolError, match="output y"):
        from_json("y", datatype, [1, 2], values)
