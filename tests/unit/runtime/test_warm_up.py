"""Before a version serves it has run as requests will have it run; what fails then is refused."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mcp2026.api.serving import Batching, Execution, ServingConfig, WarmUpSample, WarmUpTensor, single_version
from mcp2026.runtime.errors import ModelLoadError
from mcp2026.runtime.execution.job import Job
from mcp2026.runtime.model.loaded import LoadedVersion
from mcp2026.runtime.model.triton.refusal import RepositoryError
from mcp2026.runtime.model.triton.repository import read_model
from mcp2026.runtime.model.warm_up import needs_warm_up, sizes_of_runs, warm_up
from tests.unit.runtime.loaded_versions import loaded_model


def save(path: Path, nodes: list[onnx.NodeProto], *shape: int | str, **more: object) -> str:
    """Write a model from x to y, both of this shape."""
    element_type = more.get("element_type", TensorProto.FLOAT)
    values = [helper.make_tensor_value_info(name, element_type, shape) for name in "xy"]
    constants = [numpy_helper.from_array(array, name) for name, array in more.get("constants", {}).items()]  # type: ignore[attr-defined]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], constants)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return str(path)


@pytest.fixture
def doubling(tmp_path: Path) -> str:
    return save(tmp_path / "m.onnx", [helper.make_node("Add", ["x", "x"], ["y"])], "N", 3)


def config(path: str, execution: Execution | None = None, **batching: int) -> ServingConfig:
    made = single_version(path, Batching(**batching))
    return msgspec.structs.replace(made, execution=execution or Execution())


def version(config: ServingConfig, warm_up_seconds: float = 0.0) -> LoadedVersion:
    return loaded_model(config, warm_up_seconds=warm_up_seconds).versions["1"]


@pytest.mark.parametrize(
    ("execution", "sizes"),
    [
        pytest.param(Execution(), (1, 16), id="without padding the ends"),
        pytest.param(Execution(padded_batch_sizes=(2, 4, 16, 64)), (2, 4, 16), id="padded to the largest"),
        pytest.param(Execution(padded_batch_sizes=(4, 24)), (4, 24), id="padded beyond the largest"),
        pytest.param(Execution(padded_batch_sizes=(1, 8)), (1, 8, 16), id="larger ones are not padded"),
        pytest.param(Execution(max_rows=0), (1,), id="requests run alone"),
        pytest.param(Execution(max_rows=200), (1, 200), id="a limit of a repository"),
    ],
)
def test_the_sizes_are_those_that_batches_will_have(execution: Execution, sizes: tuple[int, ...]) -> None:
    assert sizes_of_runs(config("m.onnx", execution, max_batch_size=16)) == sizes


def test_every_size_and_every_sample_is_run(doubling: str) -> None:
    sample = WarmUpSample("s", {"x": WarmUpTensor((3,), random=True)}, rows=2, runs=3)
    wanted = config(doubling, Execution(padded_batch_sizes=(2, 4), warm_up=(sample,)), max_batch_size=8)
    made = warm_up(version(wanted), doubling, 60.0)
    assert made == ("2 rows", "4 rows", "8 rows", *["the sample 's'"] * 3)


@pytest.mark.parametrize("rows", [1, 5, 32])
def test_the_first_request_finds_all_that_later_ones_find(doubling: str, rows: int) -> None:
    """By counts: no buffer is allocated for it. A cold version has to."""
    found = []
    for seconds in (60.0, 0.0):
        served = version(config(doubling), seconds)
        misses = served.tensors.misses
        for _ in range(2):
            job = Job(served, ((3,),), [(np.ones((rows, 3), np.float32),)], rows)
            job.run()
            assert job.error is None
            found.append((served.tensors.misses - misses, job.cache_hit))
            job.release()
    assert found == [(0, True), (0, True), (1, False), (1, True)]


def clock(*readings: float) -> Callable[[], float]:
    left: Iterator[float] = iter(readings)
    return lambda: next(left)


def test_a_run_that_would_not_end_in_time_is_left_out(
    doubling: str, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = config(doubling, Execution(padded_batch_sizes=(1, 4, 8)), max_batch_size=32)
    # 1 row takes 1 s, 4 rows take 2 s: 8 rows are to take 4 s, and 32 rows 16 s, of the 8 s that there are.
    assert warm_up(version(wanted), doubling, 8.0, clock(0, 1, 3, 7)) == ("1 row", "4 rows", "8 rows")
    assert "32 rows left out of the warm-up" in caplog.text


def test_what_fails_with_more_rows_is_refused(tmp_path: Path) -> None:
    """Fine with one row and with two, as the probe runs it, and not with more than four."""
    constants = {"last": np.array([4], np.int64), "zero": np.array([0], np.int64)}
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], end=1),
        helper.make_node("Sub", ["last", "shape"], ["left"]),
        helper.make_node("Min", ["left", "zero"], ["beyond"]),
        helper.make_node("ConstantOfShape", ["beyond"], ["none"]),  # a negative size is an error
        helper.make_node("ReduceSum", ["none"], ["nothing"], keepdims=0),
        helper.make_node("Add", ["x", "nothing"], ["y"]),
    ]
    path = save(tmp_path / "m.onnx", nodes, "N", 3, constants=constants)
    with pytest.raises(ModelLoadError, match="its warm-up with 8 rows failed"):
        version(config(path, max_batch_size=8), 60.0)
    version(config(path, max_batch_size=4), 60.0)


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        (WarmUpSample("s", {"z": WarmUpTensor((3,))}, rows=1), "it has the inputs z, and the model x"),
        (WarmUpSample("s", {"x": WarmUpTensor((4,))}, rows=1), "does not fit input 'x'"),
        (WarmUpSample("s", {"x": WarmUpTensor((3,), file="/none")}, rows=1), "/none"),
    ],
)
def test_a_sample_that_does_not_fit_is_refused(doubling: str, sample: WarmUpSample, said: str) -> None:
    with pytest.raises(ModelLoadError, match="the warm-up sample 's'") as refused:
        version(config(doubling, Execution(warm_up=(sample,))), 60.0)
    assert said in str(refused.value)


def test_a_model_that_dislikes_a_guess_is_served_and_one_that_dislikes_its_sample_is_not(
    tmp_path: Path,
) -> None:
    """Its second dimension is free, and only 6 will do: nobody can guess that."""
    shape = {"shape": np.array([-1, 2, 3], np.int64), "back": np.array([-1, 6], np.int64)}
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["blocks"]),
        helper.make_node("Reshape", ["blocks", "back"], ["y"]),
    ]
    path = save(tmp_path / "m.onnx", nodes, "N", "M", constants=shape)
    version(config(path), 60.0)
    good, bad = (
        Execution(warm_up=(WarmUpSample("s", {"x": WarmUpTensor((size,))}, rows=1),)) for size in (6, 5)
    )
    version(config(path, good), 60.0)
    with pytest.raises(ModelLoadError, match="its warm-up with the sample 's' failed"):
        version(config(path, bad), 60.0)


def test_only_what_is_new_is_warmed(doubling: str) -> None:
    before = config(doubling)
    assert not needs_warm_up(before, config(doubling, max_delay_ms=5))
    assert needs_warm_up(before, config(doubling, max_batch_size=64))


WARMED = "max_batch_size: 4 model_warmup [{{name: 's' batch_size: 2 inputs {{key: 'x' value {{ {} }} }} }}]"


@pytest.mark.parametrize(
    ("element_type", "name", "content"),
    [
        (TensorProto.FLOAT, "TYPE_FP32", np.arange(3, dtype=np.float32).tobytes()),
        (TensorProto.STRING, "TYPE_STRING", b"\x01\0\0\0a\0\0\0\0\x02\0\0\0bc"),
        (TensorProto.BFLOAT16, "TYPE_BF16", b"\x80\x3f" * 3),
    ],
)
def test_data_of_a_repository_comes_from_a_file(
    tmp_path: Path, element_type: int, name: str, content: bytes
) -> None:
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    save(tmp_path / "m" / "1" / "model.onnx", nodes, "N", 3, element_type=element_type)
    (tmp_path / "m" / "config.pbtxt").write_text(
        WARMED.format(f"data_type: {name} dims: [3] input_data_file: 'data'")
    )
    (tmp_path / "m" / "warmup").mkdir()
    (tmp_path / "m" / "warmup" / "data").write_bytes(content)
    wanted = read_model(tmp_path, "m")
    assert warm_up(version(wanted), "m", 60.0)[-1] == "the sample 's'"


@pytest.mark.parametrize(
    ("tensor", "field", "said"),
    [
        ("data_type: TYPE_INT8 dims: [3] zero_data: true", ".inputs[x].data_type", "TYPE_FP32"),
        ("data_type: TYPE_FP32 dims: [4] zero_data: true", ".inputs[x].dims", "[3], without the rows"),
        ("data_type: TYPE_FP32 dims: [3]", ".inputs[x]", "zero_data, random_data"),
        ("data_type: TYPE_FP32 dims: [3] input_data_file: 'no'", ".inputs[x].input_data_file", "not there"),
        ("data_type: TYPE_FP32 dims: [3] input_data_file: 'short'", ".inputs[x].input_data_file", "12 bytes"),
    ],
)
def test_samples_of_a_repository_that_do_not_fit_are_named(
    tmp_path: Path, tensor: str, field: str, said: str
) -> None:
    save(tmp_path / "m" / "1" / "model.onnx", [helper.make_node("Identity", ["x"], ["y"])], "N", 3)
    (tmp_path / "m" / "config.pbtxt").write_text(WARMED.format(tensor))
    (tmp_path / "m" / "warmup").mkdir()
    (tmp_path / "m" / "warmup" / "short").write_bytes(b"12")
    with pytest.raises(RepositoryError) as refused:
        read_model(tmp_path, "m")
    (one,) = refused.value.refusals
    assert one.field == f"model_warmup[0]{field}"
    assert said in str(one)


def test_an_input_that_a_sample_lacks_is_named_and_a_sample_of_no_rows_is_left_out(tmp_path: Path) -> None:
    save(tmp_path / "m" / "1" / "model.onnx", [helper.make_node("Identity", ["x"], ["y"])], "N", 3)
    text = tmp_path / "m" / "config.pbtxt"
    text.write_text("max_batch_size: 4 model_warmup [{batch_size: 1}]")
    with pytest.raises(RepositoryError, match=r"model_warmup\[0\].inputs: lacks x"):
        read_model(tmp_path, "m")
    text.write_text("max_batch_size: 4 model_warmup [{}]")
    assert read_model(tmp_path, "m").execution.warm_up is msgspec.UNSET
