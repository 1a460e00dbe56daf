"""One inference through the server, and the same by ONNX Runtime alone on the same file: do they agree?"""

import http.client
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from mcp2026.cli.errors import CommandError
from mcp2026.cli.pod_process import LOOPBACK

Array = npt.NDArray[np.generic]

TOLERANCE = 1e-4
"""Largest difference that two executions of one model may have, relative to its largest output."""
_SEED = 2026
_DTYPES: dict[str, np.dtype[Any]] = {
    "tensor(float)": np.dtype(np.float32),
    "tensor(double)": np.dtype(np.float64),
    "tensor(int32)": np.dtype(np.int32),
    "tensor(int64)": np.dtype(np.int64),
}


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the server's answer is from the reference."""

    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    max_difference: float
    scale: float
    """The largest magnitude in the reference, at least 1."""

    @property
    def holds(self) -> bool:
        """Whether the two agree within the tolerance."""
        return self.max_difference <= TOLERANCE * self.scale


def check_inference(port: int, candidates: list[Path]) -> Agreement:
    """Send one deterministic request to the server on `port` and compare its answer.

    `candidates`: the files of the versions that may have answered; the nearest one counts.
    """
    sessions = [
        onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]) for path in candidates
    ]
    sample = sample_input(sessions[0])
    answer = post_infer(port, sample)
    return min(
        (_compare(session, sample, answer) for session in sessions), key=lambda found: found.max_difference
    )


def sample_input(session: onnxruntime.InferenceSession) -> Array:
    """Return one row of random input that is the same in every run."""
    inputs = session.get_inputs()
    if len(inputs) != 1 or inputs[0].type not in _DTYPES:
        described = ", ".join(f"{entry.name} {entry.type}" for entry in inputs)
        raise CommandError(f"--check can make input for one numeric input only; this model has {described}")
    dtype = _DTYPES[inputs[0].type]
    shape = tuple(size if isinstance(size, int) else 1 for size in inputs[0].shape)
    generator = np.random.default_rng(_SEED)
    if dtype.kind == "f":
        return generator.standard_normal(shape).astype(dtype)
    return generator.integers(0, 256, shape).astype(dtype)


def post_infer(port: int, sample: Array) -> Array:
    """Return what POST /v1/infer answers to `sample`."""
    body = json.dumps({"input": sample.ravel().tolist(), "shape": list(sample.shape)})
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=60)
    try:
        connection.request("POST", "/v1/infer", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise CommandError(f"POST /v1/infer on port {port} failed: {error!r}") from error
    finally:
        connection.close()
    if response.status != 200:
        raise CommandError(
            f"POST /v1/infer answered {response.status}: {text[:500].decode(errors='replace')}"
        )
    answer = json.loads(text)
    return np.asarray(answer["output"], dtype=np.float64).reshape(answer["shape"])


def _compare(session: onnxruntime.InferenceSession, sample: Array, answer: Array) -> Agreement:
    reference = np.asarray(session.run(None, {session.get_inputs()[0].name: sample})[0], dtype=np.float64)
    if reference.shape != answer.shape:
        raise CommandError(
            f"the server answered with shape {answer.shape}, ONNX Runtime with {reference.shape}"
        )
    difference = np.abs(reference - np.asarray(answer, dtype=np.float64)).max(initial=0.0)
    # a NaN compares as false, so that it never passes
    return Agreement(
        sample.shape, answer.shape, float(difference), float(max(np.abs(reference).max(initial=0.0), 1.0))
    )
