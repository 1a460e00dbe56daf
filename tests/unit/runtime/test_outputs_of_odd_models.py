"""Outputs whose shapes are not what the model declares, or not the same twice: as ONNX Runtime alone."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from mcp2026.runtime.execution.job import Job
from mcp2026.runtime.model.loaded import LoadedVersion
from tests.unit.runtime.loaded_versions import loaded_version

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
value = helper.make_tensor_value_info


def save(folder: Path, nodes: list, outputs: list, inputs: list | None = None, **constants: list[int]) -> str:
    """Write a model of input x [N, 4], unless `inputs` says another; what onnx warns of is the point here."""
    graph = helper.make_graph(
        [helper.make_node(*node[:3], **(node[3] if len(node) > 3 else {})) for node in nodes],
        "odd",
        inputs or [value("x", FLOAT, ["N", 4])],
        outputs,
        [numpy_helper.from_array(np.array(values, np.int64), name) for name, values in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    path = folder / "odd.onnx"
    onnx.save(model, path)
    return str(path)


def negated(folder: Path) -> str:
    return save(folder, [("Neg", ["x"], ["y"])], [value("y", FLOAT, ["N", 4])])


def input_as_output(folder: Path) -> str:
    return save(folder, [("Neg", ["x"], ["y"])], [value("y", FLOAT, ["N", 4]), value("x", FLOAT, ["N", 4])])


def nothing_but_its_input(folder: Path) -> str:
    return save(folder, [], [value("x", FLOAT, ["N", 4])])


def fixed_input_as_output(folder: Path) -> str:
    return save(folder, [], [value("x", FLOAT, [1, 4])], [value("x", FLOAT, [1, 4])])


def shape_by_values(folder: Path) -> str:
    return save(folder, [("NonZero", ["x"], ["y"])], [value("y", INT64, [2, "k"])])


def rows_by_values(folder: Path) -> str:
    nodes = [("NonZero", ["x"], ["z"]), ("Transpose", ["z"], ["y"])]
    return save(folder, nodes, [value("y", INT64, ["k", 2])])


def no_declared_shape(folder: Path) -> str:
    nodes = [("Abs", ["x"], ["a"]), ("NonZero", ["a"], ["z"]), ("Shape", ["x"], ["s"])]
    nodes += [("ConstantOfShape", ["s"], ["o"]), ("Add", ["x", "o"], ["y"])]
    return save(folder, nodes, [value("y", FLOAT, None)])


def one_row_declared(folder: Path) -> str:
    return save(folder, [("Neg", ["x"], ["y"])], [value("y", FLOAT, [1, 4])])


def other_width_declared(folder: Path) -> str:
    inputs = [value("x", FLOAT, ["N", "M"])]
    nodes = [("Slice", ["x", "from", "to", "axis"], ["y"])]
    constants = {"from": [0], "to": [3], "axis": [1]}
    return save(folder, nodes, [value("y", FLOAT, ["N", 7])], inputs, **constants)


def width_declared_that_only_the_sample_has(folder: Path) -> str:
    inputs = [value("x", FLOAT, ["N", "M"])]
    return save(folder, [("Neg", ["x"], ["y"])], [value("y", FLOAT, ["N", 1])], inputs)


MODELS = [
    negated,
    input_as_output,
    nothing_but_its_input,
    fixed_input_as_output,
    shape_by_values,
    rows_by_values,
    no_declared_shape,
    one_row_declared,
    other_width_declared,
    width_declared_that_only_the_sample_has,
]


def load(path: str) -> LoadedVersion:
    return loaded_version(path)


def run(version: LoadedVersion, *parts: np.ndarray) -> list[np.ndarray]:
    shared = version.signature.shared
    shape = parts[0].shape[1:] if shared else parts[0].shape
    job = Job(version, (shape,), [(part,) for part in parts], sum(len(part) for part in parts))
    job.run()
    error, outputs = job.error, [np.array(output) for output in job.outputs]
    job.release()
    if error is not None:
        raise error
    return outputs


@pytest.mark.parametrize("make", MODELS)
def test_every_answer_is_that_of_onnx_runtime_whatever_was_answered_before(
    make: Callable[[Path], str], tmp_path: Path
) -> None:
    path = make(tmp_path)
    version = load(path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    alone = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    rows = (1,) if version.signature.inputs[0].dims[0] else (1, 3, 2)
    for count in rows:
        for seed in range(4):
            x = np.random.default_rng(seed).integers(0, 2 if seed else 1, (count, 4)).astype(np.float32)
            for ours, theirs in zip(run(version, x), alone.run(None, {"x": x}), strict=True):
                np.testing.assert_array_equal(ours, theirs)


def test_a_model_that_keeps_to_what_it_declares_writes_into_memory_of_ours(tmp_path: Path) -> None:
    assert load(negated(tmp_path)).signature.ahead


@pytest.mark.parametrize("width", [4, "M"])
def test_rows_that_nobody_can_tell_apart_are_never_handed_out(width: int | str, tmp_path: Path) -> None:
    """Keeps the rows whose first value is over -9: those of the probe all are."""
    constants = {"zero": [0], "one": [1], "minus_one": [-1]}
    nodes = [
        ("Gather", ["x", "zero"], ["first"], {"axis": 1}),
        ("Reshape", ["first", "minus_one"], ["flat"]),
        ("ConstantOfShape", ["one"], ["limit"], {"value": helper.make_tensor("v", FLOAT, [1], [-9.0])}),
        ("Greater", ["flat", "limit"], ["keep"]),
        ("Compress", ["x", "keep"], ["y"], {"axis": 0}),
    ]
    inputs, outputs = ([value(name, FLOAT, ["N", width])] for name in ("x", "y"))
    version = load(save(tmp_path, nodes, outputs, inputs, **constants))
    assert version.signature.shared
    good, bad = np.ones((1, 4), np.float32), np.full((1, 4), -10, np.float32)
    np.testing.assert_array_equal(run(version, good, good)[0], np.ones((2, 4)))
    with pytest.raises(Exception, match=r"rows|shape"):
        run(version, good, bad)
    np.testing.assert_array_equal(run(version, good)[0], good)
