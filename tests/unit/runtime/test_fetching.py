"""A version that lies elsewhere is fetched once, whole, and as it was asked for; or the reason is named."""

import asyncio
import dataclasses
import gzip
import hashlib
import os
import random
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from mcp2026.api.names import SOURCE_AUTHORIZATION_VARIABLE, SOURCE_HOST_VARIABLE
from mcp2026.api.serving import ServedVersion, ServingConfig
from mcp2026.runtime.fetching import transfer
from mcp2026.runtime.fetching.errors import FetchError
from mcp2026.runtime.fetching.fetching import Fetcher
from mcp2026.runtime.settings import Settings
from tests.unit.runtime.file_origin import Origin, serving

MIB = 1024 * 1024
CONTENT = random.Random(1).randbytes(300_000)
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
async def origin() -> AsyncIterator[Origin]:
    async with serving(CONTENT) as origin:
        yield origin


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(transfer, "FIRST_PAUSE", 0.01)
    return Settings(
        model_cache=str(tmp_path / "cache"), fetch_stall_seconds=0.3, fetch_seconds=60.0, allow_http=True
    )


def config(*paths: str, sha256: str | None = DIGEST) -> ServingConfig:
    versions = tuple(ServedVersion(f"v{number}", path, 100, sha256) for number, path in enumerate(paths))
    return ServingConfig("model", versions)


def fetcher(settings: Settings, *served: ServingConfig, **environment: str) -> Fetcher:
    return Fetcher(settings, lambda: served, environment)


async def fetched(settings: Settings, url: str, **environment: str) -> bytes:
    """Return the content of the file that a new server would serve."""
    local = await fetcher(settings, **environment).local(config(url))
    return await asyncio.to_thread(Path(local.versions[0].path).read_bytes)


async def refused(settings: Settings, url: str, sha256: str | None = DIGEST, **environment: str) -> str:
    with pytest.raises(FetchError) as error:
        await fetcher(settings, **environment).local(config(url, sha256=sha256))
    return str(error.value)


def left(settings: Settings) -> set[str]:
    """Return what of the digest is in the cache."""
    return {one.name.removeprefix(DIGEST) for one in Path(str(settings.model_cache)).iterdir()}


async def test_a_file_is_fetched_once_and_lies_under_its_digest(settings: Settings, origin: Origin) -> None:
    assert await fetched(settings, origin.url) == CONTENT
    assert await fetched(settings, f"{origin.url}?signature=other") == CONTENT
    assert len(origin.asked) == 1
    assert left(settings) == {"", ".lock"}


async def test_what_lies_here_is_left_as_it_is(settings: Settings) -> None:
    asked = config("/models/one.onnx", "models/two.onnx", sha256=None)
    assert await fetcher(settings).local(asked) == asked


async def test_a_broken_transfer_goes_on_where_it_broke(settings: Settings, origin: Origin) -> None:
    origin.cuts = [100_000, 50_000]
    origin.statuses = [503]
    assert await fetched(settings, origin.url) == CONTENT
    assert origin.asked_ranges == [None, None, "bytes=100000-", "bytes=150000-"]
    assert origin.asked[-1]["If-Range"] == '"1"'


async def test_a_file_that_changes_meanwhile_is_fetched_anew(settings: Settings, origin: Origin) -> None:
    whole, origin.content = origin.content, bytes(400_000)
    origin.cuts = [100_000]
    fetching = asyncio.create_task(fetched(settings, origin.url))
    await origin.news.wait()
    origin.content, origin.etag = whole, '"2"'
    assert await fetching == CONTENT
    assert origin.asked_ranges == [None, "bytes=100000-"]


@pytest.mark.parametrize("etag", ["", 'W/"1"'])
async def test_without_a_strong_tag_it_begins_anew(settings: Settings, origin: Origin, etag: str) -> None:
    origin.cuts, origin.etag = [100_000], etag
    assert await fetched(settings, origin.url) == CONTENT
    assert origin.asked_ranges == [None, None]


async def test_a_source_without_lengths_is_read_to_its_end(settings: Settings, origin: Origin) -> None:
    origin.chunked = True
    assert await fetched(settings, origin.url) == CONTENT


async def test_silence_is_named_and_what_has_arrived_is_used_later(
    settings: Settings, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "ATTEMPTS", 2)
    origin.stalls = [100_000, 0, 0]
    said = await refused(settings, origin.url)
    assert "nothing came for 0.3 s" in said
    assert "of 300000 bytes arrived" in said
    assert left(settings) == {".part", ".state", ".lock"}
    origin.stalls = []
    assert await fetched(settings, origin.url) == CONTENT
    assert origin.asked_ranges[-1] is not None


async def test_a_trickle_ends_at_the_limit(settings: Settings, origin: Origin) -> None:
    origin.drip_seconds = 0.05
    said = await refused(dataclasses.replace(settings, fetch_seconds=0.5), origin.url)
    assert "it is not done after 0.5 s" in said


async def given_up(settings: Settings, origin: Origin) -> None:
    """Fetch, and give it up after some bytes have arrived."""
    origin.stalls = [100_000]
    patient = dataclasses.replace(settings, fetch_stall_seconds=60.0)
    fetching = asyncio.create_task(fetched(patient, origin.url))
    part = Path(str(settings.model_cache), f"{DIGEST}.part")
    while await asyncio.to_thread(size, part) < 100_000:  # noqa: ASYNC110 - a file sets no event
        await asyncio.sleep(0.01)
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


async def test_a_fetch_that_is_given_up_goes_on_later(settings: Settings, origin: Origin) -> None:
    await given_up(settings, origin)
    assert await fetched(settings, origin.url) == CONTENT
    assert origin.asked_ranges == [None, "bytes=100000-"]


async def test_what_was_left_of_another_file_costs_one_more_fetch(settings: Settings, origin: Origin) -> None:
    await given_up(settings, origin)
    part = Path(str(settings.model_cache), f"{DIGEST}.part")
    await asyncio.to_thread(part.write_bytes, b"x" * 1_000)
    assert await fetched(settings, origin.url) == CONTENT
    assert origin.asked_ranges == [None, "bytes=1000-", None]


@pytest.mark.parametrize(
    "content", [CONTENT[:1_000], b"\0" * len(CONTENT)], ids=["cut short at the source", "swapped"]
)
async def test_another_file_is_refused_and_nothing_of_it_is_kept(
    settings: Settings, origin: Origin, content: bytes
) -> None:
    origin.content = content
    said = await refused(settings, origin.url)
    assert f"its sha256 is {hashlib.sha256(content).hexdigest()} ({len(content)} bytes)" in said
    assert DIGEST in said
    assert left(settings) == {".lock"}
    assert len(origin.asked) == 1


async def test_the_digest_of_nothing_is_asked_for_like_any_other(settings: Settings, origin: Origin) -> None:
    nothing = hashlib.sha256(b"").hexdigest()
    assert f"its sha256 is {DIGEST} (300000 bytes)" in await refused(settings, origin.url, nothing)


@pytest.mark.parametrize(
    ("status", "attempts", "said"),
    [
        (404, 1, "the server answers 404"),
        (403, 1, "credentialsSecret"),
        (410, 1, "the server answers 410"),
        (503, transfer.ATTEMPTS, "the server answers 503"),
        (429, transfer.ATTEMPTS, "the server answers 429"),
    ],
)
async def test_only_what_may_pass_is_tried_again(
    settings: Settings, origin: Origin, status: int, attempts: int, said: str
) -> None:
    origin.statuses = [status] * 10
    assert said in await refused(settings, origin.url)
    assert len(origin.asked) == attempts


async def test_a_server_that_is_not_there_is_named(settings: Settings) -> None:
    said = await refused(settings, "http://127.0.0.1:1/file?signature=secret")
    assert "no connection" in said
    assert "secret" not in said


async def test_a_header_goes_to_its_host_and_to_no_other(settings: Settings, origin: Origin) -> None:
    own = {SOURCE_AUTHORIZATION_VARIABLE: "Bearer secret", SOURCE_HOST_VARIABLE: "127.0.0.1"}
    origin.redirect = origin.url.replace("127.0.0.1", "localhost")
    assert await fetched(settings, origin.url.replace("/file", "/moved"), **own) == CONTENT
    assert [one.get("Authorization") for one in origin.asked] == ["Bearer secret", None]
    said = await refused(settings, origin.url, "0" * 64, **{SOURCE_AUTHORIZATION_VARIABLE: "Bearer secret"})
    assert SOURCE_HOST_VARIABLE in said


async def test_what_a_url_signs_reaches_the_server_as_it_is(settings: Settings, origin: Origin) -> None:
    assert await fetched(settings, f"{origin.url}?sig=a%2Fb%2bc&x=~") == CONTENT
    assert origin.asked[0][":path"] == "/file?sig=a%2Fb%2bc&x=~"


async def test_a_redirect_to_what_is_not_safe_is_refused(settings: Settings, origin: Origin) -> None:
    origin.redirect = "ftp://127.0.0.1/file"
    assert "not https://" in await refused(settings, origin.url.replace("/file", "/moved"))


@pytest.mark.parametrize("where", ["https://[::1", "http://host:99999999/", "https://", "//["])
async def test_a_redirect_to_what_is_no_url_is_refused(
    settings: Settings, origin: Origin, where: str
) -> None:
    origin.redirect = where
    assert "it leads to what is no URL" in await refused(settings, origin.url.replace("/file", "/moved"))


async def test_redirects_without_end_are_refused(settings: Settings, origin: Origin) -> None:
    origin.redirect = "/moved"
    assert "more than 5 times" in await refused(settings, origin.url.replace("/file", "/moved"))


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 99_999,
    ],
    ids=["no HTTP", "a negative length", "endless headers"],
)
async def test_a_server_that_does_not_speak_http_is_named(settings: Settings, answer: bytes) -> None:
    async def speak(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        said = await refused(settings, f"http://127.0.0.1:{port}/file?signature=secret")
    assert "its answer is no proper HTTP. Check the URL and the server" in said
    assert "secret" not in said


async def test_a_server_that_packs_the_file_is_named(settings: Settings, origin: Origin) -> None:
    origin.encoding = "gzip"
    assert await fetched(settings, origin.url) == CONTENT  # what was stored packed is asked for packed
    origin.content = gzip.compress(CONTENT)
    other = dataclasses.replace(settings, model_cache=f"{settings.model_cache}-2")
    assert "sends it packed (gzip)" in await refused(other, origin.url)


async def test_a_step_that_is_cancelled_is_waited_for(
    settings: Settings, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block that is on its way to the disk would land in what the next transfer has begun."""
    going, go_on = threading.Event(), threading.Event()
    take = transfer.Transfer._take

    def slow(self: transfer.Transfer, block: bytes) -> None:
        going.set()
        assert go_on.wait(10)
        take(self, block)

    monkeypatch.setattr(transfer.Transfer, "_take", slow)
    fetching = asyncio.create_task(fetched(settings, origin.url))
    await asyncio.to_thread(going.wait, 10)
    fetching.cancel()
    another = asyncio.create_task(fetched(settings, origin.url))
    await asyncio.wait({fetching, another}, timeout=0.3)
    assert not fetching.done()
    assert len(origin.asked) == 1  # the other one waits for the first to let go
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    assert await another == CONTENT


@pytest.mark.parametrize(
    ("url", "sha256", "changes", "said"),
    [
        ("https://host/file", None, {}, "it has no sha256"),
        ("https://host/file", DIGEST, {"model_cache": None}, "--model-cache"),
        ("http://host/file", DIGEST, {"allow_http": False}, "--allow-http"),
        ("https://user:secret@host/file", DIGEST, {}, "holds a user or a password"),
        ("s3://bucket", DIGEST, {}, "names no object"),
    ],
)
async def test_what_cannot_be_fetched_is_said_before_anything_is_sent(
    settings: Settings, url: str, sha256: str | None, changes: dict[str, object], said: str
) -> None:
    told = await refused(dataclasses.replace(settings, **changes), url, sha256)  # type: ignore[arg-type]
    assert said in told
    assert "secret" not in told


async def test_servers_that_share_a_cache_fetch_once(settings: Settings, origin: Origin) -> None:
    origin.drip_seconds = 0.001
    assert await asyncio.gather(*(fetched(settings, origin.url) for _ in range(3))) == [CONTENT] * 3
    assert len(origin.asked) == 1


def damage(settings: Settings, kind: str) -> Path:
    """Damage the file in the cache, and return it."""
    file = Path(str(settings.model_cache), DIGEST)
    if kind == "cut short":
        os.truncate(file, 1_000)
    elif kind == "empty":
        os.truncate(file, 0)
    else:
        with file.open("r+b") as open_file:
            open_file.seek(200_000)
            open_file.write(b"\0\0\0\0")
    return file


@pytest.mark.parametrize("kind", ["cut short", "empty", "four bytes changed"])
async def test_a_file_that_is_damaged_in_the_cache_is_told_removed_and_fetched_again(
    settings: Settings, origin: Origin, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert await fetched(settings, origin.url) == CONTENT
    file = damage(settings, kind)
    assert await fetched(settings, origin.url) == CONTENT
    assert len(origin.asked) == 2
    assert left(settings) == {"", ".lock"}
    assert f"{file} in the model cache is damaged" in caplog.text
    assert await fetched(settings, origin.url) == CONTENT
    assert len(origin.asked) == 2


async def test_a_damaged_file_whose_source_is_away_is_served_by_nobody(
    settings: Settings, origin: Origin
) -> None:
    assert await fetched(settings, origin.url) == CONTENT
    damage(settings, "empty")
    origin.statuses = [404]
    assert "the server answers 404" in await refused(settings, origin.url)
    assert await fetched(settings, origin.url) == CONTENT


async def test_a_damaged_file_that_others_serve_is_fetched_once_and_held_by_all(
    settings: Settings, origin: Origin
) -> None:
    """A server that has it open holds its lock, and must keep nobody from a good one."""
    serving = fetcher(settings)
    local = await serving.local(config(origin.url))
    damage(settings, "four bytes changed")
    others = [fetcher(settings) for _ in range(3)]
    async with asyncio.timeout(20):
        assert (
            await asyncio.gather(*(one.local(config(origin.url)) for one in (serving, *others)))
            == [local] * 4
        )
    assert len(origin.asked) == 2
    assert await fetched(settings, origin.url) == CONTENT
    origin.content, origin.etag = bytes(MIB), '"2"'
    small = dataclasses.replace(settings, model_cache_mib=1)
    said = await refused(small, origin.url, hashlib.sha256(origin.content).hexdigest())
    assert "do not fit into the model cache" in said  # nobody may evict what they hold


async def test_what_is_served_now_is_not_read_again(settings: Settings, origin: Origin) -> None:
    local = await fetcher(settings).local(config(origin.url))
    damage(settings, "four bytes changed")
    assert await fetcher(settings, local).local(config(origin.url)) == local
    assert len(origin.asked) == 1


def many(count: int) -> dict[str, bytes]:
    """Return files of 400 KiB by digest."""
    files = [random.Random(number).randbytes(400 * 1024) for number in range(count)]
    return {hashlib.sha256(content).hexdigest(): content for content in files}


async def test_the_longest_unused_goes_and_what_is_served_stays(settings: Settings, origin: Origin) -> None:
    """There is room for two of three files; one server serves the first, another changes what it serves."""
    settings = dataclasses.replace(settings, model_cache_mib=1)
    files = many(3)
    first, second, third = files

    async def have(server: Fetcher, digest: str) -> ServingConfig:
        origin.content, origin.etag = files[digest], f'"{digest}"'
        return await server.local(config(origin.url, sha256=digest))

    def there() -> set[str]:
        return {one.name for one in Path(str(settings.model_cache)).iterdir() if one.name in files}

    one, other = fetcher(settings), fetcher(settings)
    await have(one, first)
    await have(other, second)
    await have(other, third)
    assert there() == {first, third}
    serving = await have(fetcher(settings), third)
    third_server = fetcher(settings, serving)
    await third_server.local(serving)
    with pytest.raises(
        FetchError, match="do not fit into the model cache of 1 MiB, of which 1 MiB are in use"
    ):
        await have(third_server, second)
    assert there() == {first, third}


@pytest.mark.parametrize("chunked", [False, True], ids=["known before", "found out"])
async def test_a_file_that_can_never_fit_displaces_no_other(
    settings: Settings, origin: Origin, chunked: bool
) -> None:
    settings = dataclasses.replace(settings, model_cache_mib=1)
    assert await fetched(settings, origin.url) == CONTENT
    origin.content, origin.chunked = bytes(3 * MIB), chunked
    wanted = hashlib.sha256(origin.content).hexdigest()
    # Of an unknown size it is either too much beside what is kept, or by itself: as its pieces come.
    assert "the model cache of 1 MiB" in await refused(settings, origin.url, wanted)
    assert left(settings) == {"", ".lock", f"{wanted}.lock"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 128 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k", "none", str(folder)], capture_output=True, check=False
    )
    if made.returncode != 0:
        pytest.skip("this user may not mount a disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("chunked", [False, True], ids=["known before", "found out"])
async def test_a_full_disk_is_named_and_left_free(
    settings: Settings, origin: Origin, small_disk: Path, chunked: bool
) -> None:
    origin.chunked = chunked
    told = await refused(dataclasses.replace(settings, model_cache=str(small_disk)), origin.url)
    assert f"the disk of the model cache {small_disk} is full" in told
    assert left(dataclasses.replace(settings, model_cache=str(small_disk))) == {".lock"}


async def test_a_folder_that_cannot_be_written_is_named(settings: Settings, origin: Origin) -> None:
    told = await refused(dataclasses.replace(settings, model_cache="/proc/none"), origin.url)
    assert "/proc/none cannot be used" in told
