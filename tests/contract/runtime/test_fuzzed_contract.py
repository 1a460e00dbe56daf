"""schemathesis asks a real server what its own document allows, and what it does not, and finds nothing."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from tests.contract.runtime.server_process import PATIENCE, Server

CONFIGURATION = Path(__file__).with_name("schemathesis.toml")


def classifier(path: Path) -> Path:
    """Write the model of the document's examples: `probabilities` of two classes, from four numbers `x`."""
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "weights"], ["logits"]),
            helper.make_node("Softmax", ["logits"], ["probabilities"], axis=1),
        ],
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", 2])],
        [helper.make_tensor("weights", TensorProto.FLOAT, [4, 2], [0.5, -0.5] * 4)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    file = classifier(tmp_path / "mlp.onnx")
    versions = [
        {"versionId": version_id, "path": str(file), "weight": weight}
        for version_id, weight in (("1", 100), ("v2", 0))
    ]
    (tmp_path / "serving.json").write_text(json.dumps({"model": "mlp", "versions": versions}))
    config = str(tmp_path / "serving.json")
    running = Server("--serving-config", config, "--model-control", "explicit", "--threads", "1")
    yield running
    running.close()


def test_schemathesis_finds_nothing(server: Server, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIGURATION), "run"]
    command += [f"http://127.0.0.1:{server.port}/openapi.json", "--max-examples", "8"]
    command += ["--phases", "examples,coverage,fuzzing,stateful", "--seed", "1", "--no-color"]
    command += ["--generation-database", "none", "--request-timeout", "30"]
    told = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=4 * PATIENCE, check=False
    )
    assert told.returncode == 0, told.stdout[-8_000:] + told.stderr[-2_000:]
    assert [line for line in server.log if line["level"] == "error"] == []
