"""Whatever happens in a folder, or to it, wakes who waits; the file system tells."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from mcp2026.api.folder_watch import FolderWatch

LONG_S, SHORT_S = 20.0, 0.02


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    made.mkdir()
    (made / "old").write_text("old")
    return made


@pytest.fixture
async def watch(folder: Path) -> AsyncIterator[FolderWatch]:
    watch = FolderWatch(folder)
    assert await watch.wait(LONG_S, LONG_S), "what happened before the watch began is to be looked for"
    assert not await watch.wait(SHORT_S, LONG_S), "nothing happens"
    yield watch
    watch.close()


def move_in(folder: Path) -> None:
    (folder.parent / "draft").write_text("new")
    (folder.parent / "draft").replace(folder / "old")


def replace_folder(folder: Path) -> None:
    (folder / "old").unlink()
    folder.rmdir()
    folder.mkdir()


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda folder: (folder / "new").touch(), id="a file comes"),
        pytest.param(lambda folder: (folder / "old").unlink(), id="a file goes"),
        pytest.param(lambda folder: (folder / "old").write_text("new"), id="a file is written"),
        pytest.param(move_in, id="a file is replaced by another one"),
        pytest.param(lambda folder: (folder / "link").symlink_to("old"), id="a link comes"),
        pytest.param(lambda folder: folder.rename(folder.parent / "away"), id="the folder is moved away"),
        pytest.param(replace_folder, id="the folder is replaced"),
    ],
)
async def test_what_happens_wakes(act: Callable[[Path], object], folder: Path, watch: FolderWatch) -> None:
    waiting = asyncio.create_task(watch.wait(LONG_S, LONG_S))
    await asyncio.sleep(0)
    act(folder)
    assert await asyncio.wait_for(waiting, LONG_S / 2)


async def test_a_folder_in_the_place_of_another_is_watched_even_in_the_same_inode(
    folder: Path, watch: FolderWatch
) -> None:
    replace_folder(folder)
    while await watch.wait(SHORT_S, LONG_S):
        pass
    waiting = asyncio.create_task(watch.wait(LONG_S, LONG_S))
    await asyncio.sleep(0)
    (folder / "new").touch()
    assert await asyncio.wait_for(waiting, LONG_S / 2)


async def test_a_folder_that_is_not_there_is_looked_for_and_then_watched(tmp_path: Path) -> None:
    watch = FolderWatch(tmp_path / "later")
    assert not await watch.wait(LONG_S, SHORT_S)
    (tmp_path / "later").mkdir()
    assert await watch.wait(LONG_S, SHORT_S), "now it is watched"
    assert not await watch.wait(SHORT_S, LONG_S)
    watch.close()


async def test_others_can_end_the_wait(watch: FolderWatch) -> None:
    waiting = asyncio.create_task(watch.wait(LONG_S, LONG_S))
    await asyncio.sleep(0)
    watch.wake()
    assert await asyncio.wait_for(waiting, LONG_S / 2)
    watch.wake()
    assert await watch.wait(LONG_S, LONG_S), "the next one, if none is under way"


async def test_a_wait_that_is_cancelled_just_as_something_happens_is_cancelled(watch: FolderWatch) -> None:
    waiting = asyncio.create_task(watch.wait(LONG_S, LONG_S))
    await asyncio.sleep(SHORT_S)
    watch.wake()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
