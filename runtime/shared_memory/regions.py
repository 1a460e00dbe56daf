"""The regions that clients have registered, by name.

A region's bytes are read and written through its file, never through a mapping: its owner may shrink it at
any moment, and touching a mapped page that is gone ends the process. A read that comes up short is an error
of one request. Each region holds one descriptor, which is closed when nobody uses the region any more.
"""

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mcp2026.runtime.errors import ErrorCode, RequestError, invalid
from mcp2026.runtime.shared_memory.keys import check_range, file_name

SHM_FOLDER = Path("/dev/shm")
MAX_REGIONS = 512
"""Each costs a descriptor, of which a process has a limited number."""

_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_MAX_NAME = 255
_VECTORS = 512
"""Buffers per system call; Linux takes 1024."""

Buffer = bytes | bytearray | memoryview


class _Descriptor:
    """Closes with its last reference: a request may still use a region that was unregistered."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


@dataclass(frozen=True, slots=True)
class Region:
    """One registered region: `byte_size` bytes from `offset` on of the shared memory `key`."""

    name: str
    key: str
    offset: int
    byte_size: int
    _descriptor: _Descriptor

    def read(self, offset: int, byte_size: int) -> Buffer:
        """Return a copy of `byte_size` bytes from `offset` of the region on.

        Raises:
            RequestError: they end past the region, or its owner has made it smaller.

        """
        self._check(offset, byte_size)
        try:
            content = os.pread(self._descriptor.number, byte_size, self.offset + offset)
            if len(content) == byte_size:
                return content
            return self._rest(content, offset, byte_size)
        except OSError as error:
            raise self._lost(f"cannot be read: {error.strerror}") from error

    def write(self, offset: int, byte_size: int, parts: Sequence[Buffer]) -> None:
        """Write `parts` one after another from `offset` of the region on, `byte_size` bytes at most.

        Raises:
            RequestError: they need more, or the region's owner has made it smaller.

        """
        self._check(offset, byte_size)
        needed = len(parts[0]) if len(parts) == 1 else sum([len(part) for part in parts])
        if needed > byte_size:
            raise invalid(
                "shared_memory_byte_size",
                f"{byte_size} bytes are too few in region {self.name!r}",
                f"at least {needed} bytes",
            )
        start = self.offset + offset
        descriptor = self._descriptor.number
        try:
            # A write past the end would make the file larger, which is not ours to do. Seeking tells where
            # the end is in a third of fstat's time; the position of this descriptor means nothing.
            if os.lseek(descriptor, 0, os.SEEK_END) < start + needed:
                raise self._lost("has become smaller")
            if len(parts) == 1 and os.pwrite(descriptor, parts[0], start) == needed:
                return
            done = 0
            for first in range(0, len(parts), _VECTORS):
                done += _write_all(descriptor, list(parts[first : first + _VECTORS]), start + done)
        except OSError as error:
            raise self._lost(f"cannot be written: {error.strerror}") from error

    def _check(self, offset: int, byte_size: int) -> None:
        if not 0 <= offset <= offset + byte_size <= self.byte_size:
            check_range(f"region {self.name!r}", offset, byte_size, self.byte_size)

    def _rest(self, start: bytes, offset: int, byte_size: int) -> memoryview:
        """Return what `read` does, of which one system call gave only the `start`."""
        content = np.empty(byte_size, np.uint8).data
        done = len(start)
        content[:done] = start
        while done < byte_size:
            count = os.preadv(self._descriptor.number, [content[done:]], self.offset + offset + done)
            if count == 0:
                raise self._lost(f"ends {byte_size - done} bytes too early: it has become smaller")
            done += count
        return content

    def _lost(self, problem: str) -> RequestError:
        return invalid("shared_memory_region", f"region {self.name!r} {problem}", "a region as registered")


class SharedMemoryRegions:
    """All regions of one process. Called from the event loop alone."""

    def __init__(self, folder: Path = SHM_FOLDER, limit: int = MAX_REGIONS) -> None:
        self._folder = folder
        self._limit = limit
        self._regions: dict[str, Region] = {}

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Make `byte_size` bytes from `offset` on of the shared memory `key` known as `name`.

        Raises:
            RequestError: the name is taken, the key is not allowed, there is no such memory, or it is
                smaller; the message says how large it is.

        """
        if not 0 < len(name) <= _MAX_NAME:
            raise invalid("name", f"has {len(name)} characters", f"1 to {_MAX_NAME} characters")
        if name in self._regions:
            raise RequestError(
                ErrorCode.ALREADY_EXISTS, f"a region {name[:64]!r} is registered already", "name"
            )
        if len(self._regions) >= self._limit:
            raise invalid(
                "name", "too many regions are registered", f"at most {self._limit}; unregister some"
            )
        path = self._folder / file_name(key)
        descriptor = _open(path, key)
        size = os.fstat(descriptor.number)
        if not stat.S_ISREG(size.st_mode):
            raise invalid("key", f"{key[:64]!r} is no shared memory", "a region made by shm_open")
        check_range(f"the shared memory {key[:64]!r}", offset, byte_size, size.st_size, least=1)
        self._regions[name] = Region(name, key, offset, byte_size, descriptor)

    def unregister(self, name: str | None) -> None:
        """Forget region `name`, or all if None. A region that is not known is no error: it is gone."""
        if name is None:
            self._regions.clear()
        else:
            self._regions.pop(name, None)

    def get(self, name: str) -> Region:
        """Return a region, which can be used for as long as it is held, whatever is unregistered.

        Raises:
            RequestError: there is none of this name.

        """
        region = self._regions.get(name)
        if region is None:
            raise RequestError(
                ErrorCode.NOT_FOUND,
                f"no shared memory region {name[:64]!r} is registered",
                "shared_memory_region",
            )
        return region

    def all(self) -> tuple[Region, ...]:
        """Return the registered regions."""
        return tuple(self._regions.values())


def _open(path: Path, key: str) -> _Descriptor:
    try:
        return _Descriptor(os.open(path, _FLAGS))
    except OSError as error:
        raise invalid(
            "key",
            f"cannot open the shared memory {key[:64]!r}: {error.strerror}",
            "a region on this machine that this server may read and write",
        ) from error


def _write_all(descriptor: int, parts: list[Buffer], start: int) -> int:
    written = 0
    while parts:
        count = os.pwritev(descriptor, parts, start + written)
        written += count
        while parts and count >= len(parts[0]):
            count -= len(parts.pop(0))
        if parts and count:
            parts[0] = memoryview(parts[0])[count:]
    return written
