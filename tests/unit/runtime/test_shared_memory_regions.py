"""Clients' shared memory: only theirs, only as large as it is, and never fatal."""

import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.shared_memory.keys import check_range, file_name
from mcp2026.runtime.shared_memory.regions import SHM_FOLDER, SharedMemoryRegions

SIZE = 8_192


@pytest.fixture
def memory() -> Iterator[SharedMemory]:
    region = SharedMemory(f"test-{uuid.uuid4().hex}", create=True, size=SIZE)
    yield region
    region.close()
    region.unlink()


@pytest.fixture
def regions(memory: SharedMemory) -> SharedMemoryRegions:
    regions = SharedMemoryRegions()
    regions.register("r", memory.name, 4, 1_000)
    return regions


def descriptors(memory: SharedMemory) -> int:
    """Return how many descriptors of this process lead to `memory`."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the search itself
            found += link.readlink() == SHM_FOLDER / memory.name
    return found


def refused(regions: SharedMemoryRegions, name: str, key: str, offset: int, byte_size: int) -> RequestError:
    with pytest.raises(RequestError) as refusal:
        regions.register(name, key, offset, byte_size)
    assert len(regions.all()) <= 1
    return refusal.value


def test_bytes_are_read_and_written_where_the_client_has_them(
    memory: SharedMemory, regions: SharedMemoryRegions
) -> None:
    memory.buf[4:12] = b"abcdefgh"
    region = regions.get("r")
    assert region.read(2, 3) == b"cde"
    region.write(10, 6, [b"xy", memoryview(b"z"), b""])
    assert bytes(memory.buf[14:17]) == b"xyz"
    many = [b"%d" % (number % 10) for number in range(900)]
    region.write(0, 1_000, many)
    assert bytes(memory.buf[4:904]) == b"".join(many)


def test_a_leading_slash_is_part_of_the_key_as_in_shm_open(memory: SharedMemory) -> None:
    regions = SharedMemoryRegions()
    regions.register("r", f"/{memory.name}", 0, SIZE)
    assert [region.byte_size for region in regions.all()] == [SIZE]


def test_a_name_is_registered_once(memory: SharedMemory, regions: SharedMemoryRegions) -> None:
    assert refused(regions, "r", memory.name, 0, 10).code is ErrorCode.ALREADY_EXISTS
    regions.unregister("r")
    regions.unregister("r")
    regions.register("r", memory.name, 0, 10)
    regions.unregister(None)
    assert regions.all() == ()
    with pytest.raises(RequestError) as refusal:
        regions.get("r")
    assert refusal.value.code is ErrorCode.NOT_FOUND


@pytest.mark.parametrize(
    ("offset", "byte_size"),
    [(0, SIZE + 1), (SIZE, 1), (1, SIZE), (-1, 5), (0, -1), (0, 0), (2**63, 1), (2**64, 1), (0, 2**63)],
)
def test_a_range_outside_the_memory_is_refused(memory: SharedMemory, offset: int, byte_size: int) -> None:
    error = refused(SharedMemoryRegions(), "r", memory.name, offset, byte_size)
    assert error.code is ErrorCode.INVALID_ARGUMENT
    assert error.allowed


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/",
        ".",
        "..",
        "../tmp/x",
        "a/b",
        "/a/b",
        "a\0b",
        "k" * 256,
        "\ud800",
        "mcp2026",
        "/mcp2026-metrics",
        "triton_python_backend_shm_region_1",
        "there-is-no-such-region",
    ],
)
def test_a_key_that_is_no_clients_region_is_refused(key: str) -> None:
    assert refused(SharedMemoryRegions(), "r", key, 0, 1).field == "key"


@given(st.text(max_size=300))
def test_no_key_leads_out_of_the_folder(key: str) -> None:
    try:
        name = file_name(key)
    except RequestError:
        return
    assert (SHM_FOLDER / name).parent == SHM_FOLDER


@given(st.integers(), st.integers(), st.integers(0, 100))
def test_a_range_that_is_accepted_lies_inside(offset: int, byte_size: int, available: int) -> None:
    try:
        check_range("it", offset, byte_size, available)
    except RequestError:
        return
    assert 0 <= offset <= offset + byte_size <= available


def test_links_pipes_and_folders_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    folder = tmp_path / "shm"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    regions = SharedMemoryRegions(folder)
    for key in ("link", "pipe", "folder"):
        assert refused(regions, "r", key, 0, 1).field == "key"


def test_an_unregistered_region_serves_who_holds_it(
    memory: SharedMemory, regions: SharedMemoryRegions
) -> None:
    memory.buf[4:6] = b"ab"
    held = regions.get("r")
    regions.unregister("r")
    assert held.read(0, 2) == b"ab"
    held.write(0, 2, [b"cd"])
    assert bytes(memory.buf[4:6]) == b"cd"


def test_descriptors_are_closed_when_nobody_holds_the_region(memory: SharedMemory) -> None:
    before = descriptors(memory)
    regions = SharedMemoryRegions()
    for number in range(5):
        regions.register(str(number), memory.name, 0, 10)
    for number in range(5):
        with pytest.raises(RequestError):
            regions.register("more", memory.name, 0, SIZE + 1 + number)
    assert descriptors(memory) == before + 5
    regions.unregister(None)
    assert descriptors(memory) == before


def test_there_is_a_limit(memory: SharedMemory) -> None:
    regions = SharedMemoryRegions(limit=2)
    regions.register("a", memory.name, 0, 10)
    regions.register("b", memory.name, 0, 10)
    with pytest.raises(RequestError) as refusal:
        regions.register("c", memory.name, 0, 10)
    assert refusal.value.allowed.startswith("at most 2")


def test_a_region_that_its_owner_shrinks_is_an_error_and_no_signal(
    memory: SharedMemory, regions: SharedMemoryRegions
) -> None:
    region = regions.get("r")
    os.truncate(SHM_FOLDER / memory.name, 100)
    with pytest.raises(RequestError) as refusal:
        region.read(0, 500)
    assert "smaller" in refusal.value.message
    with pytest.raises(RequestError):
        region.write(0, 500, [bytes(500)])
    assert (SHM_FOLDER / memory.name).stat().st_size == 100
    os.truncate(SHM_FOLDER / memory.name, SIZE)


def test_an_output_that_does_not_fit_says_how_much_it_needs(regions: SharedMemoryRegions) -> None:
    region = regions.get("r")
    for offset, byte_size in ((0, 1_001), (1_000, 1), (-1, 4), (0, -4)):
        with pytest.raises(RequestError):
            region.read(offset, byte_size)
        with pytest.raises(RequestError):
            region.write(offset, byte_size, [])
    with pytest.raises(RequestError) as refusal:
        region.write(0, 10, [bytes(8), bytes(8)])
    assert refusal.value.allowed == "at least 16 bytes"
