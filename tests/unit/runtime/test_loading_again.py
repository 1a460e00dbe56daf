"""What is served already from an unchanged file is not loaded again, and what has changed is."""

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from msgspec.structs import replace

from mcp2026.api.serving import Batching, Execution, Priorities, ServedVersion, ServingConfig, Tenant
from mcp2026.runtime.errors import ModelLoadError
from mcp2026.runtime.model import sessions
from mcp2026.runtime.model.loaded import LoadedVersion, ServedModel
from mcp2026.runtime.model.loading import load_model
from tests.unit.runtime.loaded_versions import metrics_for
from tools.models import generate
from tools.models.small import mlp

Change = Callable[[ServingConfig], ServingConfig]


@pytest.fixture
def config(tmp_path: Path) -> ServingConfig:
    versions = (
        ServedVersion("v1", str(generate("add", tmp_path / "v1")), 90),
        ServedVersion("v2", str(generate("add-hundred", tmp_path / "v2")), 10),
    )
    return ServingConfig("model", versions)


def load(config: ServingConfig, live: ServedModel | None = None) -> ServedModel:
    known: dict[str, LoadedVersion] = {} if live is None else live.versions
    return load_model(config, 1, "cpu", metrics_for(config).version, known)


def weighted(config: ServingConfig, *weights: int) -> ServingConfig:
    versions = [replace(one, weight=weight) for one, weight in zip(config.versions, weights, strict=True)]
    return replace(config, versions=tuple(versions), revision=config.revision + 1)


def test_a_change_of_weights_keeps_the_versions_themselves(config: ServingConfig) -> None:
    live = load(config)
    changed = load(weighted(config, 0, 100), live)
    assert changed.versions == live.versions
    assert {changed.version(None).version_id for _ in range(100)} == {"v2"}
    assert [one.weight for one in changed.config.versions] == [0, 100]


def test_a_version_that_comes_or_goes_leaves_the_others(config: ServingConfig) -> None:
    live = load(config)
    alone = load(replace(config, versions=config.versions[:1]), live)
    assert alone.versions == {"v1": live.versions["v1"]}
    again = load(config, alone)
    assert again.versions["v1"] is live.versions["v1"]
    assert again.versions["v2"].session is not live.versions["v2"].session


SCHEDULING: list[tuple[str, Change]] = [
    ("batching", lambda config: replace(config, batching=Batching(max_batch_size=8))),
    ("tenants", lambda config: replace(config, tenants=(Tenant("acme", 3),))),
    ("priorities", lambda config: replace(config, priorities=Priorities(levels=3, default=2))),
    ("instances", lambda config: replace(config, execution=Execution(instances=2))),
]


@pytest.mark.parametrize("change", [row[1] for row in SCHEDULING], ids=[row[0] for row in SCHEDULING])
def test_a_change_of_limits_keeps_the_session(config: ServingConfig, change: Change) -> None:
    live = load(config)
    changed = load(change(config), live)
    for version_id, version in changed.versions.items():
        assert version is not live.versions[version_id]
        assert version.session is live.versions[version_id].session
        assert version.config == changed.config
    assert changed.versions["v1"].max_rows == changed.config.batching.max_batch_size


def test_a_file_that_was_replaced_is_loaded_anew(config: ServingConfig) -> None:
    live = load(config)
    path = Path(config.versions[0].path)
    other = path.with_suffix(".new")
    shutil.copy(path, other)
    os.utime(other, ns=(1, 1))
    other.replace(path)
    changed = load(weighted(config, 50, 50), live)
    assert changed.versions["v1"].session is not live.versions["v1"].session
    assert changed.versions["v2"] is live.versions["v2"]


def test_a_model_whose_constants_are_in_another_file_is_loaded_anew_with_it(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save_model(mlp(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    config = ServingConfig("model", (ServedVersion("v1", str(path)),))
    live = load(config)
    assert load(config, live).versions == live.versions
    weights = tmp_path / "weights.bin"
    os.utime(weights, ns=(1, 1))
    assert load(config, live).versions["v1"].session is not live.versions["v1"].session


def test_a_file_that_comes_beside_a_whole_model_means_nothing_to_it(config: ServingConfig) -> None:
    live = load(config)
    Path(config.versions[0].path).with_name("next.onnx").write_bytes(b"on its way")
    assert load(config, live).versions == live.versions


def test_another_digest_or_another_file_is_loaded_anew(config: ServingConfig) -> None:
    live = load(config)
    path = Path(config.versions[0].path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    checked = replace(config, versions=(replace(config.versions[0], sha256=digest), config.versions[1]))
    assert load(checked, live).versions["v1"].session is not live.versions["v1"].session
    swapped = replace(
        config, versions=(replace(config.versions[0], path=config.versions[1].path), config.versions[1])
    )
    assert load(swapped, live).versions["v1"].session is not live.versions["v1"].session


def test_whether_requests_share_a_run_is_looked_at_anew(config: ServingConfig) -> None:
    live = load(config)
    alone = load(replace(config, execution=Execution(max_rows=0)), live)
    assert live.versions["v1"].signature.shared
    assert not alone.versions["v1"].signature.shared


@pytest.mark.parametrize("how", ["renamed over", "written over", "taken away"])
def test_a_file_that_is_swapped_once_its_digest_is_checked_is_not_served(
    config: ServingConfig, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    file, other = (Path(one.path) for one in config.versions)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    asked = replace(config, versions=(replace(config.versions[0], sha256=digest, weight=100),))
    check = sessions.check_digest

    def swapped(path: str, expected: str) -> None:
        check(path, expected)
        match how:
            case "renamed over":
                other.rename(file)
            case "written over":
                file.write_bytes(other.read_bytes())
            case _:
                file.unlink()

    monkeypatch.setattr(sessions, "check_digest", swapped)
    with pytest.raises(ModelLoadError, match=r"changed or replaced|exist"):
        load(asked)
    monkeypatch.undo()
    if how != "taken away":
        with pytest.raises(ModelLoadError, match="its sha256 is"):
            load(asked)
