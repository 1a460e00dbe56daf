"""Models with text: ONNX Runtime takes and gives Python strings, and cannot be bound to memory of them.

Arrays of BYTES hold `bytes`. ONNX strings are UTF-8 by definition; ONNX Runtime would take other bytes for
their `repr`, so what is no UTF-8 is refused here.
"""

from typing import Any

import numpy as np

from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.model.signature import STRING, Signature


def gather(
    signature: Signature, parts: list[tuple[Array, ...]], run_rows: int, *, whole: bool
) -> list[Array]:
    """Return one array per input, with rows that are zero or empty up to `run_rows`.

    Raises:
        ValueError: an element of a BYTES input is not UTF-8.

    """
    inputs = []
    for index, spec in enumerate(signature.inputs):
        arrays = [part[index] for part in parts]
        if not whole and (missing := run_rows - sum(len(array) for array in arrays)):
            filler = "" if spec.dtype == STRING else 0
            arrays.append(np.full((missing, *arrays[0].shape[1:]), filler, spec.dtype))
        array = np.concatenate(arrays) if len(arrays) > 1 else arrays[0]
        inputs.append(_as_text(spec.name, array) if spec.dtype == STRING else array)
    return inputs


def run(session: Any, signature: Signature, inputs: list[Array]) -> list[Array]:
    """Execute the model once and return its outputs, BYTES as Python `bytes`."""
    feeds = {spec.name: array for spec, array in zip(signature.inputs, inputs, strict=True)}
    outputs = session.run([spec.name for spec in signature.outputs], feeds)
    return [_as_bytes(array) if array.dtype == STRING else array for array in outputs]


def _as_text(name: str, array: Array) -> Array:
    try:
        text = [item.decode() if isinstance(item, bytes) else str(item) for item in array.flat]
    except UnicodeDecodeError as error:
        raise ValueError(f"input {name!r} holds bytes that are not UTF-8") from error
    return _object_array(text, array.shape)


def _as_bytes(array: Array) -> Array:
    return _object_array([str(item).encode() for item in array.flat], array.shape)


def _object_array(items: list[Any], shape: tuple[int, ...]) -> Array:
    array = np.empty(len(items), STRING)
    array[:] = items
    return array.reshape(shape)
