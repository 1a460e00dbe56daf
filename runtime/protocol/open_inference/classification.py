"""Triton's classification extension: the highest values of an output instead of the output."""

import numpy as np

from mcp2026.runtime.errors import invalid
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.model.signature import STRING
from mcp2026.runtime.protocol.open_inference.datatypes import fp32_from_bf16


def classify(datatype: str, array: Array, classes: int, field: str, *, rows: bool) -> Array:
    """Return the `classes` highest values of each row as BYTES of the form `value:index`, highest first.

    The result has shape [rows, n], or [n] if the first dimension of `array` does not count rows; n is at
    most the number of values. Of equal values the first comes first; NaN comes last.

    Raises:
        RequestError: values of this datatype have no order.

    """
    if datatype in ("BYTES", "BOOL"):
        raise invalid(field, f"{datatype} cannot be classified", "an output of numbers")
    values = fp32_from_bf16(array) if datatype == "BF16" else array
    table = values.reshape(values.shape[0] if rows else 1, -1)
    count = min(classes, table.shape[1])
    found = np.empty((table.shape[0], count), STRING)
    for row, line in enumerate(table):
        for place, index in enumerate(_highest(line, count)):
            found[row, place] = f"{_number(line[index])}:{index}".encode()
    return found if rows else found.reshape(count)


def _highest(line: Array, count: int) -> list[int]:
    # Sorted ascending from behind, so that a stable sort keeps the first of equals in front.
    behind = line[::-1]
    order = np.argsort(behind, kind="stable")
    if line.dtype.kind == "f":
        nans = int(np.count_nonzero(np.isnan(line)))  # numpy sorts NaN to the end, which is the front here
        order = np.concatenate([order[len(order) - nans :], order[: len(order) - nans]])
    return [len(line) - 1 - int(place) for place in order[::-1][:count]]


def _number(value: np.generic) -> str:
    """Return a number as Triton prints it."""
    return f"{value:f}" if value.dtype.kind == "f" else str(value)
