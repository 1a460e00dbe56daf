"""A folder of files named by their sha256, of bounded size. Servers may share it.

Of a digest D there are `D`, the file; `D.part` and `D.state`, a transfer that is not done; and `D.lock`. Who
fetches D holds its lock alone, who serves it shares it, and the kernel lets go when a process ends. What
nobody holds may be evicted. When it was used last is the time of the lock file: that of the file itself says
whether a model has changed.
"""

import asyncio
import errno
import fcntl
import hashlib
import logging
import os
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mcp2026.runtime.fetching.errors import FetchError, cache_errors
from mcp2026.runtime.fetching.steps import to_its_end

log = logging.getLogger(__name__)

_DIGEST = re.compile(r"([0-9a-f]{64})(\.part|\.state|\.lock)?")
_MIB = 1024 * 1024
_WAIT_SECONDS = 0.2
_HASHED = 16 * _MIB
"""So much is read at a time: a fetch that is given up ends after it."""


@dataclass(slots=True)
class _Entry:
    bytes: int = 0
    used: float = 0.0


class ModelCache:
    """What is in the folder, and what this process holds of it."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        """Keep at most so many bytes in `folder`, which is made when it is needed."""
        self.folder = folder
        self._limit = limit_bytes
        self._held: dict[str, int] = {}

    def file(self, digest: str) -> Path:
        """Return where the file with this digest lies, if it is there."""
        return self.folder / digest

    def part(self, digest: str) -> Path:
        """Return where a file is put together; only who holds the lock alone may touch it."""
        return self.folder / f"{digest}.part"

    def state(self, digest: str) -> Path:
        """Return where it is noted what the unfinished file is of."""
        return self.folder / f"{digest}.state"

    def holds(self, digest: str) -> bool:
        """Share the file if it is there, and return whether it is."""
        if digest in self._held and self.file(digest).exists() and self._is_lock(digest, self._held[digest]):
            return True
        self._let_go(digest)
        if not self.file(digest).exists():
            return False
        descriptor = self._locked(digest, fcntl.LOCK_SH)
        if descriptor is None or not self.file(digest).exists():
            _close(descriptor)
            return False
        self._keep(digest, descriptor)
        return True

    async def claim(self, digest: str, shown: str) -> "Claim | None":
        """Wait until nobody else fetches the file; None: it is there now, and is held.

        Raises:
            FetchError: the folder cannot be used.

        """
        told = False
        while True:
            with cache_errors(shown, self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
                if self.holds(digest):
                    return None
                descriptor = self._locked(digest, fcntl.LOCK_EX)
            if descriptor is not None:
                return Claim(self, digest, descriptor)
            if not told:
                log.info("%s is being fetched by another server, whose file will be used", shown)
                told = True
            await asyncio.sleep(_WAIT_SECONDS)

    async def whole(self, digest: str, shown: str) -> bool:
        """Read the file, which is held, and return whether it is what its name says; if not, remove it.

        Raises:
            FetchError: it cannot be read, or not be removed.

        """
        with cache_errors(shown, self.folder):
            try:
                descriptor = os.open(self.file(digest), os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return False
            try:
                found = await _sha256(descriptor)
                if found == digest:
                    return True
                if self._remove_damaged(digest, descriptor):
                    log.warning(
                        "%s in the model cache is damaged (%s); it is removed, and fetched anew",
                        self.file(digest),
                        "the disk cannot read it" if found is None else f"its sha256 is {found}",
                    )
            finally:
                os.close(descriptor)
        return False

    def _remove_damaged(self, digest: str, descriptor: int) -> bool:
        """Remove the file that is open, with its lock; False: another has done so.

        Others hold the lock as long as they serve, and would have everyone wait. It goes first: whoever is
        killed between the two leaves a damaged file, which the next one finds.
        """
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # of those who found it damaged, one removes it
        try:
            if not os.path.samestat(os.fstat(descriptor), self.file(digest).stat()):
                return False
        except FileNotFoundError:
            return False
        (self.folder / f"{digest}.lock").unlink(missing_ok=True)
        self.file(digest).unlink()
        return True

    def let_go(self, needed: Collection[str]) -> None:
        """Hold no longer what is not among the digests that are `needed`."""
        for digest in self._held.keys() - set(needed):
            self._let_go(digest)

    def make_room(self, digest: str, more: int, shown: str) -> None:
        """See that `digest` can grow by `more` bytes; evict what nobody holds, longest unused first.

        Raises:
            FetchError: there is no room, in the cache or on the disk.

        """
        with cache_errors(shown, self.folder):
            entries = self._entries()
            if entries.get(digest, _Entry()).bytes + more > self._limit:  # to evict others would not help
                raise FetchError(
                    shown,
                    f"it is larger than the model cache of {_mib(self._limit)}",
                    "Correct the file, or raise --model-cache-mib",
                )
            total = sum(entry.bytes for entry in entries.values())
            by_use = sorted((entry.used, name) for name, entry in entries.items() if name != digest)
            while total + more > self._limit or self._free() < more:
                if not by_use:
                    break
                name = by_use.pop(0)[1]
                if self._evict(name):
                    total -= entries[name].bytes
            free = self._free()
        if total + more > self._limit:
            raise FetchError(
                shown,
                f"{_mib(more)} more do not fit into the model cache of {_mib(self._limit)}, of which "
                f"{_mib(total)} are in use",
                "Have fewer versions served, or raise --model-cache-mib",
            )
        if free < more:
            raise FetchError(
                shown,
                f"the disk of the model cache {self.folder} is full: {_mib(more)} more are needed, "
                f"{_mib(free)} are free",
                "Give it more room, or have fewer versions served",
            )

    def _free(self) -> int:
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    def _entries(self) -> dict[str, _Entry]:
        entries: dict[str, _Entry] = {}
        for name, size, modified in self._files():
            entry = entries.setdefault(name[:64], _Entry())
            entry.bytes += size
            if name.endswith(".lock"):
                entry.used = modified
        return entries

    def _files(self) -> Iterator[tuple[str, int, float]]:
        with os.scandir(self.folder) as found:
            for one in found:
                if _DIGEST.fullmatch(one.name):
                    with suppress(FileNotFoundError):
                        status = one.stat()
                        yield one.name, status.st_size, status.st_mtime

    def _evict(self, digest: str) -> bool:
        descriptor = None if digest in self._held else self._locked(digest, fcntl.LOCK_EX)
        if descriptor is None:
            return False
        try:
            for name in (digest, f"{digest}.part", f"{digest}.state", f"{digest}.lock"):
                (self.folder / name).unlink(missing_ok=True)
        finally:
            os.close(descriptor)
        log.info("the model cache let go of %s, which nobody uses", digest)
        return True

    def _locked(self, digest: str, kind: int) -> int | None:
        """Return the lock file's descriptor, None if others hold it in a way that rules out `kind`."""
        path = self.folder / f"{digest}.lock"
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return None
            if self._is_lock(digest, descriptor):
                return descriptor
            os.close(descriptor)  # it was evicted between the two

    def _is_lock(self, digest: str, descriptor: int) -> bool:
        """Return whether the lock that is open is the one that others would meet."""
        try:
            return os.path.samestat(os.fstat(descriptor), (self.folder / f"{digest}.lock").stat())
        except FileNotFoundError:
            return False

    def _keep(self, digest: str, descriptor: int) -> None:
        os.utime(descriptor)
        self._held[digest] = descriptor

    def _let_go(self, digest: str) -> None:
        descriptor = self._held.pop(digest, None)
        if descriptor is not None:
            with suppress(OSError):
                os.utime(descriptor)
        _close(descriptor)


class Claim:
    """The right to fetch one file, which nobody else has."""

    def __init__(self, cache: ModelCache, digest: str, descriptor: int) -> None:
        self._cache = cache
        self._digest = digest
        self._descriptor: int | None = descriptor

    async def publish(self) -> None:
        """Give the finished file its name. When this returns, it outlasts a loss of power."""
        await to_its_end(self._publish)

    def _publish(self) -> None:
        cache, digest = self._cache, self._digest
        with cache.part(digest).open("rb") as file:
            os.fsync(file.fileno())
        cache.part(digest).rename(cache.file(digest))
        folder = os.open(cache.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        cache.state(digest).unlink(missing_ok=True)

    def release(self) -> None:
        """Let others have the file, or fetch it."""
        _close(self._descriptor)
        self._descriptor = None


def _hash_more(descriptor: int, digest: "hashlib._Hash") -> int:
    block = os.read(descriptor, _HASHED)
    digest.update(block)
    return len(block)


async def _sha256(descriptor: int) -> str | None:
    """Return the digest of an open file in lower-case hex; None: its disk cannot read it."""
    digest = hashlib.sha256()
    try:
        while await to_its_end(_hash_more, descriptor, digest):
            pass
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return None
    return digest.hexdigest()


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)


def _mib(count: int) -> str:
    return f"{-(-count // _MIB)} MiB"
