"""One inference over HTTP, and the same by ONNX Runtime called directly, to compare."""

import json
import urllib.request
from http import HTTPStatus
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime

Floats = npt.NDArray[np.float32]

TOLERANCE = 1e-4
"""Relative. A batch of another size may take another order of summation."""


_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def is_ready(address: str) -> bool:
    """Return whether `GET http://{address}/readyz` answers 200.

    A Service's address comes to life a moment after its pods are ready, when kube-proxy has heard of them.
    """
    try:
        with _DIRECT.open(f"http://{address}/readyz", timeout=2) as response:
            return bool(response.status == HTTPStatus.OK)
    except OSError:
        return False


def infer(address: str, rows: Floats, timeout_s: float = 60.0) -> Floats:
    """Send `rows` to `POST http://{address}/v1/infer`; return the output in its shape."""
    body = json.dumps({"input": rows.ravel().tolist(), "shape": rows.shape}).encode()
    request = urllib.request.Request(f"http://{address}/v1/infer", data=body, method="POST")
    request.add_header("content-type", "application/json")
    with _DIRECT.open(request, timeout=timeout_s) as response:
        answer = json.load(response)
    return np.array(answer["output"], np.float32).reshape(answer["shape"])


def run_directly(model: Path, rows: Floats) -> Floats:
    """Return what ONNX Runtime makes of `rows` on the CPU, in this process."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    output: Floats = session.run(None, {session.get_inputs()[0].name: rows})[0]
    return output


def random_images(count: int, seed: int = 20261130) -> Floats:
    """Return `count` images [count, 3, 224, 224] of standard normal noise, the same for a seed."""
    return np.random.default_rng(seed).standard_normal((count, 3, 224, 224), np.float32)
