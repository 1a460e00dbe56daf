"""Versions come and go: weights, refusals, files that clients may name, and requests that come again."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from mcp2026.api.serving import MAX_VERSIONS, Batching, ServedVersion, ServingConfig
from mcp2026.api.shares import shares
from mcp2026.runtime.changes import RegisterVersion, RetireVersion
from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.model import registered_files
from mcp2026.runtime.model.registered_files import allowed_folders, registered_file
from mcp2026.runtime.model.registration import with_version, without_version
from mcp2026.runtime.process import registrations
from mcp2026.runtime.process.registrations import Registrations
from mcp2026.runtime.settings import Settings


def config(*weights: int, path: str = "/models/a.onnx") -> ServingConfig:
    versions = tuple(ServedVersion(f"v{n}", path, weight) for n, weight in enumerate(weights, 1))
    return ServingConfig("m", versions, batching=Batching(max_batch_size=8), revision=7)


def labelled() -> ServingConfig:
    (version,) = config(100).versions
    return msgspec.structs.replace(
        config(100), versions=(msgspec.structs.replace(version, labels=("stable",)),)
    )


def weights(config: ServingConfig) -> dict[str, int]:
    return {version.version_id: version.weight for version in config.versions}


def refused(call: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize(
    ("present", "weight", "expected"),
    [
        pytest.param([100], 10, [90, 10], id="a canary takes a tenth"),
        pytest.param([100], 0, [100, 0], id="weight 0 takes nothing"),
        pytest.param([100], 100, [0, 100], id="weight 100 takes all"),
        pytest.param([50, 50], 25, [38, 37, 25], id="of equal remainders the first version's is taken"),
        pytest.param([90, 10], 10, [81, 9, 10], id="proportions are kept"),
        pytest.param([34, 33, 33], 50, [17, 17, 16, 50], id="a sum of 100"),
        pytest.param([99, 1], 60, [40, 0, 60], id="a small share may be cut down to nothing"),
        pytest.param([100, 0], 10, [90, 0, 10], id="a version without weight gets none"),
    ],
)
def test_a_new_version_takes_what_it_asks_for(present: list[int], weight: int, expected: list[int]) -> None:
    made = with_version(config(*present), ServedVersion("new", "/models/b.onnx", weight))
    assert list(weights(made).values()) == expected
    assert made.revision == 8
    assert made.batching == Batching(max_batch_size=8)


@pytest.mark.parametrize(
    ("present", "leaving", "expected"),
    [
        pytest.param([90, 10], "v2", {"v1": 100}, id="the only one left has all"),
        pytest.param([50, 30, 20], "v1", {"v2": 60, "v3": 40}, id="proportions are kept"),
        pytest.param([34, 33, 33], "v1", {"v2": 50, "v3": 50}, id="a sum of 100"),
        pytest.param([100, 0], "v2", {"v1": 100}, id="one without weight leaves none"),
        pytest.param([60, 40, 0], "v1", {"v2": 100, "v3": 0}, id="one without weight gets none"),
    ],
)
def test_a_version_leaves_its_weight_to_the_others(
    present: list[int], leaving: str, expected: dict[str, int]
) -> None:
    made = without_version(config(*present), leaving)
    assert weights(made) == expected
    assert made.revision == 8


@pytest.mark.parametrize(
    ("call", "code", "field"),
    [
        pytest.param(
            lambda: with_version(config(100), ServedVersion("v1", "/x", 1)),
            ErrorCode.ALREADY_EXISTS,
            "version_id",
            id="the version is there",
        ),
        pytest.param(
            lambda: with_version(labelled(), ServedVersion("stable", "/x", 1)),
            ErrorCode.ALREADY_EXISTS,
            "version_id",
            id="another version is called so",
        ),
        pytest.param(
            lambda: with_version(config(100, *[0] * (MAX_VERSIONS - 1)), ServedVersion("new", "/x", 1)),
            ErrorCode.FAILED_PRECONDITION,
            "version_id",
            id="there are as many as there may be",
        ),
        pytest.param(
            lambda: without_version(config(100), "v2"),
            ErrorCode.NOT_FOUND,
            "version_id",
            id="there is no such version",
        ),
        pytest.param(
            lambda: without_version(config(100), "v1"),
            ErrorCode.FAILED_PRECONDITION,
            "version_id",
            id="it is the last version",
        ),
        pytest.param(
            lambda: without_version(config(0, 100, 0), "v2"),
            ErrorCode.FAILED_PRECONDITION,
            "version_id",
            id="no other has any weight",
        ),
    ],
)
def test_refusals_name_field_and_remedy(call: Any, code: ErrorCode, field: str) -> None:
    error = refused(call)
    assert (error.code, error.field) == (code, field)
    assert error.allowed


@given(some.lists(some.integers(0, 100), min_size=1, max_size=16).filter(any), some.integers(0, 100))
def test_shares_sum_up_and_are_off_by_less_than_one(present: list[int], total: int) -> None:
    made = shares(present, total)
    assert sum(made) == total
    for weight, share in zip(present, made, strict=True):
        assert abs(share - weight * total / sum(present)) < 1
    assert shares(present, total) == made


# --- files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    (tmp_path / "models/a.onnx").touch()
    (tmp_path / "models/with space.onnx").touch()
    (tmp_path / "secret").touch()
    (tmp_path / "models/out.onnx").symlink_to(tmp_path / "secret")
    (tmp_path / "models/loop").symlink_to(tmp_path / "models/loop")
    return tmp_path / "models"


def test_a_file_of_the_folder_is_found(folder: Path) -> None:
    assert registered_file(f"file://{folder}/a.onnx", (folder,)) == folder / "a.onnx"
    assert registered_file(f"file://localhost{folder}/a.onnx", (folder,)) == folder / "a.onnx"
    spaced = registered_file(f"file://{folder}/with%20space.onnx", (folder,))
    assert spaced == folder / "with space.onnx"


def test_a_claim_is_where_pods_mount_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered_files, "MODELS_DIRECTORY", str(folder.parent))
    assert registered_file("pvc://models/a.onnx", (folder,)) == folder / "a.onnx"


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("file://{folder}/../secret", "outside"),
        ("file://{folder}/%2e%2e/secret", "outside"),
        ("file://{folder}/out.onnx", "outside"),
        ("file:///etc/passwd", "outside"),
        ("file:///nowhere/at/all", "outside"),
        ("pvc://models/../../etc/passwd", "outside"),
        ("pvc://../etc/passwd", "another kind"),
        ("file://{folder}/none.onnx", "there is no file"),
        ("file://{folder}/loop", ""),
        ("file://{folder}/a%00.onnx", "cannot be followed"),
        ("file://{folder}/" + "x" * 300, "cannot be followed"),
        ("file://{folder}/a.onnx?x=1", "names no file"),
        ("file://{folder}/a.onnx#x", "names no file"),
        ("file:///", "names no file"),
        ("file://host/a.onnx", "another kind"),
        ("https://host/a.onnx", "another kind"),
        ("models/a.onnx", "names no file"),
        ("file://[::1/a.onnx", "is no URI"),
    ],
)
def test_other_files_are_refused(folder: Path, uri: str, problem: str) -> None:
    error = refused(lambda: registered_file(uri.format(folder=folder), (folder,)))
    assert (error.code, error.field) == (ErrorCode.INVALID_ARGUMENT, "uri")
    assert problem in error.message
    assert error.allowed


def test_the_folders_are_those_of_repository_and_models(folder: Path) -> None:
    link = folder.parent / "link"
    link.symlink_to(folder)
    one, whole = config(100, path=str(link / "a.onnx")), config(100, path=str(folder))
    assert allowed_folders(None, [one]) == allowed_folders(None, [whole]) == (folder,)
    assert allowed_folders(str(folder.parent), [one]) == (folder.parent, folder)
    assert allowed_folders(None, []) == ()


# --- requests


class Rounds:
    """Every worker does what it is told."""

    def __init__(self, *served: ServingConfig) -> None:
        self.models = {one.model: one for one in served}
        self.made = 0
        self.fails: RequestError | None = None

    async def serve_next(self, next_config: registrations.NextConfig) -> ServingConfig:
        made = await next_config(self.models)
        if self.fails is not None:
            raise self.fails
        self.models[made.model] = made
        self.made += 1
        return made


SETTINGS = Settings(model_control="explicit")


def registering(rounds: Rounds, settings: Settings = SETTINGS) -> Registrations:
    models: Mapping[str, ServingConfig] = rounds.models
    return Registrations(settings, rounds, models)


def registration(folder: Path, **changes: Any) -> RegisterVersion:
    fields = {
        "request_id": "id-1",
        "model": "m",
        "version_id": "new",
        "uri": f"file://{folder}/a.onnx",
        "weight": 10,
        "owner_email": "a@b.cd",
        **changes,
    }
    return RegisterVersion(**fields)


async def failing(call: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        await call
    return caught.value


async def test_a_version_is_registered_with_its_origin_and_its_owner(folder: Path) -> None:
    rounds = Rounds(config(100, path=str(folder / "a.onnx")))
    assert await registering(rounds).make(registration(folder)) == 8
    made = rounds.models["m"].versions[1]
    assert made == ServedVersion(
        "new", str(folder / "a.onnx"), 10, uri=f"file://{folder}/a.onnx", owner_email="a@b.cd"
    )


async def test_the_same_request_is_made_once_and_answered_alike(folder: Path) -> None:
    rounds = Rounds(config(100, path=str(folder / "a.onnx")))
    made = registering(rounds)
    first = await asyncio.gather(*[made.make(registration(folder)) for _ in range(5)])
    await made.make(registration(folder, request_id="id-2", version_id="newer"))
    assert [*first, await made.make(registration(folder))] == [8] * 6
    assert rounds.made == 2


@pytest.mark.parametrize("change", [{"weight": 11}, {"version_id": "v9"}, {"owner_email": "b@b.cd"}])
async def test_a_request_id_is_not_used_twice(folder: Path, change: dict[str, Any]) -> None:
    made = registering(Rounds(config(100, path=str(folder / "a.onnx"))))
    await made.make(registration(folder))
    error = await failing(made.make(registration(folder, **change)))
    assert (error.code, error.field) == (ErrorCode.ALREADY_EXISTS, "request_id")


async def test_a_late_copy_does_not_bring_a_retired_version_back(folder: Path) -> None:
    rounds = Rounds(config(100, path=str(folder / "a.onnx")))
    made = registering(rounds)
    await made.make(registration(folder))
    assert await made.make(RetireVersion("m", "new")) == 9
    error = await failing(made.make(registration(folder)))
    assert (error.code, error.field) == (ErrorCode.ALREADY_EXISTS, "request_id")
    assert await made.make(registration(folder, request_id="id-2")) == 10


async def test_a_request_that_failed_may_be_tried_again(folder: Path) -> None:
    rounds = Rounds(config(100, path=str(folder / "a.onnx")))
    made = registering(rounds)
    rounds.fails = RequestError(ErrorCode.INTERNAL, "no memory")
    assert (await failing(made.make(registration(folder)))).code is ErrorCode.INTERNAL
    rounds.fails = None
    assert await made.make(registration(folder)) == 8


async def test_the_oldest_requests_are_forgotten(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registrations, "REMEMBERED", 2)
    made = registering(Rounds(config(100, path=str(folder / "a.onnx"))))
    for number in range(3):
        await made.make(registration(folder, request_id=f"id-{number}", version_id=f"n{number}"))
    error = await failing(made.make(registration(folder, request_id="id-0", version_id="n0")))
    assert error.field == "version_id"  # it is a new request, and the version is there
    assert await made.make(registration(folder, request_id="id-1", version_id="n1")) == 9


async def test_clients_may_not_unless_the_server_was_started_so(folder: Path) -> None:
    made = registering(Rounds(config(100)), replace(SETTINGS, model_control="none"))
    for change in (registration(folder), RetireVersion("m", "v1")):
        error = await failing(made.make(change))
        assert error.code is ErrorCode.PERMISSION_DENIED
        assert "--model-control explicit" in str(error.allowed)


async def test_an_unknown_model(folder: Path) -> None:
    made = registering(Rounds(config(100)))
    for change in (registration(folder, model="other"), RetireVersion("other", "v1")):
        error = await failing(made.make(change))
        assert (error.code, error.field, error.allowed) == (ErrorCode.NOT_FOUND, "model", "m")
