"""Each newer revision is served, once, and what cannot be served leaves what is live."""

import asyncio
import ctypes
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from mcp2026.api import folder_watch
from mcp2026.api.errors import SettingsError
from mcp2026.api.folder_watch import FolderWatch
from mcp2026.api.serving import ServedVersion, ServingConfig, encode_serving_config
from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.fetching.errors import FetchError
from mcp2026.runtime.revisions import config_file, following
from mcp2026.runtime.revisions.config_file import watch_file
from mcp2026.runtime.revisions.following import Follower, Standing
from mcp2026.runtime.revisions.newest import Newest


def config(revision: int, weight: int = 90, model: str = "model") -> ServingConfig:
    versions = (ServedVersion("v1", "/v1", weight), ServedVersion("v2", "/v2", 100 - weight))
    return ServingConfig(model, versions, revision=revision)


def document(*args: int, **kwargs: str) -> bytes:
    return encode_serving_config(config(*args, **kwargs))


class Workers:
    """Serves what it is told to, unless it is told that it cannot."""

    def __init__(self) -> None:
        self.models = {"model": config(1)}
        self.served: list[int] = []
        self.refusals: list[RequestError] = []
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def serve_next(
        self, next_config: Callable[[Mapping[str, ServingConfig]], Awaitable[ServingConfig]]
    ) -> ServingConfig:
        wanted = await next_config(self.models)
        await self.may_go_on.wait()
        if self.refusals:
            raise self.refusals.pop(0)
        self.models[wanted.model] = wanted
        self.served.append(wanted.revision)
        return wanted


class Told:
    """What was reported, and a way to wait for more."""

    def __init__(self) -> None:
        self.standings: list[Standing] = []
        self._more = asyncio.Condition()

    def __call__(self, standing: Standing) -> None:
        self.standings.append(standing)
        asyncio.get_running_loop().create_task(self._notify())

    async def _notify(self) -> None:
        async with self._more:
            self._more.notify_all()

    async def until(self, count: int) -> list[Standing]:
        async with self._more:
            await asyncio.wait_for(self._more.wait_for(lambda: len(self.standings) >= count), 20)
        return self.standings


def as_it_is(config: ServingConfig) -> ServingConfig:
    return config


@asynccontextmanager
async def followed(
    workers: Workers, with_flags: Callable[[ServingConfig], ServingConfig] = as_it_is
) -> AsyncIterator[tuple[Newest, Told]]:
    mailbox, told = Newest(), Told()
    task = asyncio.create_task(Follower("model", mailbox, workers, with_flags, told).run(1))
    try:
        yield mailbox, told
    finally:
        task.cancel()


async def test_what_is_live_at_the_start_is_told_first_and_each_newer_revision_after_it() -> None:
    workers = Workers()
    async with followed(workers) as (mailbox, told):
        await told.until(1)
        for revision in (2, 5):
            mailbox.put(document(revision, 100 - revision))
            await told.until(len(told.standings) + 1)
    assert told.standings == [Standing(1), Standing(2), Standing(5)]
    assert workers.models["model"].versions[0].weight == 95


async def test_what_comes_while_one_is_loaded_is_conflated_to_the_newest() -> None:
    workers = Workers()
    workers.may_go_on.clear()
    async with followed(workers) as (mailbox, told):
        mailbox.put(document(2))
        await asyncio.sleep(0)
        for revision in range(3, 50):
            mailbox.put(document(revision, revision))
        workers.may_go_on.set()
        while workers.models["model"].revision < 49:
            await told.until(len(told.standings) + 1)
    assert workers.served in ([2, 49], [49])


@pytest.mark.parametrize("stale", [document(1), document(1, 90)], ids=["the same", "equal"])
async def test_the_same_revision_again_changes_nothing(stale: bytes) -> None:
    workers = Workers()
    async with followed(workers) as (mailbox, told):
        mailbox.put(stale)
        mailbox.put(document(2))
        await told.until(2)
    assert workers.served == [2]


async def test_a_document_without_a_number_is_the_next_revision_if_it_says_something_new() -> None:
    workers = Workers()
    async with followed(workers) as (mailbox, told):
        await told.until(1)
        mailbox.put(document(1, 80).replace(b'"revision":1,', b""))
        await told.until(2)
        mailbox.put(document(1, 80).replace(b'"revision":1,', b""))
        await asyncio.sleep(0)
        mailbox.put(document(1, 70).replace(b'"revision":1,', b""))
        await told.until(3)
        mailbox.put(document(9, 60))
        await told.until(4)
        mailbox.put(document(1, 50).replace(b'"revision":1,', b""))
        await told.until(5)
    assert workers.served == [2, 3, 9, 10]
    assert workers.models["model"].versions[0].weight == 50


async def test_a_document_with_a_byte_order_mark_is_followed() -> None:
    workers = Workers()
    async with followed(workers) as (mailbox, told):
        mailbox.put(b"\xef\xbb\xbf" + document(4, 80))
        await told.until(2)
    assert told.standings == [Standing(1), Standing(4)]


async def test_an_older_revision_is_never_taken() -> None:
    workers = Workers()
    async with followed(workers) as (mailbox, told):
        await told.until(1)
        mailbox.put(document(7))
        await told.until(2)
        mailbox.put(document(6, 1))
        await asyncio.sleep(0)
        mailbox.put(document(8))
        await told.until(3)
    assert workers.served == [7, 8]
    assert told.standings == [Standing(1), Standing(7), Standing(8)]


BAD = [
    ("no JSON", b"{", None, "serving configuration"),
    ("weights", document(2).replace(b'"weight":10', b'"weight":11'), None, "the weights sum to 101"),
    ("another model", document(2, model="other"), 2, "model: 'other' is not served here; allowed: model"),
    ("the live number with another content", document(1, 50), 1, "1 is live with another content"),
]


@pytest.mark.parametrize(("bad", "revision", "words"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
async def test_what_cannot_be_understood_is_told_and_leaves_what_is_live(
    bad: bytes, revision: int | None, words: str
) -> None:
    workers = Workers()
    async with followed(workers) as (mailbox, told):
        await told.until(1)
        mailbox.put(bad)
        standing = (await told.until(2))[-1]
        assert (standing.live, standing.failed) == (1, revision)
        assert words in standing.problem
        mailbox.put(document(2))
        assert (await told.until(3))[-1] == Standing(2)
    assert workers.served == [2]


async def test_an_error_that_nobody_foresaw_ends_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "FIRST_RETRY_SECONDS", 0.01)
    errors = [ValueError("odd"), KeyError("x"), MemoryError()]

    def odd(config: ServingConfig) -> ServingConfig:
        if errors:
            raise errors.pop(0)
        return config

    workers = Workers()
    async with followed(workers, odd) as (mailbox, told):
        mailbox.put(document(2))
        standings = await told.until(5)
    assert standings[1] == Standing(1, 2, "ValueError: odd")
    assert standings[-1] == Standing(2)


async def test_flags_that_do_not_fit_are_told() -> None:
    def refuse(config: ServingConfig) -> ServingConfig:
        raise SettingsError("--min-batch-size", "9 is above maxBatchSize", "1 to 8")

    workers = Workers()
    async with followed(workers, refuse) as (mailbox, told):
        mailbox.put(document(2))
        standing = (await told.until(2))[-1]
    assert standing == Standing(1, 2, "--min-batch-size: 9 is above maxBatchSize; allowed: 1 to 8")


async def test_a_revision_whose_file_is_still_on_its_way_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "FIRST_RETRY_SECONDS", 0.01)
    workers = Workers()
    missing = RequestError(ErrorCode.INVALID_ARGUMENT, "cannot load model /v2: no such file", "model")
    workers.refusals = [missing, missing]
    async with followed(workers) as (mailbox, told):
        mailbox.put(document(2))
        standings = await told.until(4)
    assert standings == [
        Standing(1),
        Standing(1, 2, missing.message),
        Standing(1, 2, missing.message),
        Standing(2),
    ]


async def test_a_newer_revision_does_not_wait_for_the_retry_of_one_that_failed() -> None:
    workers = Workers()
    workers.refusals = [RequestError(ErrorCode.INVALID_ARGUMENT, "no such file", "model")]
    async with followed(workers) as (mailbox, told):
        mailbox.put(document(2))
        await told.until(2)
        mailbox.put(document(3))
        assert (await told.until(3))[-1] == Standing(3)
    assert workers.served == [3]


async def test_a_file_is_followed_through_renames_links_and_absence(tmp_path: Path) -> None:
    """The kubelet moves a link of the folder; editors rename; both must be seen, in any order."""
    versions = [tmp_path / name for name in ("one", "two")]
    for number, folder in enumerate(versions):
        folder.mkdir()
        (folder / "serving.json").write_bytes(b"%d" % number)
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    data, path = mounted / "..data", mounted / "serving.json"
    data.symlink_to(versions[0])
    path.symlink_to("..data/serving.json")
    mailbox = Newest()
    watching = asyncio.create_task(watch_file(path, mailbox))
    try:
        assert await mailbox.take(20) == b"0"
        moved = mounted / "..data_tmp"
        moved.symlink_to(versions[1])
        moved.rename(data)
        assert await mailbox.take(20) == b"1"
        path.unlink()
        (mounted / "new").write_bytes(b"2")
        (mounted / "new").rename(path)
        assert await mailbox.take(20) == b"2"
        path.write_bytes(b"3")
        assert await mailbox.take(20) == b"3"
    finally:
        watching.cancel()
        await asyncio.wait({watching})


async def test_a_mailbox_waits_only_so_long() -> None:
    mailbox = Newest()
    assert await mailbox.take(0.01) is None
    mailbox.put(b"1")
    mailbox.put(b"2")
    assert await mailbox.take(0.01) == b"2"
    assert await mailbox.take(0.01) is None


def test_a_standing_tells_what_is_live_and_what_failed() -> None:
    assert msgspec.structs.asdict(Standing(3, 4, "why")) == {"live": 3, "failed": 4, "problem": "why"}


async def test_a_revision_that_says_stopped_ends_the_following_whatever_its_number() -> None:
    workers, mailbox, told = Workers(), Newest(), Told()
    following = asyncio.create_task(Follower("model", mailbox, workers, as_it_is, told).run(5))
    await told.until(1)
    other = msgspec.structs.replace(config(9), model="other", stopped=True)
    mailbox.put(encode_serving_config(other))
    await told.until(2)
    mailbox.put(encode_serving_config(msgspec.structs.replace(config(4), stopped=True)))
    assert await asyncio.wait_for(following, 20) == 4
    assert workers.served == []
    assert told.standings[1].live == 5
    assert "other" in told.standings[1].problem


async def test_a_folder_that_is_away_is_told_of_once_and_taken_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(config_file, "_LOOK_S", 0.02)
    folder = tmp_path / "folder"
    path = folder / "serving.json"
    folder.mkdir()
    path.write_bytes(b"1")
    mailbox = Newest()
    watching = asyncio.create_task(watch_file(path, mailbox))
    try:
        assert await mailbox.take(20) == b"1"
        folder.rename(tmp_path / "away")
        assert await mailbox.take(0.5) is None
        assert len(caplog.messages) == 1
        (tmp_path / "away" / "serving.json").write_bytes(b"2")
        (tmp_path / "away").rename(folder)
        assert await mailbox.take(20) == b"2"
    finally:
        watching.cancel()
        await asyncio.wait({watching})


async def test_a_folder_that_cannot_be_watched_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As when the user has no inotify watches left."""
    caplog.set_level("INFO")
    monkeypatch.setattr(config_file, "_LOOK_S", 0.02)
    monkeypatch.setattr(folder_watch, "_libc", NoWatchesLeft())
    path = tmp_path / "serving.json"
    mailbox = Newest()
    watching = asyncio.create_task(watch_file(path, mailbox))
    try:
        for content in (b"1", b"2"):
            path.write_bytes(content)
            assert await mailbox.take(20) == content
    finally:
        watching.cancel()
        await asyncio.wait({watching})
    assert len([one for one in caplog.messages if "looked at now and then" in one]) == 1


class NoWatchesLeft:
    """A C library whose user has used them all."""

    def inotify_init1(self, _flags: int) -> int:
        ctypes.set_errno(errno.EMFILE)
        return -1


async def test_a_change_is_seen_though_it_comes_before_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "serving.json"
    path.write_bytes(b"1")
    mailbox = Newest()
    begin = FolderWatch._begin

    def late(watch: FolderWatch) -> bool:
        path.write_bytes(b"2")
        return begin(watch)

    monkeypatch.setattr(FolderWatch, "_begin", late)
    monkeypatch.setattr(config_file, "_LOOK_S", 3_600)
    watching = asyncio.create_task(watch_file(path, mailbox))
    try:
        while await mailbox.take(20) != b"2":
            pass
    finally:
        watching.cancel()
        await asyncio.wait({watching})


class Fetching:
    """Brings nothing before it may go on; counts how often it began and was ended."""

    def __init__(self) -> None:
        self.began: list[int] = []
        self.ended: list[int] = []
        self.problems: list[FetchError] = []
        self.may_go_on = asyncio.Event()
        self.news = asyncio.Event()

    async def __call__(self, config: ServingConfig) -> ServingConfig:
        self.began.append(config.revision)
        self.news.set()
        try:
            await self.may_go_on.wait()
        except asyncio.CancelledError:
            self.ended.append(config.revision)
            raise
        if self.problems:
            raise self.problems.pop(0)
        versions = tuple(msgspec.structs.replace(one, path=f"/cache{one.path}") for one in config.versions)
        return msgspec.structs.replace(config, versions=versions)

    async def begun(self) -> None:
        await asyncio.wait_for(self.news.wait(), 20)
        self.news.clear()


@asynccontextmanager
async def fetched(workers: Workers, fetching: Fetching) -> AsyncIterator[tuple[Newest, Told]]:
    mailbox, told = Newest(), Told()
    follower = Follower("model", mailbox, workers, as_it_is, told, fetching)
    task = asyncio.create_task(follower.run(1))
    try:
        yield mailbox, told
    finally:
        task.cancel()


async def test_what_lies_elsewhere_is_brought_before_a_round_begins() -> None:
    workers, fetching = Workers(), Fetching()
    async with fetched(workers, fetching) as (mailbox, told):
        mailbox.put(document(2))
        await fetching.begun()
        assert workers.served == []
        mailbox.put(document(2))  # the same again, as a watch that begins anew has it
        await asyncio.sleep(0)
        fetching.may_go_on.set()
        await told.until(2)
    assert fetching.began == [2]
    assert [one.path for one in workers.models["model"].versions] == ["/cache/v1", "/cache/v2"]


async def test_a_newer_revision_ends_a_fetch_and_an_older_one_begins_none() -> None:
    workers, fetching = Workers(), Fetching()
    async with fetched(workers, fetching) as (mailbox, told):
        mailbox.put(document(2))
        await fetching.begun()
        mailbox.put(document(3))
        await fetching.begun()
        assert fetching.ended == [2]
        fetching.may_go_on.set()
        assert (await told.until(2))[-1] == Standing(3)
        mailbox.put(document(2))
        mailbox.put(document(4))
        await told.until(3)
    assert fetching.began == [2, 3, 4]


async def test_what_cannot_be_fetched_is_reported_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "FIRST_RETRY_SECONDS", 0.01)
    workers, fetching = Workers(), Fetching()
    fetching.may_go_on.set()
    fetching.problems = [FetchError("s3://bucket/key", "nothing came for 30 s", "Check the network")]
    async with fetched(workers, fetching) as (mailbox, told):
        mailbox.put(document(2))
        standings = await told.until(3)
    assert standings[1].failed == 2
    assert "cannot fetch s3://bucket/key: nothing came for 30 s" in standings[1].problem
    assert standings[2] == Standing(2)


async def test_the_file_of_the_start_takes_nothing_back_that_clients_have_changed_since() -> None:
    """It may be read after the first registration."""
    workers, told, mailbox = Workers(), Told(), Newest()
    started = config(1)
    workers.models["model"] = config(2, 50)
    follower = Follower("model", mailbox, workers, as_it_is, told, asked=started)
    task = asyncio.create_task(follower.run(1))
    unnumbered = msgspec.json.decode(document(1))
    del unnumbered["revision"]
    mailbox.put(msgspec.json.encode(unnumbered))
    await told.until(1)
    await asyncio.sleep(0.05)
    assert workers.served == []
    unnumbered["versions"][0]["weight"], unnumbered["versions"][1]["weight"] = 20, 80
    mailbox.put(msgspec.json.encode(unnumbered))
    await told.until(2)
    assert workers.served == [3]
    task.cancel()
