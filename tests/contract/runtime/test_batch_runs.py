"""Data sets through real models: what goes in and out, and how a run tells what it did."""

import gzip
import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.contract.runtime.batch_process import CLEAN, COMMAND, PATIENCE, run_batch

Model = Callable[[str], Path]
Direct = Callable[..., list[np.ndarray]]
X = np.random.default_rng(5).standard_normal((70, 16)).astype(np.float32)


def identity(folder: Path, element_type: int) -> Path:
    """Write a model that gives back its input of three values a row."""
    values = [helper.make_tensor_value_info(name, element_type, ["N", 3]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", values[:1], values[1:])
    path = folder / "identity.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return path


def lists(column: Any) -> Any:
    """Return an Arrow column of a list for each row."""
    element = pa.string() if column.dtype.kind == "U" else pa.from_numpy_dtype(column.dtype)
    return pa.array(column.tolist(), pa.list_(element))


def write(path: Path, **columns: Any) -> Path:
    if path.suffix == ".npy":
        np.save(path, *columns.values())
    elif path.suffix == ".npz":
        np.savez(path, **columns)
    elif path.suffix == ".parquet":
        pq.write_table(pa.table({name: lists(column) for name, column in columns.items()}), path)
    else:
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        path.write_text("".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows))
    return path


def read(path: Path, name: str, dtype: Any = None) -> Any:
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".npz":
        return np.load(path)[name]
    if path.suffix == ".parquet":
        return np.array(pq.read_table(path)[name].to_pylist(), dtype)
    return np.array([json.loads(line)[name] for line in path.read_text().splitlines()], dtype)


@pytest.mark.parametrize(
    ("given", "made"), [("npy", "npz"), ("npz", "jsonl"), ("jsonl", "parquet"), ("parquet", "npy")]
)
def test_rows_come_back_in_their_order(model: Model, tmp_path: Path, given: str, made: str) -> None:
    source, output = write(tmp_path / f"in.{given}", input=X), tmp_path / f"out.{made}"
    done = run_batch(
        tmp_path, "--model-path", str(model("add")), "--input", str(source), "--output", str(output)
    )
    assert done.code == 0, done.log
    np.testing.assert_allclose(read(output, "output"), X + 1, rtol=1e-6)
    told = done.termination
    assert (told["reason"], told["rows"], told["rows_total"]) == ("Completed", 70, 70)
    assert told["sha256"] == hashlib.sha256(output.read_bytes()).hexdigest()
    assert told["bytes"] == output.stat().st_size
    again = run_batch(
        tmp_path, "--model-path", str(model("add")), "--input", str(source), "--output", str(output)
    )
    assert (again.code, again.termination["rows_resumed"]) == (0, 70)
    assert again.termination["sha256"] == told["sha256"]


@pytest.mark.parametrize("suffix", ["npz", "jsonl", "parquet"])
def test_several_inputs_and_outputs_have_their_names(model: Model, tmp_path: Path, suffix: str) -> None:
    left, right = X[:, :4], X[:, 4:8]
    source, output = write(tmp_path / f"in.{suffix}", right=right, left=left), tmp_path / f"out.{suffix}"
    done = run_batch(
        tmp_path, "--model-path", str(model("pair")), "--input", str(source), "--output", str(output)
    )
    assert done.code == 0, done.log
    np.testing.assert_allclose(read(output, "sum"), left + right, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(read(output, "difference"), left - right, rtol=1e-5, atol=1e-6)


ELEMENTS: dict[str, Any] = {
    "FLOAT": np.array([[1.5, -2, 3]] * 5, np.float32),
    "DOUBLE": np.array([[1e300, -2, 3]] * 5),
    "FLOAT16": np.array([[1.5, -2, 65504]] * 5, np.float16),
    "BFLOAT16": np.array([[1.5, -2, 3]] * 5, np.float32),
    "INT8": np.array([[-128, 0, 127]] * 5, np.int8),
    "INT16": np.array([[-(2**15), 0, 2**15 - 1]] * 5, np.int16),
    "INT32": np.array([[-(2**31), 0, 2**31 - 1]] * 5, np.int32),
    "INT64": np.array([[-(2**63), 0, 2**63 - 1]] * 5, np.int64),
    "UINT8": np.array([[0, 1, 255]] * 5, np.uint8),
    "UINT16": np.array([[0, 1, 65535]] * 5, np.uint16),
    "UINT32": np.array([[0, 1, 2**32 - 1]] * 5, np.uint32),
    "UINT64": np.array([[0, 1, 2**64 - 1]] * 5, np.uint64),
    "BOOL": np.array([[True, False, True]] * 5),
    "STRING": np.array([["", "grün", "a longer text"]] * 5),
}


@pytest.mark.parametrize("kind", ELEMENTS)
def test_every_type_goes_through_every_format(tmp_path: Path, kind: str) -> None:
    path, values = identity(tmp_path, getattr(TensorProto, kind)), ELEMENTS[kind]
    previous = write(tmp_path / "in.npy", x=values)
    for suffix in ("jsonl", "parquet", "npz", "npy"):
        output = tmp_path / f"out.{suffix}"
        done = run_batch(
            tmp_path, "--model-path", str(path), "--input", str(previous), "--output", str(output)
        )
        assert done.code == 0, done.log
        found = read(output, "y", values.dtype)
        assert found.tolist() == values.tolist(), suffix
        previous = write(tmp_path / f"in.{suffix}", x=found)


@pytest.mark.parametrize("name", ["mixing", "fixed"])
def test_rows_of_a_model_that_shares_no_runs_go_one_by_one(model: Model, tmp_path: Path, name: str) -> None:
    rows = X[:10].reshape(10, 2, 8) if name == "fixed" else X[:10, :8].reshape(10, 2, 4)
    source, output = write(tmp_path / "in.npy", input=rows), tmp_path / "out.npy"
    done = run_batch(
        tmp_path, "--model-path", str(model(name)), "--input", str(source), "--output", str(output)
    )
    assert done.code == 0, done.log
    expected = -rows if name == "fixed" else rows - rows.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(np.load(output), expected, rtol=1e-5, atol=1e-6)


def test_rows_of_different_lengths_share_runs_where_they_can(model: Model, tmp_path: Path) -> None:
    lengths = [1, 3, 1, 2, 3, 3, 1] * 10
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    rows = [list(range(number, number + length)) for number, length in enumerate(lengths)]
    source.write_text("".join(json.dumps({"id": n, "input": row}) + "\n" for n, row in enumerate(rows)))
    done = run_batch(
        tmp_path, "--model-path", str(model("anysize")), "--input", str(source), "--output", str(output)
    )
    assert done.code == 0, done.log
    answers = [json.loads(line) for line in output.read_text().splitlines()]
    assert [answer["id"] for answer in answers] == list(range(70))
    assert [answer["output"] for answer in answers] == [[value + 1 for value in row] for row in rows]


def test_batches_are_padded_and_run_at_a_time_as_the_configuration_says(
    model: Model, tmp_path: Path, direct: Direct
) -> None:
    config = {
        "model": "m",
        "versions": [
            {"versionId": "a", "path": str(model("add")), "weight": 50},
            {"versionId": "b", "path": str(model("mlp")), "weight": 50},
        ],
        "execution": {"instances": 3, "paddedBatchSizes": [8, 16]},
        "batching": {"maxBatchSize": 16},
    }
    (tmp_path / "serving.json").write_text(json.dumps(config))
    rows = np.random.default_rng(6).standard_normal((100, 64)).astype(np.float32)
    source, output = write(tmp_path / "in.npy", input=rows), tmp_path / "out.npy"
    asked = (
        "--serving-config",
        str(tmp_path / "serving.json"),
        "--input",
        str(source),
        "--output",
        str(output),
    )
    unsaid = run_batch(tmp_path, *asked)
    assert (unsaid.code, unsaid.log) == (2, "mcp2026-batch: --version: is not given; allowed: a, b\n")
    done = run_batch(tmp_path, *asked, "--version", "b")
    assert done.code == 0, done.log
    np.testing.assert_allclose(np.load(output), direct("mlp", input=rows)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch", ["1", "32"])
def test_the_row_that_the_model_fails_on_is_named(model: Model, tmp_path: Path, batch: str) -> None:
    indexes = np.zeros((50, 1), np.int64)
    indexes[37] = 10
    source = write(tmp_path / "in.jsonl", input=indexes)
    failed = run_batch(
        tmp_path,
        *(
            "--model-path",
            str(model("lookup")),
            "--input",
            str(source),
            "--output",
            str(tmp_path / "out.npy"),
        ),
        *("--max-batch-size", batch),
    )
    assert (failed.code, failed.termination["reason"]) == (1, "ExecutionFailed")
    assert "line 38: the model failed: " in failed.termination["message"]


@pytest.mark.parametrize(
    ("flags", "code", "reason", "message"),
    [
        (("--input", "none.npy"), 3, "InputRefused", "there is no such file"),
        (("--input", "empty.npy"), 3, "InputRefused", "it has no rows"),
        (("--input", "empty.jsonl"), 3, "InputRefused", "it has no rows"),
        (("--input", "wide.npy"), 3, "InputRefused", "its shape is [17]. A row takes the shape [16]"),
        (("--model-path", "none.onnx"), 1, "ModelRefused", "no such file"),
        (("--input-sha256", "0" * 64), 3, "InputRefused", "but --input-sha256 asks for"),
        (("--output", "/proc/none/out.npy"), 1, "StorageFailed", "/proc/none/out.npy: "),
        (("--output", "out.txt"), 2, "SettingsRefused", ".npy, .npz, .jsonl, .parquet"),
        (("--output", "https://host/out.npy"), 2, "SettingsRefused", "cannot be written"),
        (("--threads", "0"), 2, "SettingsRefused", "--threads"),
        (("--archive", "log.gz"), 2, "SettingsRefused", "--log-file with it"),
        (("--provider", "cuda"), 2, "SettingsRefused", "--provider"),
    ],
)
def test_what_is_wrong_is_named_with_its_exit_code(
    model: Model, tmp_path: Path, flags: tuple[str, str], code: int, reason: str, message: str
) -> None:
    write(tmp_path / "in.npy", input=X)
    write(tmp_path / "empty.npy", input=X[:0])
    write(tmp_path / "wide.npy", input=np.zeros((3, 17), np.float32))
    (tmp_path / "empty.jsonl").touch()
    name, value = flags
    if name in ("--input", "--output", "--model-path") and "/" not in value:
        value = str(tmp_path / value)
    given = {
        "--model-path": str(model("add")),
        "--input": str(tmp_path / "in.npy"),
        "--output": str(tmp_path / "out.npy"),
        name: value,
    }
    told = run_batch(tmp_path, *(text for pair in given.items() for text in pair))
    assert (told.code, told.termination["reason"]) == (code, reason), told.log
    assert message in told.termination["message"]
    assert not (tmp_path / "out.npy").exists()


def test_changed_external_data_is_another_model(tmp_path: Path) -> None:
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 16]) for name in ("input", "output")
    ]
    weights = numpy_helper.from_array(np.ones(16, np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Add", ["input", "w"], ["output"])], "g", values[:1], values[1:], [weights]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    path = tmp_path / "m.onnx"
    onnx.save(made, path, save_as_external_data=True, location="weights", size_threshold=0)
    asked = (
        *("--model-path", str(path), "--input", str(write(tmp_path / "in.npy", input=X))),
        *("--output", str(tmp_path / "out.npy")),
    )
    assert run_batch(tmp_path, *asked).code == 0
    (tmp_path / "weights").write_bytes(np.full(16, 2, np.float32).tobytes())
    changed = run_batch(tmp_path, *asked)
    assert (changed.code, changed.termination["reason"]) == (1, "ModelRefused"), changed.log
    assert run_batch(tmp_path, *asked, "--restart").code == 0
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), X + 2, rtol=1e-6)


def test_a_run_tells_its_progress_and_archives_its_log(model: Model, tmp_path: Path) -> None:
    source = write(tmp_path / "in.npy", input=X)
    names = ("progress.json", "batch.log", "batch.log.gz", "termination.json", "out.npy")
    progress, log, archive, termination, output = (tmp_path / name for name in names)
    environment = {"MCP2026_MODEL_PATH": str(model("add")), "MCP2026_ROWS_PER_PART": "20"}
    run = subprocess.run(
        [
            *COMMAND,
            *(
                "--input",
                source.as_uri(),
                "--output",
                "pvc://results/out.npy",
                "--claim",
                f"results={tmp_path}",
            ),
            *("--progress-file", str(progress), "--log-file", str(log), "--archive", str(archive)),
            *("--termination-message", str(termination), "--log-format", "json", "--threads", "1"),
        ],
        env=CLEAN | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (run.returncode, run.stdout) == (0, ""), run.stderr
    assert len(np.load(output)) == 70
    told = json.loads(progress.read_text())
    assert (told["phase"], told["rows_done"], told["rows_total"]) == ("done", 70, 70)
    assert (told["parts_done"], told["parts_total"], told["rows_resumed"]) == (4, 4, 0)
    lines = [json.loads(line) for line in run.stderr.splitlines()]
    assert [line["rows_done"] for line in lines if "rows_done" in line][-1] == 70
    ended = json.loads(termination.read_text())
    assert ended["archive_sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert gzip.decompress(archive.read_bytes()) == log.read_bytes()
    assert log.read_text() == run.stderr
