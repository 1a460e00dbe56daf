"""`mcp2026 convert`, run as a user runs it."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mcp2026.runtime.model.ir.reading import read_manifest
from mcp2026.runtime.model.triton.repository import read_model

ROOT = Path(__file__).parents[3]


def mcp2026(*arguments: object, largest_file: int | None = None) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        if largest_file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))

    return subprocess.run(
        [sys.executable, "-m", "mcp2026.cli", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=limit,
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a model whose batch normalization can be folded into its convolution."""
    random = np.random.default_rng(5)
    constants = {
        "w": random.standard_normal((32, 16, 3, 3), np.float32),
        **{name: np.abs(random.standard_normal(32, np.float32)) for name in ("scale", "b", "mean", "var")},
    }
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"]),
            helper.make_node("BatchNormalization", ["c", "scale", "b", "mean", "var"], ["y"]),
        ],
        "conv",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 16, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 32, 6, 6])],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    path = tmp_path / "conv.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return path


def test_a_model_is_converted_compared_and_described(model: Path) -> None:
    run = mcp2026("convert", model)
    assert (run.returncode, run.stderr) == (0, "")
    converted = model.with_suffix(".mcpir")
    assert run.stdout == (
        f"==> {converted}: 1 tensors, 0.0 MiB of shared weights, 0.0 MiB of graph; answers as {model} does\n"
    )
    manifest = json.loads(mcp2026("convert", "--describe", "--check", converted).stdout)
    assert manifest["optimization"] == "basic"
    assert manifest["source"]["file"] == "conv.onnx"
    assert sorted(entry.name for entry in model.parent.iterdir()) == ["conv.mcpir", "conv.onnx"]
    again = mcp2026("convert", model)
    assert (again.returncode, again.stderr) == (
        1,
        f"mcp2026: {converted} is there already; --force replaces it\n",
    )
    assert mcp2026("convert", "--force", "--weights", "private", "--no-optimize", model).returncode == 0
    assert (read_manifest(str(converted)).weights, read_manifest(str(converted)).optimization) == (
        "private",
        "none",
    )


def test_every_version_of_a_repository_is_converted_and_then_served(model: Path, tmp_path: Path) -> None:
    for version in ("1", "2"):
        folder = tmp_path / "repository" / "conv" / version
        folder.mkdir(parents=True)
        (folder / "model.onnx").write_bytes(model.read_bytes())
    run = mcp2026("convert", tmp_path / "repository")
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) == 2
    served = read_model(tmp_path / "repository", "conv")
    assert served.versions[0].path == str(tmp_path / "repository" / "conv" / "2" / "model.mcpir")
    refused = mcp2026("convert", tmp_path / "repository", "--output", tmp_path / "one.mcpir")
    assert "--output names one file, but 2 models would be written" in refused.stderr


@pytest.mark.parametrize("optimize", ["--optimize", "--no-optimize"])
def test_a_disk_that_takes_no_more_leaves_nothing_behind(model: Path, optimize: str) -> None:
    run = mcp2026("convert", optimize, model, largest_file=8_192)
    assert run.returncode == 1
    assert run.stderr.startswith("mcp2026: ")
    assert ("cannot be optimized" if optimize == "--optimize" else "File too large") in run.stderr
    assert len(run.stderr.splitlines()) == 1
    assert [entry.name for entry in model.parent.iterdir()] == ["conv.onnx"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["absent.onnx"], "no such file"),
        (["docs/decisions"], "holds neither model.onnx nor models"),
        (["README.md"], "not an ONNX model"),
        (["--describe", "README.md"], "does not begin as one"),
        (["--check", "README.md"], "--check goes with --describe only"),
    ],
)
def test_what_cannot_be_converted_is_said_in_one_sentence(arguments: list[str], said: str) -> None:
    run = mcp2026("convert", *arguments)
    assert run.returncode == 1
    assert said in run.stderr
    assert len(run.stderr.splitlines()) == 1


def test_a_model_that_dislikes_random_input_needs_to_be_told_so(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.ones((5, 2000), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", "five"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2000])],
        [weight],
    )
    path = tmp_path / "odd.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    run = mcp2026("convert", path)
    assert run.returncode == 1
    assert "--no-verify leaves this out" in run.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["odd.onnx"]
    assert mcp2026("convert", "--no-verify", path).returncode == 0
