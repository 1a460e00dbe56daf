"""A new version must fit the callers of the one that is served."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from mcp2026.api.serving import ServedVersion, ServingConfig
from mcp2026.runtime.errors import ModelLoadError
from mcp2026.runtime.model.compatibility import differences
from mcp2026.runtime.model.loading import load_model
from mcp2026.runtime.model.signature import ELEMENT_TYPES, Signature, TensorSpec
from tests.unit.runtime.loaded_versions import metrics_for
from tools.models import generate

TYPES = {element.datatype: element.dtype for element in ELEMENT_TYPES.values()}


def tensor(name: str, *dims: int | None, datatype: str = "FP32", ranked: bool = True) -> TensorSpec:
    return TensorSpec(name, TYPES[datatype], dims, datatype, ranked)


def signature(inputs: list[TensorSpec], outputs: list[TensorSpec]) -> Signature:
    return Signature(tuple(inputs), tuple(outputs), shared=True, ahead=True)


X, Y = tensor("x", None, 3), tensor("y", None, 2)
SERVED = signature([X], [Y])
ANY = tensor("x", ranked=False)

CASES = [
    ("the same", signature([X], [Y]), []),
    ("an output more", signature([X], [Y, tensor("z", 1)]), []),
    ("an input that takes more shapes", signature([tensor("x", None, None)], [Y]), []),
    ("an input that takes any shape", signature([ANY], [Y]), []),
    ("an output that promises more", signature([X], [tensor("y", 1, 2)]), []),
    ("an input less", signature([], [Y]), ["input 'x' is missing"]),
    ("an input more", signature([X, tensor("w", 1)], [Y]), ["input 'w' is new"]),
    ("an output less", signature([X], [tensor("z", 2)]), ["output 'y' is missing"]),
    (
        "another type",
        signature([tensor("x", None, 3, datatype="FP16")], [Y]),
        ["input 'x' is FP16, was FP32"],
    ),
    (
        "a narrower input",
        signature([tensor("x", 1, 3)], [Y]),
        ["input 'x' has the shape [1, 3], had [-1, 3]"],
    ),
    (
        "another size",
        signature([tensor("x", None, 4)], [Y]),
        ["input 'x' has the shape [-1, 4], had [-1, 3]"],
    ),
    (
        "another rank",
        signature([tensor("x", None)], [tensor("y", None, 2, 1)]),
        ["input 'x' has the shape [-1], had [-1, 3]", "output 'y' has the shape [-1, 2, 1], had [-1, 2]"],
    ),
    (
        "an output that promises less",
        signature([X], [tensor("y", None, None)]),
        ["output 'y' has the shape [-1, -1], had [-1, 2]"],
    ),
    (
        "an output of any rank",
        signature([X], [tensor("y", ranked=False)]),
        ["output 'y' has the shape of any rank, had [-1, 2]"],
    ),
]


@pytest.mark.parametrize(("new", "told"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_would_surprise_a_caller_is_told(new: Signature, told: list[str]) -> None:
    assert differences(SERVED, new) == told


def test_a_version_that_does_not_fit_is_refused_unless_it_is_allowed(tmp_path: Path) -> None:
    add, mlp = (str(generate(name, tmp_path)) for name in ("add", "mlp"))
    config = ServingConfig("model", (ServedVersion("v1", add),))
    metrics = metrics_for(config)
    live = load_model(config, 1, "cpu", metrics.version)
    both = replace(config, versions=(ServedVersion("v1", add, 90), ServedVersion("v2", mlp, 10)), revision=2)
    with pytest.raises(ModelLoadError) as refused:
        load_model(both, 1, "cpu", metrics_for(both).version, live.versions)
    for words in (
        "does not fit version 'v1'",
        "input 'input' has the shape [-1, 64], had [-1, 16]",
        "allowIncomp",
    ):
        assert words in str(refused.value)
    allowed = replace(both, allow_incompatible=True)
    assert load_model(allowed, 1, "cpu", metrics_for(both).version, live.versions).versions.keys() == {
        "v1",
        "v2",
    }


def test_a_version_that_replaces_the_only_one_must_fit_it_too(tmp_path: Path) -> None:
    add, mlp = (str(generate(name, tmp_path)) for name in ("add", "mlp"))
    config = ServingConfig("model", (ServedVersion("v1", add),))
    live = load_model(config, 1, "cpu", metrics_for(config).version)
    swapped = replace(config, versions=(ServedVersion("v2", mlp),), revision=2)
    with pytest.raises(ModelLoadError, match="does not fit version 'v1'"):
        load_model(swapped, 1, "cpu", metrics_for(swapped).version, live.versions)
