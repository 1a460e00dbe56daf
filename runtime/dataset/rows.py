"""Rows of a data set: what a model takes of them, and what it gives for them."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from mcp2026.runtime.dataset.errors import InputRefusedError
from mcp2026.runtime.errors import RequestError
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.model.signature import STRING, Signature, TensorSpec, check_shape
from mcp2026.runtime.protocol.open_inference.datatypes import bf16_from_fp32

Column = Array | list[Array]
"""One tensor of many rows: an array with a first dimension of rows, or rows of different shapes."""
RowId = str | int
Place = Callable[[int], str]
"""A row, counted from 0, to its place in the data set as a user finds it: `line 17`."""

RowForm = Literal["shared", "one", "whole"]
"""How rows become runs. shared: many rows in one. one: one row, as a batch of one. whole: a row has all
dimensions that the model has."""


@dataclass(frozen=True)
class Rows:
    """Rows `first` to `first + count - 1` of a data set, columns in the order of the model's inputs."""

    first: int
    count: int
    columns: tuple[Column, ...]
    ids: list[RowId] | None = None


class Wanted(NamedTuple):
    """What a data set has to hold for one input."""

    spec: TensorSpec
    row_dims: tuple[int | None, ...] | None
    """Of a row; None as a dimension: any size. None as a whole: any shape."""


def row_form(signature: Signature, rank_of: Callable[[str], int]) -> RowForm:
    """Return how the rows of a data set are run; `rank_of` tells how many dimensions an input's rows have.

    Models whose rows influence each other, or that have no dimension of rows, are run row by row. Then a row
    may have all dimensions of the model, or leave out a first one that is dynamic or 1.
    """
    if signature.shared:
        return "shared"
    every = (*signature.inputs, *signature.outputs)
    if all(spec.ranked and spec.dims and spec.dims[0] in (None, 1) for spec in every) and all(
        rank_of(spec.name) == len(spec.dims) - 1 for spec in signature.inputs
    ):
        return "one"
    return "whole"


def wanted_columns(signature: Signature, form: RowForm) -> tuple[Wanted, ...]:
    """Return what a row has to hold for each input."""
    return tuple(
        Wanted(spec, None if not spec.ranked else spec.dims if form == "whole" else spec.dims[1:])
        for spec in signature.inputs
    )


def fit(wanted: Wanted, column: Column, first: int, place: Place) -> Column:
    """Return `column`, whose first row is row `first`, in the type that the model takes.

    Numbers of the same kind are converted if they fit; floats are rounded. A BF16 input takes floats, or its
    bits as uint16.

    Raises:
        InputRefusedError: a row has a shape, a type or a value that the input does not take.

    """
    if isinstance(column, list):
        return [_fit_array(wanted, row[np.newaxis], first + n, place)[0] for n, row in enumerate(column)]
    return _fit_array(wanted, column, first, place)


def _fit_array(wanted: Wanted, array: Array, first: int, place: Place) -> Array:
    spec, dims = wanted
    shape = list(array.shape[1:])
    # `check_shape` wants all dimensions of the model; those that a row leaves out are rows.
    whole = shape if dims is None or len(dims) == len(spec.dims) else [spec.dims[0] or 1, *shape]
    try:
        check_shape(spec, whole, math.prod(whole), f"{place(first)}, input {spec.name!r}: shape")
    except RequestError as error:
        raise InputRefusedError(
            f"{place(first)}, input {spec.name!r}",
            f"its shape is {shape}",
            f"A row takes {_shape_text(dims)}",
        ) from error
    return _cast(spec, array, first, place)


def _shape_text(dims: tuple[int | None, ...] | None) -> str:
    if dims is None:
        return "any shape without a dimension of 0"
    return f"the shape {[-1 if dim is None else dim for dim in dims]} (-1: any size from 1)"


def _cast(spec: TensorSpec, array: Array, first: int, place: Place) -> Array:
    if spec.dtype == STRING:
        return _texts(spec, array, first, place)
    kind = array.dtype.kind
    if spec.datatype == "BF16":
        if array.dtype == np.uint16:
            return array
        if kind == "f":
            narrow = bf16_from_fp32(_narrowed(spec, array, np.dtype(np.float32), first, place))
            _check_rows(spec, _overflown(array, (narrow & 0x7F80) == 0x7F80), array, first, place)
            return narrow
    elif array.dtype == spec.dtype:
        return array
    elif np.can_cast(array.dtype, spec.dtype, "safe") and kind != "b":
        return array.astype(spec.dtype)
    elif kind == "f" and spec.dtype.kind == "f":
        return _narrowed(spec, array, spec.dtype, first, place)
    elif kind in "iu" and spec.dtype.kind in "iu":
        limits = np.iinfo(spec.dtype)
        _check_rows(spec, (array < limits.min) | (array > limits.max), array, first, place)
        return array.astype(spec.dtype)
    raise InputRefusedError(
        f"{place(first)}, input {spec.name!r}",
        f"its type is {_type_name(array.dtype)}",
        f"The input takes {spec.dtype_name}: convert the data set",
    )


def _narrowed(spec: TensorSpec, array: Array, dtype: np.dtype[Any], first: int, place: Place) -> Array:
    if array.dtype == dtype:
        return array
    with np.errstate(over="ignore"):
        narrow = array.astype(dtype)
    _check_rows(spec, _overflown(array, np.isinf(narrow)), array, first, place)
    return narrow


def _overflown(wide: Array, special: Array) -> Array:
    overflown: Array = special & np.isfinite(wide)
    return overflown


def _check_rows(spec: TensorSpec, bad: Array, array: Array, first: int, place: Place) -> None:
    if not bad.any():
        return
    row, *rest = (int(index) for index in np.argwhere(bad)[0])
    raise InputRefusedError(
        f"{place(first + row)}, input {spec.name!r}",
        f"the value {array[(row, *rest)]} at {rest} does not fit {spec.dtype_name}",
        "Correct the value, or convert the model",
    )


def _texts(spec: TensorSpec, array: Array, first: int, place: Place) -> Array:
    if array.dtype.kind not in "SUO":
        raise InputRefusedError(
            f"{place(first)}, input {spec.name!r}",
            f"its type is {_type_name(array.dtype)}",
            "The input takes text",
        )
    per_row = math.prod(array.shape[1:])
    texts = np.empty(array.size, STRING)
    for index, item in enumerate(array.ravel().tolist()):
        text = item.encode() if isinstance(item, str) else bytes(item)
        try:
            text.decode()
        except UnicodeDecodeError:
            raise InputRefusedError(
                f"{place(first + index // per_row)}, input {spec.name!r}",
                "it holds bytes that are not UTF-8",
                "Text of ONNX models is UTF-8",
            ) from None
        texts[index] = text
    return texts.reshape(array.shape)


def _type_name(dtype: np.dtype[Any]) -> str:
    return "text" if dtype.kind in "SU" else dtype.name
