"""A change is made by every worker or by none, whatever the workers do meanwhile."""

import asyncio

import msgspec
import pytest

from mcp2026.api.serving import Batching, ServedVersion, ServingConfig, single_version
from mcp2026.runtime.changes import LoadModel, RegisterRegion, UnloadModel, UnregisterRegion
from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.process.change_rounds import ChangeRounds, Served
from mcp2026.runtime.process.control import (
    Commit,
    Committed,
    Discard,
    Prepare,
    Prepared,
    Problem,
    ServeModel,
    ToWorker,
)

REGION = RegisterRegion("r", "/key", 0, 64)
NO_SUCH_KEY = Problem(ErrorCode.INVALID_ARGUMENT, "no such key", "key")


class Workers:
    """Workers that answer at once, but for those that are told to fail or to die."""

    def __init__(self, *slots: int, failing: tuple[int, ...] = (), dying: tuple[int, ...] = ()) -> None:
        self.slots = list(slots)
        self.failing = failing
        self.dying = dying
        self.told: list[tuple[int, ToWorker]] = []
        self.rounds: ChangeRounds

    def loaded(self) -> list[int]:
        return list(self.slots)

    def tell(self, slot: int, message: ToWorker) -> None:
        self.told.append((slot, message))
        loop = asyncio.get_running_loop()
        if slot in self.dying and slot in self.slots:
            self.slots.remove(slot)
            loop.call_soon(self.rounds.ended, slot)
        elif isinstance(message, Prepare):
            problem = NO_SUCH_KEY if slot in self.failing else None
            loop.call_soon(self.rounds.voted, slot, Prepared(message.change_id, problem))
        elif isinstance(message, Commit):
            loop.call_soon(self.rounds.voted, slot, Committed(message.change_id))

    def heard(self, kind: type[ToWorker]) -> list[int]:
        return [slot for slot, message in self.told if isinstance(message, kind)]


class Metrics:
    def __init__(self) -> None:
        self.claimed: list[ServingConfig] = []
        self.retired: list[tuple[str, list[str]]] = []


def rounds(workers: Workers, repository: dict[str, ServingConfig]) -> tuple[ChangeRounds, Served, Metrics]:
    served, metrics = Served(), Metrics()

    async def read_model(name: str) -> ServingConfig:
        if name not in repository:
            raise RequestError(ErrorCode.NOT_FOUND, f"no {name}", "model", ", ".join(repository))
        return repository[name]

    made = ChangeRounds(
        served,
        workers,
        read_model,
        metrics.claimed.append,
        lambda model, versions: metrics.retired.append((model, versions)),
    )
    workers.rounds = made
    return made, served, metrics


def model(*versions: str) -> ServingConfig:
    made = single_version("m.onnx", Batching())
    served = tuple(ServedVersion(version, f"{version}.onnx", 100 // len(versions)) for version in versions)
    return msgspec.structs.replace(made, versions=served)


async def test_a_load_is_prepared_everywhere_before_it_is_committed_anywhere() -> None:
    workers = Workers(0, 1, 2)
    changes, served, metrics = rounds(workers, {"m": model("1")})
    assert await changes.make(LoadModel("m")) is None
    kinds = [type(message) for _, message in workers.told]
    assert kinds == [Prepare] * 3 + [Commit] * 3
    assert served.models == {"m": model("1")}
    assert [config.model for config in metrics.claimed] == ["m"]


async def test_loading_again_grows_the_revision_and_retires_the_versions_that_are_gone() -> None:
    repository = {"m": model("1", "2")}
    workers = Workers(0)
    changes, served, metrics = rounds(workers, repository)
    await changes.make(LoadModel("m"))
    repository["m"] = model("2", "3")
    await changes.make(LoadModel("m"))
    assert served.models["m"].revision == 2
    assert metrics.retired == [("m", ["1"])]
    step = next(message.step for _, message in reversed(workers.told) if isinstance(message, Prepare))
    assert isinstance(step, ServeModel)
    assert step.config.revision == 2


async def test_one_worker_that_cannot_leaves_all_as_they_were() -> None:
    workers = Workers(0, 1, 2, failing=(1,))
    changes, served, _ = rounds(workers, {})
    assert await changes.make(REGION) == NO_SUCH_KEY
    assert workers.heard(Discard) == [0, 1, 2]
    assert workers.heard(Commit) == []
    assert (served.regions, served.generation) == ({}, 0)


@pytest.mark.parametrize("dying", [(0,), (1,), (0, 1)])
async def test_a_worker_that_ends_has_no_vote(dying: tuple[int, ...]) -> None:
    workers = Workers(0, 1, dying=dying)
    changes, served, _ = rounds(workers, {})
    assert await changes.make(REGION) is None
    assert served.regions == {"r": REGION}
    assert served.generation == 1  # whoever replaces it was started before that, or knows the region


async def test_an_unload_names_what_is_served_if_the_model_is_not() -> None:
    workers = Workers(0)
    changes, served, metrics = rounds(workers, {"m": model("1")})
    problem = await changes.make(UnloadModel("m"))
    assert problem is not None
    assert problem.code is ErrorCode.NOT_FOUND
    await changes.make(LoadModel("m"))
    assert await changes.make(UnloadModel("m")) is None
    assert served.models == {}
    assert metrics.retired == [("m", ["", "1"])]


async def test_changes_that_come_together_are_made_one_after_another() -> None:
    workers = Workers(0, 1)
    changes, served, _ = rounds(workers, {})
    regions = [RegisterRegion(f"r{number}", "/key", 0, 64) for number in range(5)]
    assert await asyncio.gather(*(changes.make(region) for region in regions)) == [None] * 5
    kinds = [type(message) for _, message in workers.told]
    assert kinds == ([Prepare] * 2 + [Commit] * 2) * 5
    await changes.make(UnregisterRegion("r3"))
    assert list(served.regions) == ["r0", "r1", "r2", "r4"]
    await changes.make(UnregisterRegion(None))
    assert served.regions == {}
