"""A repository of Triton is served as it is; what cannot be honoured is named."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from google.protobuf import json_format, text_format
from onnx import TensorProto, helper, numpy_helper

from mcp2026.api.serving import (
    Batching,
    Priorities,
    QueuePolicy,
    WarmUpSample,
    WarmUpTensor,
    decode_serving_config,
    encode_serving_config,
)
from mcp2026.runtime.errors import ModelLoadError
from mcp2026.runtime.model.triton.model_config_pb2 import ModelConfig
from mcp2026.runtime.model.triton.refusal import RepositoryError
from mcp2026.runtime.model.triton.repository import RepositoryEntry, read_model, scan_repository
from mcp2026.runtime.protocol.open_inference.documents import model_config
from tests.unit.runtime.loaded_versions import loaded_model

DIMS = (
    'input [{name: "x" data_type: TYPE_FP32 dims: [3]}] output [{name: "y" data_type: TYPE_FP32 dims: [3]}]'
)

Repository = Callable[..., Path]


def model(*shape: int | str, element_type: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """Return y = x + x."""
    values = [helper.make_tensor_value_info(name, element_type, shape or ["N", 3]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "double", values[:1], values[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Return a function that adds a model `m` to a repository and returns the repository."""

    def add(
        config: str | bytes | None = None,
        *,
        versions: tuple[str, ...] = ("1",),
        proto: onnx.ModelProto | None = None,
    ) -> Path:
        folder = tmp_path / "m"
        folder.mkdir()
        if config is not None:
            (folder / "config.pbtxt").write_bytes(config if isinstance(config, bytes) else config.encode())
        for version in versions:
            (folder / version).mkdir()
            onnx.save(proto or model(), folder / version / "model.onnx")
        return tmp_path

    return add


def test_a_model_without_configuration_is_completed_as_triton_does(repository: Repository) -> None:
    path = repository()
    config = read_model(path, "m")
    assert config.execution.max_rows == 4
    assert [version.version_id for version in config.versions] == ["1"]
    assert config.versions[0].path == str(path / "m" / "1" / "model.onnx")
    assert decode_serving_config(encode_serving_config(config)) == config


@pytest.mark.parametrize(
    ("text", "shape", "rows"),
    [
        pytest.param("max_batch_size: 200", ("N", 3), 200, id="what is said holds"),
        pytest.param(DIMS.replace("[3]", "[-1, 3]"), ("N", 3), 0, id="declared tensors are not completed"),
        pytest.param('backend: "onnxruntime"', ("N", 3), 4, id="undeclared tensors are"),
        pytest.param('backend: "onnxruntime"', (1, 3), 0, id="but for a model that cannot be batched"),
        pytest.param(f"max_batch_size: 8 {DIMS}", ("N", 3), 8, id="no dynamic_batching"),
    ],
)
def test_rows_of_a_run(repository: Repository, text: str, shape: tuple[int | str, ...], rows: int) -> None:
    assert read_model(repository(text, proto=model(*shape)), "m").execution.max_rows == rows


def test_all_that_is_understood_is_carried_over(repository: Repository) -> None:
    text = f"""
    name: "m" platform: "onnxruntime_onnx" backend: "onnxruntime" max_batch_size: 64 {DIMS}
    instance_group [{{count: 2 kind: KIND_CPU}}, {{kind: KIND_AUTO}}]
    dynamic_batching {{
      preferred_batch_size: [16, 32]
      max_queue_delay_microseconds: 1500
      priority_levels: 3
      default_priority_level: 2
      default_queue_policy {{
        timeout_action: DELAY default_timeout_microseconds: 2500
        allow_timeout_override: true max_queue_size: 100
      }}
      priority_queue_policy {{key: 1 value {{max_queue_size: 7}}}}
    }}
    model_warmup [{{
      name: "zeros" batch_size: 8 count: 2
      inputs {{key: "x" value {{data_type: TYPE_FP32 dims: [3] zero_data: true}}}}
    }}]
    parameters {{key: "intra_op_thread_count" value {{string_value: "0"}}}}
    model_transaction_policy {{decoupled: false}}
    """
    config = read_model(repository(text), "m")
    assert config.batching == Batching(max_batch_size=64, max_delay_ms=2, min_batch_size=16)
    assert config.queue == QueuePolicy(100, 2.5, 2.5, "Delay")
    assert config.priorities == Priorities(3, 2, {1: QueuePolicy(7)})
    assert (config.execution.instances, config.execution.max_rows) == (3, 64)
    assert config.execution.warm_up == (WarmUpSample("zeros", {"x": WarmUpTensor((3,))}, 8, 2),)
    assert decode_serving_config(encode_serving_config(config)) == config


@pytest.mark.parametrize(
    ("text", "field", "said"),
    [
        ("sequence_batching {}", "sequence_batching", "without state"),
        ('platform: "ensemble" ensemble_scheduling {}', "ensemble_scheduling", "one step"),
        ('platform: "tensorrt_plan"', "platform", "onnxruntime_onnx"),
        ('backend: "python"', "backend", "onnxruntime"),
        ('runtime: "other.so"', "runtime", "ONNX Runtime"),
        ("model_transaction_policy {decoupled: true}", "model_transaction_policy.decoupled", "one answer"),
        ("response_cache {enable: true}", "response_cache.enable", "no cache"),
        (
            'optimization {execution_accelerators {gpu_execution_accelerator: [{name: "tensorrt"}]}}',
            "optimization.execution_accelerators.gpu_execution_accelerator",
            "--provider",
        ),
        ("optimization {graph {level: 1}}", "optimization.graph", "mcp2026 convert"),
        ("optimization {eager_batching: true}", "optimization.eager_batching", "without it"),
        ("instance_group [{kind: KIND_CPU}, {gpus: [0]}]", "instance_group[1].gpus", "all GPUs"),
        ("instance_group [{kind: KIND_GPU}]", "instance_group[0].kind", "KIND_CPU"),
        ("instance_group [{count: 65}]", "instance_group[0].count", "1 to 64"),
        ("instance_group [{count: -1}]", "instance_group[0].count", "1 to 64"),
        ("instance_group [{count: 40}, {count: 40}]", "instance_group", "80 instances"),
        ("instance_group [{rate_limiter {priority: 2}}]", "instance_group[0].rate_limiter", "free"),
        ("instance_group [{passive: true}]", "instance_group[0].passive", "without it"),
        ("max_batch_size: -1", "max_batch_size", "0 to 4096"),
        ("max_batch_size: 5000", "max_batch_size", "0 to 4096"),
        ("dynamic_batching {preserve_ordering: true}", "dynamic_batching.preserve_ordering", "ready"),
        (
            "max_batch_size: 4 dynamic_batching {preferred_batch_size: [4, 8]}",
            "dynamic_batching.preferred_batch_size[1]",
            "max_batch_size, which is 4",
        ),
        (
            "dynamic_batching {max_queue_delay_microseconds: 66000000}",
            "dynamic_batching.max_queue_delay_microseconds",
            "65535000",
        ),
        (
            "dynamic_batching {priority_levels: 3}",
            "dynamic_batching.default_priority_level",
            "1 to 3",
        ),
        (
            "dynamic_batching {priority_levels: 101 default_priority_level: 1}",
            "dynamic_batching.priority_levels",
            "0 to 100",
        ),
        (
            "dynamic_batching {priority_queue_policy {key: 2 value {}}}",
            "dynamic_batching.priority_queue_policy[2]",
            "priority_levels",
        ),
        (
            """dynamic_batching {
              priority_levels: 2 default_priority_level: 1
              priority_queue_policy {key: 2 value {max_queue_size: 2000000}}
            }""",
            "dynamic_batching.priority_queue_policy[2].max_queue_size",
            "1000000",
        ),
        (
            'parameters {key: "execution_mode" value {string_value: "1"}}',
            'parameters["execution_mode"]',
            "one after",
        ),
        (
            'parameters {key: "intra_op_thread_count" value {string_value: "4"}}',
            'parameters["intra_op_thread_count"]',
            "--threads",
        ),
        ('parameters {key: "other" value {string_value: "4"}}', 'parameters["other"]', "no parameters"),
        (
            'max_batch_size: 4 model_warmup [{batch_size: 8 inputs {key: "x" value {zero_data: true}}}]',
            "model_warmup[0].batch_size",
            "1 to 4",
        ),
        (
            'model_warmup [{batch_size: 1 inputs {key: "x" value {input_data_file: "../data"}}}]',
            "model_warmup[0].inputs[x].input_data_file",
            "folder warmup",
        ),
        ("model_warmup [{batch_size: 1 count: 2000}]", "model_warmup[0].count", "0 to 1000"),
        ('input [{name: "x" allow_ragged_batch: true}]', "input[0].allow_ragged_batch", "one shape"),
        ('input [{name: "x" optional: true}]', "input[0].optional", "every request"),
        ('input [{name: "x" dims: [3] reshape {shape: [1, 3]}}]', "input[0].reshape", "[3]"),
        ('output [{name: "y" label_filename: "l"}]', "output[0].label_filename", "without labels"),
        ('default_model_filename: "../model.onnx"', "default_model_filename", "version's folder"),
        ('metric_tags {key: "a" value: "b"}', "metric_tags", "without it"),
        ('name: "other"', "name", "the folder's name"),
        ("version_policy {specific {versions: [1, 9]}}", "version_policy.specific.versions", "[9]"),
        ("version_policy {specific {}}", "version_policy.specific.versions", "no version"),
    ],
)
def test_what_is_not_honoured_is_refused_by_its_field(
    repository: Repository, text: str, field: str, said: str
) -> None:
    with pytest.raises(RepositoryError) as refused:
        read_model(repository(text), "m")
    named = {refusal.field: str(refusal) for refusal in refused.value.refusals}
    assert said in named[field]
    assert named[field] in str(refused.value)


def test_all_refused_fields_are_named_at_once(repository: Repository) -> None:
    with pytest.raises(RepositoryError) as refused:
        read_model(repository("sequence_batching {} response_cache {enable: true} max_batch_size: -3"), "m")
    assert {entry.field for entry in refused.value.refusals} == {
        "sequence_batching",
        "response_cache.enable",
        "max_batch_size",
    }


@pytest.mark.parametrize(
    ("text", "proto", "field", "said"),
    [
        (f"max_batch_size: 4 {DIMS}", model(1, 3), "max_batch_size", "first dimensions are all dynamic"),
        (DIMS, model(), "input[0].dims", "[-1, 3]"),
        (
            f"max_batch_size: 4 {DIMS.replace('[3]', '[4]')}",
            model(),
            "input[0].dims",
            "[3], without the rows",
        ),
        (f"max_batch_size: 4 {DIMS.replace('[3]', '[-1]')}", model(), "input[0].dims", "[3]"),
        (
            f"max_batch_size: 4 {DIMS.replace('FP32', 'INT32')}",
            model(),
            "input[0].data_type",
            "TYPE_INT32 (supported: TYPE_FP32)",
        ),
        (f"max_batch_size: 4 {DIMS.replace('x', 'a')}", model(), "input[0].name", "which the model has not"),
        (f"max_batch_size: 4 {DIMS.replace('x', 'a')}", model(), "input", "lacks x"),
    ],
)
def test_a_configuration_that_contradicts_the_model_is_refused(
    repository: Repository, text: str, proto: onnx.ModelProto, field: str, said: str
) -> None:
    with pytest.raises(RepositoryError) as refused:
        read_model(repository(text, proto=proto), "m")
    assert said in {refusal.field: str(refusal) for refusal in refused.value.refusals}[field]


@pytest.mark.parametrize(
    ("policy", "chosen"),
    [
        ("", ["10"]),
        ("version_policy {latest {}}", ["10"]),
        ("version_policy {latest {num_versions: 2}}", ["2", "10"]),
        ("version_policy {latest {num_versions: 9}}", ["1", "2", "10"]),
        ("version_policy {all {}}", ["1", "2", "10"]),
        ("version_policy {specific {versions: [2, 1]}}", ["1", "2"]),
    ],
)
def test_versions_by_policy_and_all_traffic_without_a_version_to_the_newest(
    repository: Repository, policy: str, chosen: list[str]
) -> None:
    path = repository(policy, versions=("1", "2", "10", "01", "latest", "99999999999999999999"))
    config = read_model(path, "m")
    assert [version.version_id for version in config.versions] == chosen
    assert [version.weight for version in config.versions] == [0] * (len(chosen) - 1) + [100]
    assert scan_repository(path) == (RepositoryEntry("m", (1, 2, 10)),)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            b"max_batch_size: 4\ndynamic_batching {\n  nonsense: 1\n}",
            r"line 3, column 3: .*nonsense\"\. Correct",
        ),
        (b"max_batch_size: four", "line 1, column 17"),
        (b"dynamic_batching {", "line 1"),
        (b"name: 'm'\n\xff", "line 2 is not UTF-8"),
        (b"#" * (1024 * 1024 + 1), "larger than"),
    ],
)
def test_a_broken_configuration_is_refused_with_its_place(
    repository: Repository, config: bytes, said: str
) -> None:
    with pytest.raises(ModelLoadError, match=said):
        read_model(repository(config), "m")


def test_a_configuration_that_is_no_file_is_refused_at_once(repository: Repository) -> None:
    """To read a pipe would wait for its other end, and a stop for the reader."""
    path = repository()
    os.mkfifo(path / "m" / "config.pbtxt")
    with pytest.raises(ModelLoadError, match="no regular file"):
        read_model(path, "m")


@pytest.mark.parametrize("name", ["a\nb", "x" * 251, "\u202e"])
def test_a_folder_whose_name_cannot_be_a_model_is_refused(repository: Repository, name: str) -> None:
    path = repository()
    (path / "m").rename(path / name)
    with pytest.raises(ModelLoadError, match=r"printable characters.*Rename the folder"):
        read_model(path, name)


def test_what_is_missing_is_said(repository: Repository, tmp_path: Path) -> None:
    path = repository('default_model_filename: "other.onnx"')
    with pytest.raises(ModelLoadError, match=r"other.onnx.*holds model.onnx"):
        read_model(path, "m")
    (path / "m" / "config.pbtxt").unlink()
    (path / "m" / "1" / "model.onnx").write_bytes(b"nonsense")
    with pytest.raises(ModelLoadError, match="not an ONNX model"):
        read_model(path, "m")
    (path / "m" / "1" / "model.onnx").unlink()
    with pytest.raises(ModelLoadError, match=r"model.mcpir or model.onnx"):
        read_model(path, "m")
    (path / "m" / "1").rmdir()
    with pytest.raises(ModelLoadError, match="no version"):
        read_model(path, "m")
    for name in ("absent", "..", "", "a/b", "x\0"):
        with pytest.raises(ModelLoadError, match="no such model"):
            read_model(path, name)
    with pytest.raises(ModelLoadError, match="no such folder"):
        scan_repository(tmp_path / "absent")
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelLoadError, match="no folder"):
        scan_repository(tmp_path / "file")


def test_folders_that_are_no_models_are_passed_over(repository: Repository) -> None:
    path = repository()
    (path / "lost+found").mkdir()
    (path / ".git").mkdir()
    (path / "README.md").write_text("")
    (path / "broken").mkdir()
    (path / "broken" / "config.pbtxt").write_text("nonsense")
    assert [entry.name for entry in scan_repository(path)] == ["broken", "m"]
    assert scan_repository(path / ".git") == ()


def test_a_repository_that_kubernetes_mounts_through_links_is_read(tmp_path: Path) -> None:
    """A ConfigMap's files are links into `..data`, itself a link to a folder that changes."""
    real = tmp_path / "mount" / "..2026_11_30" / "m"
    (real / "1").mkdir(parents=True)
    onnx.save(model(), real / "1" / "model.onnx")
    (tmp_path / "mount" / "..data").symlink_to("..2026_11_30")
    (tmp_path / "mount" / "m").symlink_to(Path("..data") / "m")
    assert scan_repository(tmp_path / "mount") == (RepositoryEntry("m", (1,)),)
    assert read_model(tmp_path / "mount", "m").versions[0].path.endswith("m/1/model.onnx")


def test_an_onnx_folder_with_external_data_is_a_model(tmp_path: Path) -> None:
    folder = tmp_path / "m" / "1" / "model.onnx"
    folder.mkdir(parents=True)
    proto = model("N", 3)
    proto.graph.node[0].input[1] = "w"
    proto.graph.initializer.append(numpy_helper.from_array(np.ones((1, 3), np.float32), "w"))
    onnx.save(proto, folder / "model.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    assert read_model(tmp_path, "m").versions[0].path == str(folder / "model.onnx")


def test_the_configuration_that_the_server_tells_is_one_that_it_takes(repository: Repository) -> None:
    text = """max_batch_size: 16 instance_group [{count: 2}] dynamic_batching {
      preferred_batch_size: [8] max_queue_delay_microseconds: 3000
      priority_levels: 4 default_priority_level: 2
      default_queue_policy {timeout_action: DELAY default_timeout_microseconds: 5000 max_queue_size: 9}
    }"""
    path = repository(text)
    config = read_model(path, "m")
    served = loaded_model(config)
    told = json_format.ParseDict(model_config(served, served.versions["1"]), ModelConfig())
    (path / "m" / "config.pbtxt").write_text(text_format.MessageToString(told))
    assert read_model(path, "m") == config


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_refused(repository: Repository) -> None:
    path = repository("")
    (path / "m" / "config.pbtxt").chmod(0)
    with pytest.raises(ModelLoadError, match="Permission denied"):
        read_model(path, "m")
