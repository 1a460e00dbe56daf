"""What the first runs of a model find out, for every element type, and which shapes are taken."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mcp2026.runtime.errors import ModelLoadError, RequestError
from mcp2026.runtime.model.probe import agree, probe, run
from mcp2026.runtime.model.sessions import open_model
from mcp2026.runtime.model.signature import Signature, TensorSpec, check_shape, count_rows, spec_of
from tests.unit.runtime.loaded_versions import loaded_version


def identity(
    folder: Path, element_type: int, shape: list[int | str] | None, operator: str = "Identity"
) -> str:
    values = [helper.make_tensor_value_info(name, element_type, shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"])], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(model, folder / "m.onnx")
    return str(folder / "m.onnx")


def signature(path: str, *, may_share: bool = True) -> tuple[Signature, object]:
    model = open_model(path, None, 1, "cpu")
    unranked = {value.name for value in (*model.values.inputs, *model.values.outputs) if value.shape is None}
    inputs, outputs = (
        tuple(spec_of(argument, ranked=argument.name not in unranked) for argument in arguments)
        for arguments in (model.session.get_inputs(), model.session.get_outputs())
    )
    return probe(model.session, inputs, outputs, "1", may_share=may_share), model.session


@pytest.mark.parametrize(
    "kind", ["FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "INT8", "UINT64", "BOOL", "STRING"]
)
def test_requests_share_runs_whatever_the_elements_are(tmp_path: Path, kind: str) -> None:
    found, _ = signature(identity(tmp_path, getattr(TensorProto, kind), ["N", 3]))
    assert found.shared
    assert found.ahead


def test_a_model_that_may_not_share_runs_is_only_warmed(tmp_path: Path) -> None:
    found, _ = signature(identity(tmp_path, TensorProto.FLOAT, ["N", 3]), may_share=False)
    assert not found.shared


def test_bits_of_bfloat16_come_back(tmp_path: Path) -> None:
    found, session = signature(identity(tmp_path, TensorProto.BFLOAT16, ["N", 2]))
    bits = np.array([[0x3F80, 0xC000]], np.uint16)
    (answer,) = run(session, found.inputs, found.outputs, {"x": bits})
    assert answer.tolist() == bits.tolist()


def test_text_beside_bfloat16_is_refused_when_it_is_loaded(tmp_path: Path) -> None:
    values = [
        helper.make_tensor_value_info(f"{side}{name}", element_type, ["N"])
        for name, element_type in (("text", TensorProto.STRING), ("bits", TensorProto.BFLOAT16))
        for side in ("in_", "out_")
    ]
    nodes = [helper.make_node("Identity", [f"in_{name}"], [f"out_{name}"]) for name in ("text", "bits")]
    graph = helper.make_graph(nodes, "g", values[::2], values[1::2])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    with pytest.raises(ModelLoadError, match="text and of bfloat16"):
        loaded_version(path)


def test_bfloat16_is_compared_as_numbers() -> None:
    spec = TensorSpec("y", np.dtype(np.uint16), (1,), "BF16")
    one, nearly, two = (np.array([bits], np.uint16) for bits in (0x3F80, 0x3F81, 0x4000))
    assert agree(spec, one, nearly)
    assert not agree(spec, one, two)


@pytest.mark.parametrize(
    ("shape", "ranked", "dims"),
    [(None, False, ()), ([], True, ()), (["N"], True, (None,)), ([3], True, (3,))],
)
def test_an_unknown_rank_is_no_scalar(
    tmp_path: Path, shape: list[int | str] | None, ranked: bool, dims: tuple[int | None, ...]
) -> None:
    found, _ = signature(identity(tmp_path, TensorProto.FLOAT, shape))
    assert (found.inputs[0].ranked, found.inputs[0].dims) == (ranked, dims)
    assert found.shared == (dims == (None,))
    assert found.ahead == (ranked and shape is not None)


ANY = TensorSpec("x", np.dtype(np.float32), (), "FP32", ranked=False)
ROWS = TensorSpec("x", np.dtype(np.float32), (None, 3), "FP32")
SCALAR = TensorSpec("x", np.dtype(np.float32), (), "FP32")


@pytest.mark.parametrize(
    ("spec", "shape"), [(ANY, []), (ANY, [2]), (ANY, [1] * 32), (ROWS, [5, 3]), (SCALAR, [])]
)
def test_shapes_that_fit(spec: TensorSpec, shape: list[int]) -> None:
    check_shape(spec, shape, int(np.prod(shape)), "shape")


@pytest.mark.parametrize(
    ("spec", "shape", "values", "said"),
    [
        (ROWS, [0, 3], 0, "empty tensor"),
        (ANY, [2, 0], 0, "empty tensor"),
        (ROWS, [-1, 3], 3, "negative"),
        (ROWS, [2, 4], 8, "does not fit"),
        (ROWS, [2], 2, "1 dimensions"),
        (SCALAR, [1], 1, "1 dimensions"),
        (ANY, [1] * 33, 1, "33 dimensions"),
        (ANY, [2**40, 2**40], 1, "too many values"),
        (ANY, [2], 3, "3 were sent"),
    ],
)
def test_shapes_that_do_not_fit_are_refused_by_field(
    spec: TensorSpec, shape: list[int], values: int, said: str
) -> None:
    with pytest.raises(RequestError, match=said) as refused:
        check_shape(spec, shape, values, "inputs.x.shape")
    assert refused.value.field == "inputs.x.shape"


def test_rows_are_counted_up_to_the_cap_of_a_request() -> None:
    taken = Signature((ROWS,), (ROWS,), shared=True, ahead=True)
    assert count_rows(taken, [np.empty((100_000, 3), np.float32)]) == 100_000
    with pytest.raises(RequestError, match="3 rows"):
        count_rows(taken, [np.empty((3, 3), np.float32)], 2)
