"""Memory of models: processes share the weights of one file, and a model that is unloaded leaves nothing."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from mcp2026.runtime.model.ir.writing import Origin, describe_source, write_ir_file

MIB = 1024 * 1024
SIDE = 4096
WEIGHTS = SIDE * SIDE * 4
"""64 MiB."""


class ModelProcess:
    """A process of `model_process.py`."""

    def __init__(self, model: Path, small: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.contract.runtime.model_process", str(model), str(small)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, command: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the process ended at {command!r}"
        return json.loads(answer)

    def close(self) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with `large.onnx` of 64 MiB, two converted forms, a quarter of it, and `small.onnx`."""
    folder = tmp_path_factory.mktemp("weights")
    for name, columns in (("large", SIDE), ("quarter", SIDE // 4), ("small", 4)):
        weight = np.random.default_rng(7).standard_normal((SIDE, columns), np.float32)
        model = helper.make_model(
            helper.make_graph(
                [helper.make_node("MatMul", ["x", "weight"], ["y"])],
                name,
                [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", SIDE])],
                [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", columns])],
                [numpy_helper.from_array(weight, "weight")],
            ),
            opset_imports=[helper.make_opsetid("", 17)],
            ir_version=10,
        )
        onnx.save(model, folder / f"{name}.onnx")
    for name, weights in (("large", "shared"), ("private", "private"), ("quarter", "shared")):
        source = folder / ("quarter.onnx" if name == "quarter" else "large.onnx")
        origin = Origin(source, describe_source(source), weights, "none", None)  # type: ignore[arg-type]
        write_ir_file(origin, folder / f"{name}.mcpir", lambda done, total: None, replace=False)
    return folder


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[[str], ModelProcess]]:
    """Return a function that starts a process for a model of the folder."""
    started: list[ModelProcess] = []

    def start_process(name: str) -> ModelProcess:
        started.append(ModelProcess(folder / name, folder / "small.onnx"))
        return started[-1]

    yield start_process
    for process in started:
        process.close()


def copies(processes: list[ModelProcess]) -> tuple[float, list[float]]:
    """Load and run the model in all of them; return the growth of their memory in copies of the weights."""
    before = sum(process.ask("measure")["Pss"] for process in processes)
    for process in processes:
        process.ask("load")
    answers = [process.ask("run") for process in processes for _ in range(3)]
    after = sum(process.ask("measure")["Pss"] for process in processes)
    return (after - before) / WEIGHTS, answers


@pytest.mark.serial(reason="the share of a library's pages depends on how many processes have it mapped")
@pytest.mark.parametrize(
    ("model", "least", "most"),
    [
        pytest.param("large.mcpir", 0.9, 1.2, id="the converted model is in memory once"),
        pytest.param("large.onnx", 1.8, 2.5, id="an ONNX file is in memory once for each process"),
        pytest.param("private.mcpir", 1.8, 2.5, id="so is a converted one that asks for packed weights"),
    ],
)
def test_two_processes_with_the_same_model(
    start: Callable[[str], ModelProcess], model: str, least: float, most: float
) -> None:
    found, answers = copies([start(model), start(model)])
    assert least <= found <= most
    assert len(set(answers)) == 1


@pytest.mark.parametrize("model", ["large.mcpir", "quarter.mcpir", "quarter.onnx"])
def test_fifty_loads_and_unloads_leave_memory_as_it_is_after_five(
    start: Callable[[str], ModelProcess], model: str
) -> None:
    process = start(model)
    sizes = []
    for _ in range(50):
        process.ask("load")
        process.ask("run")
        process.ask("unload")
        sizes.append(process.ask("measure")["Rss"])
    assert max(sizes[5:]) - sizes[4] < 4 * MIB, [size // MIB for size in sizes]
    assert process.ask("collect") < 1_000  # what goes only with the collector would wait for it
