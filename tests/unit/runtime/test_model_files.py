"""The cheap look at a model file, the generator, and the choice of version and provider."""

import hashlib
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp2026.api.errors import SettingsError
from mcp2026.runtime.errors import ModelLoadError
from mcp2026.runtime.model.onnx_file import check_digest, check_onnx_file
from mcp2026.runtime.model.providers import CPU, CUDA, TENSORRT, choose_providers
from tools.models import MODELS, generate
from tools.models.resnet50 import resnet50


@pytest.mark.parametrize("name", [name for name in MODELS if name != "resnet50"])
def test_every_sample_model_is_a_whole_file_and_the_same_each_time(name: str, tmp_path: Path) -> None:
    first, second = (generate(name, tmp_path / folder) for folder in ("a", "b"))
    check_onnx_file(str(first))
    assert hashlib.sha256(first.read_bytes()).digest() == hashlib.sha256(second.read_bytes()).digest()


def test_resnet50_is_the_graph_that_torchvision_counts(tmp_path: Path) -> None:
    model = resnet50()
    nodes = Counter(node.op_type for node in model.graph.node)
    assert nodes["Conv"] == nodes["BatchNormalization"] == 53
    running = (".mean", ".variance")
    parameters = sum(
        int(np.prod(constant.dims))
        for constant in model.graph.initializer
        if not constant.name.endswith(running)
    )
    assert parameters == 25_557_032
    dims = [dim.dim_param or dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    assert dims == ["N", 3, 224, 224]
    digests = {
        hashlib.sha256(document).hexdigest()
        for document in (
            model.SerializeToString(deterministic=True),
            generate("resnet50", tmp_path).read_bytes(),
        )
    }
    assert len(digests) == 1


def test_a_model_that_is_there_is_left_alone_and_nothing_partial_stays(tmp_path: Path) -> None:
    path = tmp_path / "add.onnx"
    path.write_bytes(b"mine")
    assert generate("add", tmp_path) == path
    assert path.read_bytes() == b"mine"
    generate("mlp", tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["add.onnx", "mlp.onnx"]


@given(st.integers(1, 100_000))
def test_every_cut_of_a_model_is_noticed(cut: int) -> None:
    document = MODELS["add"]().SerializeToString(deterministic=True)
    length = cut % len(document)
    try:
        onnx.ModelProto.FromString(document[:length]).graph.node[0]
    except Exception:
        whole = False
    else:
        whole = True
    path = Path(f"/proc/self/fd/{_memory(document[:length])}")
    if whole:
        check_onnx_file(str(path))  # the cut took only what may be missing
    else:
        with pytest.raises(ModelLoadError, match=r"truncated|empty|not an ONNX"):
            check_onnx_file(str(path))


def _memory(content: bytes) -> int:
    import os

    if not hasattr(_memory, "descriptor"):
        _memory.descriptor = os.memfd_create("model")  # type: ignore[attr-defined]
    descriptor: int = _memory.descriptor  # type: ignore[attr-defined]
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, content, 0)
    return descriptor


@given(st.binary(max_size=200))
def test_no_bytes_whatever_make_the_check_crash(content: bytes) -> None:
    with suppress(ModelLoadError):  # any other exception fails the test
        check_onnx_file(f"/proc/self/fd/{_memory(content)}")


def test_the_digest_of_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    check_digest(str(path), hashlib.sha256(b"content").hexdigest())
    with pytest.raises(ModelLoadError, match="sha256"):
        check_digest(str(path), hashlib.sha256(b"other").hexdigest())


@pytest.mark.parametrize(
    ("choice", "available", "expected"),
    [
        ("auto", [CPU], [CPU]),
        ("auto", [TENSORRT, CUDA, CPU], [TENSORRT, CUDA, CPU]),
        ("auto", ["AzureExecutionProvider", CPU], [CPU]),
        ("cuda", [TENSORRT, CUDA, CPU], [CUDA, CPU]),
        ("cpu", [TENSORRT, CUDA, CPU], [CPU]),
    ],
)
def test_providers_in_order(choice: str, available: list[str], expected: list[str]) -> None:
    assert choose_providers(choice, available) == expected  # type: ignore[arg-type]


def test_a_provider_that_is_absent_is_refused_with_those_that_are_there() -> None:
    with pytest.raises(SettingsError, match=r"cuda is not offered.*auto, cpu"):
        choose_providers("cuda", [CPU])
