"""One inference through the server, and the same by ONNX Runtime alone on the same file: do they agree?"""

import http.client
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from mcp2026.api.serving import ServedVersion
from mcp2026.cli.errors import CommandError
from mcp2026.cli.model_cache import file_here
from mcp2026.cli.pod_process import LOOPBACK
from mcp2026.runtime.model.ir.reading import is_ir_file
from mcp2026.runtime.model.sessions import open_model

Array = npt.NDArray[np.generic]
Floats = npt.NDArray[np.float64]

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
    output_shapes: tuple[tuple[int, ...], ...]
    max_difference: float
    scale: float
    """The largest magnitude in the reference, at least 1."""

    @property
    def holds(self) -> bool:
        """Whether the two agree within the tolerance; a NaN never does."""
        return self.max_difference <= TOLERANCE * self.scale


def check_inference(port: int, version: ServedVersion) -> Agreement:
    """Send one deterministic request for `version` to the server on `port` and compare all its outputs."""
    session = reference_session(file_here(version))
    sample = sample_input(session)
    answered = infer(port, version.version_id, sample, [output.name for output in session.get_outputs()])
    reference = [
        np.asarray(array, dtype=np.float64)
        for array in session.run(None, {session.get_inputs()[0].name: sample})
    ]
    shapes = tuple(array.shape for array in answered)
    if shapes != tuple(array.shape for array in reference):
        raise CommandError(f"the server answered with shapes {shapes}, ONNX Runtime with others")
    pairs = list(zip(reference, answered, strict=True))
    return Agreement(
        input_shape=sample.shape,
        output_shapes=shapes,
        max_difference=float(np.max([np.abs(ours - theirs).max(initial=0.0) for ours, theirs in pairs])),
        scale=float(np.max([1.0, *(np.abs(array).max(initial=0.0) for array in reference)])),
    )


def reference_session(path: str) -> onnxruntime.InferenceSession:
    """Return the model as ONNX Runtime opens it by itself; a file in our own format it cannot open alone."""
    if is_ir_file(path):
        return open_model(path, None, threads=1, provider="cpu").session
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


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


def infer(port: int, version_id: str, sample: Array, outputs: list[str]) -> list[Floats]:
    """Return what POST /v1/infer answers to `sample`, in the order of `outputs`."""
    answer = _post(
        port,
        {"input": sample.ravel().tolist(), "shape": list(sample.shape), "version_id": version_id},
    )
    if answer.get("version_id") != version_id:
        raise CommandError(f"version {version_id} was asked, {answer.get('version_id')} answered")
    if "output" in answer:
        return [_array(answer["output"], answer["shape"])]
    return [_array(answer["outputs"][name]["data"], answer["outputs"][name]["shape"]) for name in outputs]


def _array(values: list[Any], shape: list[int]) -> Floats:
    return np.asarray(values, dtype=np.float64).reshape(shape)


def _post(port: int, body: dict[str, Any]) -> dict[str, Any]:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=60)
    try:
        connection.request("POST", "/v1/infer", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise CommandError(f"POST /v1/infer on port {port} failed: {error!r}") from error
    finally:
        connection.close()
    if response.status != 200:
        said = text[:500].decode(errors="replace")
        raise CommandError(f"POST /v1/infer answered {response.status}: {said}")
    answer: dict[str, Any] = json.loads(text)
    return answer
