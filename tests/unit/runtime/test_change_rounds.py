"""A change is made by every worker or by none, whatever the workers do meanwhile."""

import asyncio
from collections.abc import Mapping

import msgspec
import pytest

from mcp2026.api.serving import Batching, ServedVersion, ServingConfig, single_version
from mcp2026.runtime.changes import Change, LoadModel, RegisterRegion, UnloadModel, UnregisterRegion
from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.process import change_rounds
from mcp2026.runtime.process.change_rounds import ChangeRounds
from mcp2026.runtime.process.control import (
    Commit,
    Committed,
    Discard,
    Prepare,
    Prepared,
    Problem,
    ServeModel,
    Step,
    ToWorker,
)
from mcp2026.runtime.process.served import Missed, Served

REGION = RegisterRegion("r", "/key", 0, 64)
NO_SUCH_KEY = Problem(ErrorCode.INVALID_ARGUMENT, "no such key", "key")


class Workers:
    """Workers that answer at once, but for those that are told to fail, to die or to say nothing."""

    def __init__(self, *slots: int, failing: tuple[int, ...] = (), dying: tuple[int, ...] = ()) -> None:
        self.slots = list(slots)
        self.failing = failing
        self.dying = dying
        self.silent: tuple[int, ...] = ()
        self.told: list[tuple[int, ToWorker]] = []
        self.news = asyncio.Event()
        self.rounds: ChangeRounds

    def loaded(self) -> list[int]:
        return list(self.slots)

    def tell(self, slot: int, message: ToWorker) -> None:
        self.told.append((slot, message))
        self.news.set()
        loop = asyncio.get_running_loop()
        if slot in self.dying and slot in self.slots:
            self.slots.remove(slot)
            loop.call_soon(self.rounds.ended, slot)
        elif slot in self.silent:
            return
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


def rounds(
    workers: Workers, repository: dict[str, ServingConfig], load_seconds: float = 60
) -> tuple[ChangeRounds, Served, Metrics]:
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
        load_seconds,
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
    assert served.regions == {}


@pytest.mark.parametrize("dying", [(0,), (1,), (0, 1)])
async def test_a_worker_that_ends_has_no_vote(dying: tuple[int, ...]) -> None:
    workers = Workers(0, 1, dying=dying)
    changes, served, _ = rounds(workers, {})
    assert await changes.make(REGION) is None
    assert served.regions == {"r": REGION}


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


async def missing(*changed: Change) -> tuple[Workers, ChangeRounds, Served, Missed]:
    """Return workers that served the models a and b and the region r before `changed`, which 9 has missed."""
    workers = Workers(0)
    repository = {name: msgspec.structs.replace(model("1"), model=name) for name in ("a", "b", "c")}
    changes, served, _ = rounds(workers, repository)
    for change in (LoadModel("a"), LoadModel("b"), REGION):
        await changes.make(change)
    missed = served.watch()
    for change in changed:
        await changes.make(change)
    workers.told.clear()
    workers.news.clear()
    return workers, changes, served, missed


@pytest.mark.parametrize(
    ("changed", "made_up"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([LoadModel("c")], ["serve c 1"], id="a model more"),
        pytest.param([UnloadModel("a")], ["unload a"], id="a model less"),
        pytest.param(
            [LoadModel("a")] * 3, ["serve a 4"], id="the same model again and again: its last state"
        ),
        pytest.param(
            [UnloadModel("a"), LoadModel("a")], ["serve a 1"], id="gone and back: the file may differ"
        ),
        pytest.param([LoadModel("c"), UnloadModel("c")], ["unload c"], id="a model that came and went"),
        pytest.param([RegisterRegion("s", "/s", 0, 1)], ["forget s", "region s /s"], id="a region more"),
        pytest.param([UnregisterRegion("r")], ["forget r"], id="a region less"),
        pytest.param([UnregisterRegion(None)], ["forget r"], id="all regions gone"),
        pytest.param(
            [UnregisterRegion(None), RegisterRegion("r", "/other", 0, 1)],
            ["forget r", "region r /other"],
            id="a region of the same name",
        ),
    ],
)
async def test_a_worker_makes_up_for_what_changed_while_it_started(
    changed: list[Change], made_up: list[str]
) -> None:
    workers, changes, _, missed = await missing(*changed)
    joined: list[int] = []
    assert await changes.join(9, missed, lambda: joined.append(9)) is None
    assert joined == [9]
    assert {slot for slot, _ in workers.told} <= {9}
    assert [_text(message.step) for _, message in workers.told if isinstance(message, Prepare)] == made_up
    assert len(workers.heard(Commit)) == len(made_up)


async def test_a_worker_that_is_started_later_knows_what_was_unloaded() -> None:
    served = Served()
    for step in (ServeModel(model("1")), UnloadModel("m")):
        served.apply(step)
    replaced = served.watch()
    assert served.steps(replaced) == [UnloadModel("m")]
    served.apply(ServeModel(model("2")))
    assert served.steps(replaced) == [ServeModel(model("2"), may_differ=True)]
    assert served.steps(served.watch()) == []


async def test_no_change_comes_between_the_last_step_and_joining() -> None:
    workers, changes, _, missed = await missing(LoadModel("c"))
    steps: list[str] = []

    def joined() -> None:
        steps.append("joined")
        workers.slots.append(9)

    both = asyncio.gather(changes.join(9, missed, joined), changes.make(UnloadModel("a")))
    assert await both == [None, None]
    last = [
        _text(message.step) for slot, message in workers.told if slot == 9 and isinstance(message, Prepare)
    ]
    assert last == ["serve c 1", "unload a"]
    assert not missed.regions
    assert missed.models == {"c"}  # who has joined misses nothing


async def test_a_region_whose_owner_has_gone_keeps_no_worker_from_joining() -> None:
    workers, changes, _, missed = await missing(RegisterRegion("s", "/s", 0, 1))
    workers.failing = (9,)
    joined: list[int] = []
    assert await changes.join(9, missed, lambda: joined.append(9)) is None
    assert joined == [9]
    assert workers.heard(Discard) == [9, 9]


async def test_a_model_that_cannot_be_loaded_keeps_its_worker_out() -> None:
    workers, changes, _, missed = await missing(LoadModel("c"))
    workers.failing = (9,)
    assert await changes.join(9, missed, lambda: pytest.fail("it has joined")) == NO_SUCH_KEY


async def test_a_worker_that_ends_while_it_joins_holds_up_no_change() -> None:
    workers, changes, _, missed = await missing(LoadModel("c"))
    workers.silent = (9,)
    joining = asyncio.create_task(changes.join(9, missed, lambda: pytest.fail("it has joined")))
    await workers.news.wait()
    changes.ended(9)
    joining.cancel()
    assert await changes.make(UnloadModel("a")) is None
    assert joining.cancelled()


def _text(step: Step) -> str:
    match step:
        case ServeModel(config):
            return f"serve {config.model} {config.revision}"
        case UnloadModel(name):
            return f"unload {name}"
        case RegisterRegion(name, key):
            return f"region {name} {key}"
        case UnregisterRegion(name):
            return f"forget {name}"


async def test_a_version_that_cannot_be_prepared_keeps_no_room() -> None:
    repository = {"m": model("1", "2")}
    workers = Workers(0)
    changes, served, metrics = rounds(workers, repository)
    await changes.make(LoadModel("m"))
    workers.failing = (0,)

    async def next_config(models: Mapping[str, ServingConfig]) -> ServingConfig:
        return msgspec.structs.replace(model("1", "2", "3"), revision=2)

    with pytest.raises(RequestError, match="no such key"):
        await changes.serve_next(next_config)
    assert metrics.retired == [("m", ["3"])]
    assert metrics.claimed[-1] == served.models["m"] == model("1", "2")


async def test_a_model_for_which_there_is_no_room_takes_none() -> None:
    changes, served, metrics = rounds(Workers(0), {"m": model("1")})

    def claim(_config: ServingConfig) -> None:
        raise RequestError(ErrorCode.INVALID_ARGUMENT, "too many", "model")

    changes._claim = claim
    problem = await changes.make(LoadModel("m"))
    assert problem is not None
    assert metrics.retired == [("m", ["", "1"])]
    assert served.models == {}


async def test_a_model_that_no_worker_survives_is_made_nowhere_and_is_then_tried_by_one_alone() -> None:
    repository = {"m": model("1")}
    workers = Workers(0, 1)
    changes, served, metrics = rounds(workers, repository)
    await changes.make(LoadModel("m"))
    repository["m"] = model("2")
    workers.dying = (0, 1)
    problem = await changes.make(LoadModel("m"))
    assert problem is not None
    assert (problem.code, "version(s) 2 of 'm'" in problem.message) == (ErrorCode.NOT_READY, True)
    assert served.models["m"] == model("1")
    assert metrics.retired == [("m", ["2"])]
    workers.slots, workers.dying = [0, 1], (0,)
    workers.told.clear()
    assert await changes.make(LoadModel("m")) == problem
    assert workers.heard(Prepare) == [0]
    assert workers.slots == [1]
    workers.slots, workers.dying = [0, 1], ()
    assert await changes.make(LoadModel("m")) is None
    assert served.models["m"].versions == model("2").versions


async def test_a_model_that_one_worker_survives_is_served() -> None:
    workers = Workers(0, 1, dying=(0,))
    changes, served, _ = rounds(workers, {"m": model("1")})
    assert await changes.make(LoadModel("m")) is None
    assert served.models == {"m": model("1")}


async def test_a_change_waits_for_a_worker_that_can_try_it() -> None:
    workers = Workers()
    changes, served, _ = rounds(workers, {"m": model("1")})
    made = asyncio.create_task(changes.make(LoadModel("m")))
    await asyncio.sleep(0)
    assert not made.done()
    assert await changes.join(0, served.watch(), lambda: workers.slots.append(0)) is None
    assert await made is None
    assert workers.heard(Prepare) == [0]


async def test_a_load_that_does_not_end_is_told_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(change_rounds, "FIRST_WORD_SECONDS", 0.05)
    workers = Workers(0, 1)
    workers.silent = (1,)
    changes, _, _ = rounds(workers, {"m": model("1", "2")})
    loading = asyncio.create_task(changes.make(LoadModel("m")))
    await asyncio.sleep(0.5)  # it is what is counted
    told = [one for one in caplog.messages if "still being loaded" in one]
    assert 1 <= len(told) <= 4  # after 0.05, 0.1, 0.2 and 0.4 s
    assert "version(s) 1, 2 of m" in told[0]
    workers.slots.remove(1)
    changes.ended(1)
    assert await loading is None
    await asyncio.sleep(0.5)
    assert [one for one in caplog.messages if "still being loaded" in one] == told


async def test_a_load_that_does_not_end_is_given_up_and_later_changes_are_made() -> None:
    repository = {"m": model("1")}
    workers = Workers(0, 1)
    changes, served, metrics = rounds(workers, repository, load_seconds=0.2)
    assert await changes.make(LoadModel("m")) is None
    repository["m"] = model("2")
    workers.silent = (1,)
    problem = await changes.make(LoadModel("m"))
    assert problem is not None
    assert problem.code is ErrorCode.DEADLINE_EXCEEDED
    assert (
        "version(s) 2 of 'm' could not be loaded and run for the first time within 0.2 s" in problem.message
    )
    assert workers.heard(Discard) == [0, 1]
    assert served.models["m"] == model("1")
    assert metrics.retired == [("m", ["2"])]
    workers.silent = ()
    assert await changes.make(LoadModel("m")) is None
    assert served.models["m"].versions == model("2").versions


async def test_a_worker_that_cannot_make_up_in_time_is_given_up() -> None:
    workers = Workers(0, 1)
    changes, served, _ = rounds(workers, {"m": model("1")}, load_seconds=0.2)
    missed = served.watch()
    assert await changes.make(LoadModel("m")) is None
    workers.silent = (2,)
    problem = await changes.join(2, missed, lambda: workers.slots.append(2))
    assert problem is not None
    assert problem.code is ErrorCode.DEADLINE_EXCEEDED
    assert workers.slots == [0, 1]
