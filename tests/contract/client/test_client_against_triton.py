"""Both clients against Triton itself, where `python -m bench install pytriton` has brought it.

Its wheel has the server with its own front ends; the model runs in its Python backend.
"""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bench.peers.peer import environment_folder
from bench.peers.pytriton.peer import interpreter_library
from mcp2026.client import Client, InvalidRequestError, ModelNotFoundError, ModelState, Tensor
from tests.contract.client.both_clients import PATIENCE, Connect
from tests.contract.client.test_client_answers import ARRAYS
from tests.loopback import free_port

SITE = environment_folder("pytriton") / "lib/python3.11/site-packages"
RELEASE = SITE / "pytriton/tritonserver"
pytestmark = pytest.mark.skipif(not RELEASE.is_dir(), reason="python -m bench install pytriton")

MODEL = f"""import sys
sys.path.insert(0, {str(SITE)!r})
import triton_python_backend_utils as backend

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            tensor = request.inputs()[0]
            echoed = backend.Tensor("y", tensor.as_numpy())
            answers.append(backend.InferenceResponse([echoed]))
        return answers
"""
CONFIG = """backend: "python"
max_batch_size: 8
input [ {{ name: "x" data_type: TYPE_{datatype} dims: [3] }} ]
output [ {{ name: "y" data_type: TYPE_{datatype} dims: [3] }} ]
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
dynamic_batching {{ default_queue_policy {{ allow_timeout_override: true }} }}
"""
DATATYPES = ("BOOL", "INT64", "UINT8", "FP16", "FP32", "STRING")
"""Some: Triton starts a process for each model."""


def lay_out(folder: Path) -> None:
    """Write an echo for every datatype, and a backend folder with the stub for this version of Python."""
    for datatype in DATATYPES:
        model = folder / "models" / f"echo_{datatype.lower()}"
        (model / "1").mkdir(parents=True)
        (model / "1/model.py").write_text(MODEL)
        (model / "config.pbtxt").write_text(CONFIG.format(datatype=datatype))
    backend = folder / "backends/python"
    backend.mkdir(parents=True)
    stub = RELEASE / "python_backend_stubs/3.11/triton_python_backend_stub"
    for file in (*(RELEASE / "backends/python").iterdir(), stub):
        (backend / file.name).symlink_to(file)


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    folder = tmp_path_factory.mktemp("triton")
    lay_out(folder)
    numbers = {"http": free_port(), "grpc": free_port()}
    libraries = f"{interpreter_library()['LD_LIBRARY_PATH']}:{SITE / 'nvidia_pytriton.libs'}"
    server = subprocess.Popen(
        [
            str(RELEASE / "bin/tritonserver"),
            *("--model-repository", f"{folder}/models", "--backend-directory", f"{folder}/backends"),
            *("--http-address", "127.0.0.1", "--http-port", str(numbers["http"])),
            *("--grpc-address", "127.0.0.1", "--grpc-port", str(numbers["grpc"])),
            *("--allow-metrics", "false", "--log-info", "false"),
        ],
        env={"LD_LIBRARY_PATH": libraries},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with Client(f"http://127.0.0.1:{numbers['http']}") as client:
            deadline = time.monotonic() + PATIENCE
            while not client.ready():
                assert time.monotonic() < deadline
                assert server.poll() is None
                time.sleep(0.1)
        yield numbers
    finally:
        server.terminate()
        server.wait(PATIENCE)


@pytest.fixture(params=["http", "grpc"])
def triton(request: pytest.FixtureRequest, ports: dict[str, int]) -> str:
    return f"{request.param}://127.0.0.1:{ports[request.param]}"


def test_triton_answers_as_our_server_does(triton: str, connect: Connect) -> None:
    client = connect(triton, batching=True)  # Triton knows nothing of it and must not mind
    assert client.ready()
    assert client.ready("echo_fp32")
    assert not client.ready("nothing")
    assert ModelState("echo_fp32", "1", "READY", "") in client.models()
    assert client.model("echo_fp32").inputs[0].shape == (-1, 3)
    for datatype in DATATYPES[:-1]:
        array = ARRAYS[datatype]
        result = client.infer(
            {"x": array}, model=f"echo_{datatype.lower()}", version="1", priority=1, tenant="a", timeout=20
        )
        assert (datatype, result["y"].tobytes()) == (datatype, array.tobytes())
        assert result.batching is None
    words = client.infer({"x": [["a", "", "größer"]]}, model="echo_string", outputs=["y"])
    assert words.text("y").tolist() == [["a", "", "größer"]]


def test_triton_refuses_as_our_server_does(triton: str, connect: Connect) -> None:
    client = connect(triton)
    row = np.float32([[1, 2, 3]])
    with pytest.raises(ModelNotFoundError):
        client.infer({"x": row}, model="nothing")
    with pytest.raises(InvalidRequestError):
        client.infer({"x": row.astype(np.float64)}, model="echo_fp32")
    with pytest.raises(InvalidRequestError):
        client.infer({"x": Tensor(row, "BF16")}, model="echo_fp32")
    with pytest.raises(InvalidRequestError):
        client.infer({"x": row}, model="echo_fp32", outputs=["z"])
