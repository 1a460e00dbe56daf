"""The first runs of a session, which warm it and find out how it may be run. See docs/decisions/0012."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mcp2026.runtime.execution.tensor_cache import Array, bits_of, value_over
from mcp2026.runtime.model.sessions import first_line
from mcp2026.runtime.model.signature import STRING, Signature, TensorSpec, outputs_can_be_bound

log = logging.getLogger(__name__)


def probe(
    session: Any,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    version_id: str,
    *,
    may_share: bool,
) -> Signature:
    """Warm the session, and find out how it may be run: together for several requests, into memory of ours.

    A dynamic first dimension alone does not say so: it may be time, or the model may mix its rows. So two
    rows are run together and each alone; only if that makes no difference are requests batched. Without
    `may_share` they never are, and one run warms the session.
    """
    declared = (
        may_share and bool(inputs) and all(spec.dims and spec.dims[0] is None for spec in (*inputs, *outputs))
    )
    random = np.random.default_rng(0)
    try:
        if not declared:
            answer = run(session, inputs, outputs, samples(inputs, 1, random))
            seen = [array.shape for array in answer]
            ahead = outputs_can_be_bound(inputs, outputs, seen, shared=False)
            return Signature(inputs, outputs, shared=False, ahead=ahead)
        together = samples(inputs, 2, random)
        both = run(session, inputs, outputs, together)
        alone = [
            run(session, inputs, outputs, {name: array[row : row + 1] for name, array in together.items()})
            for row in range(2)
        ]
    except Exception as error:  # a model may dislike the sample: it is served, but not batched on a guess
        log.warning("version %s: no warm-up, requests run one at a time: %s", version_id, first_line(error))
        return Signature(inputs, outputs, shared=False, ahead=False)
    independent = all(
        whole.shape[:1] == (2,) and agree(spec, whole, np.concatenate(parts))
        for spec, whole, *parts in zip(outputs, both, *alone, strict=True)
    )
    if not independent:
        log.warning("version %s: rows influence each other, requests run one at a time", version_id)
        return Signature(inputs, outputs, shared=False, ahead=False)
    ahead = outputs_can_be_bound(inputs, outputs, [array.shape for array in both], shared=True)
    return Signature(inputs, outputs, shared=True, ahead=ahead)


def samples(inputs: Sequence[TensorSpec], rows: int, random: np.random.Generator) -> dict[str, Array]:
    """Return an input of each name; dynamic dimensions are 1, the first is `rows`."""
    return {spec.name: _sample(spec, rows, random) for spec in inputs}


def run(
    session: Any, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], arrays: Mapping[str, Array]
) -> list[Array]:
    """Run the session once and return its outputs as arrays of this runtime (BF16 as bits)."""
    if not any(spec.datatype == "BF16" for spec in (*inputs, *outputs)):
        return list(session.run(None, dict(arrays)))
    values = {spec.name: value_over(spec, np.ascontiguousarray(arrays[spec.name])) for spec in inputs}
    answer = session.run_with_ort_values(None, values)
    return [
        bits_of(value) if spec.datatype == "BF16" else value.numpy()
        for spec, value in zip(outputs, answer, strict=True)
    ]


def agree(spec: TensorSpec, left: Array, right: Array) -> bool:
    """Return whether two results of one model are the same but for rounding."""
    if left.shape != right.shape:
        return False
    if spec.datatype == "BF16":
        left, right = ((array.astype(np.uint32) << 16).view(np.float32) for array in (left, right))
    if left.dtype.kind != "f":
        return bool(np.array_equal(left, right))
    tolerance = 2e-2 if spec.datatype in ("FP16", "BF16") else 1e-3
    scale = float(np.nanmax(np.abs(np.where(np.isfinite(right), right, 0)), initial=0.0)) or 1.0
    return bool(np.allclose(left, right, rtol=tolerance, atol=tolerance * scale, equal_nan=True))


def _sample(spec: TensorSpec, rows: int, random: np.random.Generator) -> Array:
    shape = [1 if dim is None else dim for dim in spec.dims]
    if spec.dims and spec.dims[0] is None:
        shape[0] = rows
    if spec.dtype == STRING:
        # Of bytes ONNX Runtime would take the representation, b'…'. Digits suit models that parse them.
        return random.integers(0, 10, shape).astype(str).astype(STRING)
    if spec.datatype == "BF16":
        return (random.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if spec.dtype.kind == "f":
        return random.standard_normal(shape).astype(spec.dtype)
    return random.integers(0, 2, shape).astype(spec.dtype)
