"""Triton Inference Server with its own front ends and scheduler, and the model in its Python backend.

The program comes with PyTriton's wheel. That wheel has no ONNX Runtime backend in C++, which Triton is
fastest with; it is in container images alone, so it is not measured here.
"""

from pathlib import Path

from bench.peers.peer import ROOT, Launch, Peer, environment_folder
from bench.peers.pytriton.peer import interpreter_library
from bench.peers.task import Task
from bench.peers.v2 import ask_v2

_CONFIG = """name: "{model}"
backend: "python"
max_batch_size: {max_batch_size}
input [ {{ name: "input" data_type: TYPE_FP32 dims: [{input}] }} ]
output [ {{ name: "output" data_type: TYPE_FP32 dims: [{output}] }} ]
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
"""
_MODEL = """import sys
sys.path[:0] = {paths}
from bench.peers.triton.program import TritonPythonModel
"""
_BATCHING = "dynamic_batching {{ max_queue_delay_microseconds: {delay} }}\n"
_STUB = "triton_python_backend_stub"
_PYTHON = "3.11"


def _site_packages() -> Path:
    return environment_folder("pytriton") / "lib" / f"python{_PYTHON}" / "site-packages"


def _lay_out(task: Task) -> None:
    """Write the model repository, and a backend folder with the stub for this version of Python."""
    release = _site_packages() / "pytriton" / "tritonserver"
    model = Path(task.folder, "models", task.model)
    (model / "1").mkdir(parents=True)
    # The stub does not look at PYTHONPATH.
    (model / "1" / "model.py").write_text(_MODEL.format(paths=[str(_site_packages()), str(ROOT)]))
    config = _CONFIG.format(
        model=task.model,
        max_batch_size=task.max_batch_size if task.batching else 1,
        input=", ".join(map(str, task.input_shape)),
        output=", ".join(map(str, task.output_shape)),
    )
    if task.batching:
        config += _BATCHING.format(delay=task.delay_ms * 1000)
    (model / "config.pbtxt").write_text(config)
    backend = Path(task.folder, "backends", "python")
    backend.mkdir(parents=True)
    for file in (
        *(release / "backends" / "python").iterdir(),
        release / "python_backend_stubs" / _PYTHON / _STUB,
    ):
        (backend / file.name).symlink_to(file)


def _launch(task: Task) -> Launch:
    _lay_out(task)
    site = _site_packages()
    command = (
        str(site / "pytriton" / "tritonserver" / "bin" / "tritonserver"),
        *("--model-repository", f"{task.folder}/models", "--backend-directory", f"{task.folder}/backends"),
        *("--http-address", "127.0.0.1", "--http-port", str(task.port)),
        *("--grpc-address", "127.0.0.1", "--grpc-port", str(task.grpc_port)),
        *("--metrics-port", str(task.spare_port), "--log-info", "false"),
    )
    libraries = f"{interpreter_library()['LD_LIBRARY_PATH']}:{site / 'nvidia_pytriton.libs'}"
    return Launch(command, {"LD_LIBRARY_PATH": libraries})


def _triton(name: str, summary: str, *, batching: bool = True, delayed: bool = False) -> Peer:
    return Peer(
        name,
        f"Triton's Python backend, {summary}",
        "nvidia-pytriton",
        _launch,
        ask_v2,
        "pytriton",
        batching=batching,
        delayed=delayed,
        ready_path="/v2/models/{model}/ready",
    )


TRITON = (
    _triton("triton", "dynamic batching without a delay"),
    _triton("triton-delayed", "dynamic batching with the delay", delayed=True),
    _triton("triton-unbatched", "dynamic batching off", batching=False),
)
