"""What compressed bytes stand for is read in full, or refused and counted no more."""

import gzip
import random
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from mcp2026.runtime.protocol.inflating import (
    CrowdedError,
    InflateError,
    Room,
    TooLargeError,
    inflate,
)

MIB = 1 << 20
PACK: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}
SIZES = (0, 1, 1_000, MIB - 1, MIB, MIB + 1, 3 * MIB + 7)


@pytest.mark.parametrize("encoding", PACK)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dense", [False, True], ids=["zeros", "noise"])
def test_all_of_it_comes_out_and_is_counted(encoding: str, size: int, dense: bool) -> None:
    content = random.Random(size).randbytes(size) if dense else bytes(size)
    packed = PACK[encoding](content)
    room = Room(size)
    assert inflate(packed, encoding, size, room) == content
    assert room.held == size
    room.give(size)
    for wrong in (packed[:-1], packed[: len(packed) // 2], packed + b"x", b"x" + packed, b""):
        with pytest.raises(InflateError):
            inflate(wrong, encoding, size, room)
    if size:
        with pytest.raises(TooLargeError):
            inflate(packed, encoding, size - 1, room)
        with pytest.raises(CrowdedError):
            inflate(packed, encoding, size, Room(size - 1))
    assert room.held == 0


def test_threads_never_hold_more_than_there_is_room_for() -> None:
    packed = gzip.compress(bytes(4 * MIB))
    room = Room(9 * MIB)
    held: list[int] = []

    def read(_: int) -> bool:
        try:
            content = inflate(packed, "gzip", 4 * MIB, room)
        except CrowdedError:
            return False
        held.append(room.held)
        room.give(len(content))
        return True

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(read, range(64)))
    assert any(outcomes)
    assert max(held) <= room.most
    assert room.held == 0
    assert inflate(packed, "gzip", 4 * MIB, room) == bytes(4 * MIB)
