"""The data plane with real models: each caller gets its own rows, or its own error, exactly once."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mcp2026.api.serving import Execution
from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.execution.job import Job
from mcp2026.runtime.execution.tensor_cache import Array
from tests.unit.runtime.serving import Serve, config, identity
from tools.models import generate


def some_rows_only(folder: Path) -> Path:
    """Write a model that leaves out rows whose first value is -10 or less; those of the probe never are."""
    value, node = helper.make_tensor_value_info, helper.make_node
    lowest = helper.make_tensor("v", TensorProto.FLOAT, [1], [-9.0])
    constant = {"zero": [0], "one": [1], "minus_one": [-1]}
    graph = helper.make_graph(
        [
            node("Gather", ["x", "zero"], ["first"], axis=1),
            node("Reshape", ["first", "minus_one"], ["flat"]),
            node("ConstantOfShape", ["one"], ["limit"], value=lowest),
            node("Greater", ["flat", "limit"], ["keep"]),
            node("Compress", ["x", "keep"], ["y"], axis=0),
        ],
        "some_rows_only",
        [value("x", TensorProto.FLOAT, ["N", 3])],
        [value("y", TensorProto.FLOAT, ["N", 3])],
        [helper.make_tensor(name, TensorProto.INT64, [1], values) for name, values in constant.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    path = folder / "some.onnx"
    onnx.save(model, path)
    return path


async def test_callers_of_one_batch_get_their_own_rows(serve: Serve, tmp_path: Path) -> None:
    serving = serve(config(generate("add", tmp_path)))
    for rows in (1, 3, 2):
        serving.submit(np.full((rows, 16), rows, np.float32))
    for rows, output in zip((1, 3, 2), await serving.outcomes(), strict=True):
        np.testing.assert_array_equal(output, np.full((rows, 16), rows + 1))
    assert [job.rows for job in serving.jobs] == [6]
    assert serving.count('mcp2026_requests_total{code="200"') == 3


async def test_a_request_larger_than_a_run_is_answered_once_with_all_its_rows(
    serve: Serve, tmp_path: Path
) -> None:
    serving = serve(config(generate("add", tmp_path)))
    large = np.arange(37 * 16, dtype=np.float32).reshape(37, 16)
    serving.submit(np.zeros((1, 16), np.float32))
    serving.submit(large)
    serving.submit(np.ones((2, 16), np.float32))
    first, whole, last = await serving.outcomes()
    np.testing.assert_array_equal(whole, large + 1)
    np.testing.assert_array_equal(first, np.ones((1, 16)))
    np.testing.assert_array_equal(last, np.full((2, 16), 2))
    assert [job.rows for job in serving.jobs] == [8] * 5
    assert serving.count('mcp2026_requests_total{code="200"') == 3


async def test_a_batch_is_filled_up_with_zeros_that_nobody_sees(serve: Serve, tmp_path: Path) -> None:
    execution = Execution(padded_batch_sizes=(4, 8))
    serving = serve(config(generate("add", tmp_path), execution=execution))
    for rows in (8, 3, 5):
        serving.told.clear()
        serving.submit(np.full((rows, 16), 7, np.float32))
        (output,) = await serving.outcomes()
        np.testing.assert_array_equal(output, np.full((rows, 16), 8))
    assert [(job.rows, job.run_rows) for job in serving.jobs] == [(8, 8), (3, 4), (5, 8)]
    job = Job(serving.version, ((16,),), [(np.ones((3, 16), np.float32),)], 3, 4)
    job.assemble()
    assert job._bound is not None
    np.testing.assert_array_equal(job._bound.inputs[0], [[1] * 16] * 3 + [[0] * 16])
    job.run()
    assert len(job.outputs[0]) == 4


async def test_padding_may_go_beyond_the_largest_batch(serve: Serve, tmp_path: Path) -> None:
    execution = Execution(padded_batch_sizes=(16,))
    serving = serve(config(generate("add", tmp_path), execution=execution))
    serving.submit(np.full((8, 16), 1, np.float32))
    (output,) = await serving.outcomes()
    assert output.shape == (8, 16)
    assert [(job.rows, job.run_rows) for job in serving.jobs] == [(8, 16)]


@pytest.mark.parametrize("padded", [(), (8,)])
async def test_text_goes_through_whole_and_bad_text_fails_alone(
    serve: Serve, tmp_path: Path, padded: tuple[int, ...]
) -> None:
    execution = Execution(padded_batch_sizes=padded)
    serving = serve(config(identity(tmp_path, TensorProto.STRING), execution=execution))
    good = np.array([[b"", "grün".encode(), b"a\0b"]], object)
    serving.submit(good)
    serving.submit(np.array([[b"x", b"\xff", b"y"]], object))
    serving.submit(np.concatenate([good, good]))
    one, bad, two = await serving.outcomes()
    assert one.tolist() == good.tolist()
    assert two.tolist() == good.tolist() * 2
    assert bad == ErrorCode.EXECUTION_FAILED
    assert serving.count('mcp2026_request_failures_total{model="m",reason="execution_failed"') == 1


@pytest.mark.parametrize("out", [("N", 3), ("N", "M")], ids=["bound ahead", "allocated by the run"])
async def test_bfloat16_goes_through_bit_by_bit(serve: Serve, tmp_path: Path, out: tuple[Any, ...]) -> None:
    serving = serve(config(identity(tmp_path, TensorProto.BFLOAT16, out=out)))
    bits = np.array([[0x3F80, 0xFF80, 0x0001], [0x8000, 0x7F7F, 0x4049]], np.uint16)
    serving.submit(bits)
    serving.submit(bits[:1])
    both, first = await serving.outcomes()
    np.testing.assert_array_equal(both, bits)
    np.testing.assert_array_equal(first, bits[:1])
    assert both.dtype == np.uint16


async def test_an_output_of_the_wrong_length_costs_only_its_own_caller(serve: Serve, tmp_path: Path) -> None:
    serving = serve(config(some_rows_only(tmp_path)))
    good, bad = np.ones((1, 3), np.float32), np.full((1, 3), -10, np.float32)
    for array in (good, bad, good):
        serving.submit(array)
    one, wrong, two = await serving.outcomes()
    np.testing.assert_array_equal(one, good)
    np.testing.assert_array_equal(two, good)
    assert wrong == ErrorCode.EXECUTION_FAILED
    assert [job.rows for job in serving.jobs] == [3, 1, 1, 1]


async def test_a_large_request_with_a_bad_part_fails_once(serve: Serve, tmp_path: Path) -> None:
    serving = serve(config(some_rows_only(tmp_path)))
    large = np.ones((30, 3), np.float32)
    large[13] = -10
    serving.submit(large)
    serving.submit(np.ones((1, 3), np.float32))
    failed, small = await serving.outcomes()
    assert failed == ErrorCode.EXECUTION_FAILED
    assert small.shape == (1, 3)
    assert serving.count('mcp2026_request_failures_total{model="m",reason="execution_failed"') == 1


async def test_an_answer_that_cannot_be_encoded_costs_only_its_own_caller(
    serve: Serve, tmp_path: Path
) -> None:
    serving = serve(config(generate("add", tmp_path)))

    def broken(_outputs: list[Array]) -> Any:
        raise KeyError("broken")

    def impossible(_outputs: list[Array]) -> Any:
        raise RequestError(ErrorCode.INVALID_ARGUMENT, "no room for the answer")

    x = np.zeros((1, 16), np.float32)
    serving.submit(x)
    serving.submit(x, encode=broken)
    serving.submit(x, encode=impossible)
    serving.submit(x)
    first, internal, refused, last = await serving.outcomes()
    assert (internal, refused) == (ErrorCode.INTERNAL, ErrorCode.INVALID_ARGUMENT)
    assert first.shape == last.shape == (1, 16)


async def test_many_callers_of_a_short_model_are_all_answered_without_a_thread(
    serve: Serve, tmp_path: Path
) -> None:
    serving = serve(config(generate("add", tmp_path)))
    for _ in range(200):
        serving.told.clear()
        for value in range(5):
            serving.submit(np.full((1, 16), value, np.float32))
        outputs = await serving.outcomes()
        assert [output[0, 0] for output in outputs] == [1, 2, 3, 4, 5]
    assert sum(job.batch.inline for job in serving.jobs) > 100
