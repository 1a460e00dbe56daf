"""What a model takes and gives, and whether a request's tensors fit."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from mcp2026.runtime.errors import RequestError, invalid

STRING = np.dtype(np.object_)
"""Arrays of BYTES hold one Python `bytes` per element."""


class ElementType(NamedTuple):
    """One element type: how arrays hold it, and its name in the Open Inference Protocol."""

    dtype: np.dtype[Any]
    datatype: str


ELEMENT_TYPES: dict[str, ElementType] = {
    "tensor(float)": ElementType(np.dtype(np.float32), "FP32"),
    "tensor(double)": ElementType(np.dtype(np.float64), "FP64"),
    "tensor(float16)": ElementType(np.dtype(np.float16), "FP16"),
    "tensor(bfloat16)": ElementType(np.dtype(np.uint16), "BF16"),
    "tensor(int8)": ElementType(np.dtype(np.int8), "INT8"),
    "tensor(int16)": ElementType(np.dtype(np.int16), "INT16"),
    "tensor(int32)": ElementType(np.dtype(np.int32), "INT32"),
    "tensor(int64)": ElementType(np.dtype(np.int64), "INT64"),
    "tensor(uint8)": ElementType(np.dtype(np.uint8), "UINT8"),
    "tensor(uint16)": ElementType(np.dtype(np.uint16), "UINT16"),
    "tensor(uint32)": ElementType(np.dtype(np.uint32), "UINT32"),
    "tensor(uint64)": ElementType(np.dtype(np.uint64), "UINT64"),
    "tensor(bool)": ElementType(np.dtype(np.bool_), "BOOL"),
    "tensor(string)": ElementType(STRING, "BYTES"),
}
"""ONNX Runtime's type names that are served. BF16 is held as its bits, numpy has no type for it."""

MAX_ELEMENTS = 2**40
"""More than any body can carry; keeps the product of a shape far from any overflow."""
MAX_DIMENSIONS = 32
"""Of an input whose rank the model leaves open; numpy ends at 64."""
MAX_ROWS = 1_000_000
"""Most rows of one request, however many executions it is split into; that of a queue's limit too."""


@dataclass(frozen=True)
class TensorSpec:
    """One input or output. A dimension of None is dynamic."""

    name: str
    dtype: np.dtype[Any]
    dims: tuple[int | None, ...]
    datatype: str
    """Name in the Open Inference Protocol: FP32, BYTES, BF16, …"""
    ranked: bool = True
    """False: the model does not say how many dimensions there are, and `dims` is empty."""

    @cached_property
    def dtype_name(self) -> str:
        """The type as it is shown to users. (numpy works it out anew each time, at 7 µs.)"""
        return {"BF16": "bfloat16", "BYTES": "string"}.get(self.datatype) or self.dtype.name

    @property
    def wire_shape(self) -> list[int]:
        """The shape as it is shown to users, -1 for a dynamic dimension."""
        return [-1 if dim is None else dim for dim in self.dims]


@dataclass(frozen=True)
class Signature:
    """All inputs and outputs, and what batching may do with them."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    shared: bool
    """The first dimension counts rows, and rows do not influence each other: requests may share a run."""
    ahead: bool
    """The declared shapes of the outputs can be relied on: their memory may be bound before a run."""

    def output_shapes(self, capacity: int | None) -> list[tuple[int, ...]] | None:
        """Return the outputs' shapes for `capacity` rows, None if they are known only after the run."""
        if not self.ahead:
            return None
        shapes = []
        for spec in self.outputs:
            dims = spec.dims if capacity is None else (capacity, *spec.dims[1:])
            if any(dim is None for dim in dims):
                return None
            shapes.append(tuple(dim for dim in dims if dim is not None))
        return shapes


def outputs_can_be_bound(
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    seen: list[tuple[int, ...]],
    *,
    shared: bool,
) -> bool:
    """Return whether memory for the outputs may be bound before a run; `seen` are their shapes in one run.

    A declared shape is no promise: a model may answer in another, which ONNX Runtime only warns of. An output
    that is itself an input is not written to bound memory.
    """
    first = 1 if shared else 0  # the dimension of the rows is no question
    names = {spec.name for spec in inputs}
    return (
        all(spec.ranked for spec in (*inputs, *outputs))
        and all(None not in spec.dims[first:] for spec in inputs)
        and all(shape[first:] == spec.dims[first:] for spec, shape in zip(outputs, seen, strict=True))
        and not any(spec.name in names for spec in outputs)
    )


def check_shape(spec: TensorSpec, shape: list[int], values: int, field: str) -> None:
    """Raise unless a tensor of `shape` with `values` values fits the input `spec`.

    Raises:
        RequestError: names `field` and says what would fit.

    """
    allowed = f"{spec.wire_shape} (-1: any size from 1)" if spec.ranked else "any shape of sizes from 1"
    if spec.ranked and len(shape) != len(spec.dims):
        raise invalid(
            field,
            f"{shape[:16]} has {len(shape)} dimensions",
            allowed,
            "minItems" if len(shape) < len(spec.dims) else "maxItems",
        )
    if len(shape) > MAX_DIMENSIONS:
        raise invalid(
            field, f"has {len(shape)} dimensions", f"at most {MAX_DIMENSIONS} dimensions", "maxItems"
        )
    if 0 in shape:
        raise invalid(field, f"{shape[:16]} is an empty tensor, which is not served", allowed, "minimum")
    if any(dim < 1 for dim in shape):
        raise invalid(field, f"{shape[:16]} has a negative size", allowed, "minimum")
    if spec.ranked and any(wanted not in (None, dim) for dim, wanted in zip(shape, spec.dims, strict=True)):
        raise invalid(field, f"{shape} does not fit input {spec.name!r}", allowed, "const")
    product = math.prod(shape)
    if product > MAX_ELEMENTS:
        raise invalid(field, f"{shape} asks for too many values", f"at most {MAX_ELEMENTS} values", "maximum")
    if product != values:
        problem = f"{shape} holds {product} values, but {values} were sent"
        raise invalid(field, problem, "as many as values", "const")


def count_rows(
    signature: Signature, arrays: list[np.ndarray[Any, np.dtype[Any]]], max_rows: int = MAX_ROWS
) -> int:
    """Return the rows that a request counts as.

    Raises:
        RequestError: the inputs disagree, or have more than `max_rows`, the most that any request may have.

    """
    if not signature.shared:
        return 1
    rows = {array.shape[0] for array in arrays}
    if len(rows) != 1:
        raise invalid(
            "shape", f"the inputs have {sorted(rows)} rows", "the same first dimension in all inputs", "const"
        )
    (count,) = rows
    if count > max_rows:
        raise invalid("shape", f"{count} rows in one request", f"1 to {max_rows} rows", "maximum")
    return int(count)


def spec_of(argument: Any, *, ranked: bool = True) -> TensorSpec:
    """Return the spec of an ONNX Runtime argument, whose shape is empty also where the rank is unknown.

    Raises:
        RequestError: its type is not served.

    """
    element = ELEMENT_TYPES.get(argument.type)
    if element is None:
        raise invalid(argument.name, f"has type {argument.type}", ", ".join(ELEMENT_TYPES))
    dims = tuple(dim if isinstance(dim, int) and dim > 0 else None for dim in argument.shape)
    return TensorSpec(argument.name, element.dtype, dims, element.datatype, ranked)


__all__ = [
    "ELEMENT_TYPES",
    "MAX_ROWS",
    "STRING",
    "ElementType",
    "RequestError",
    "Signature",
    "TensorSpec",
    "check_shape",
    "count_rows",
    "outputs_can_be_bound",
    "spec_of",
]
