"""One file from its source into a file of this machine: gone on with where it broke, and checked at its end.

What can be decided without the network is decided here; `web` and `s3` speak to servers.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mcp2026.runtime.fetching.errors import BrokenTransferError, ChangedError, FetchError, cache_errors
from mcp2026.runtime.fetching.steps import to_its_end

log = logging.getLogger(__name__)

ATTEMPTS = 5
"""That bring not one byte, before it is given up."""
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
PROGRESS_SECONDS = 10.0
_HASHED = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a transfer may take, in s."""

    stall_seconds: float
    """Without a byte."""
    total_seconds: float


@dataclass(slots=True)
class Answer:
    """What a source gives from some byte on."""

    offset: int
    """Of its first byte in the file."""
    size: int | None
    """Of the whole file in bytes, if the source says so."""
    tag: str
    """Names this state of the file, empty if nothing surely does."""
    blocks: AsyncIterator[bytes]
    """Raises BrokenTransferError where it ends early."""
    encoding: str = ""
    """How the source has packed the file on its own account, such as gzip."""


class Source(Protocol):
    """Where a file lies."""

    @property
    def shown(self) -> str:
        """The place in messages, without what may be secret in it."""

    def open(self, offset: int, tag: str) -> AbstractAsyncContextManager[Answer]:
        """Ask for the file from `offset` on, if its state is still `tag`; else for all of it.

        Raises:
            BrokenTransferError: it may be given later.
            ChangedError: its state is another, and it has to be asked for anew.
            FetchError: it is not given.

        """


class Transfer:
    """Brings one file, attempt after attempt."""

    def __init__(
        self,
        source: Source,
        part: Path,
        state: Path,
        limits: Limits,
        make_room: Callable[[int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Fetch from `source` into `part`; `state` keeps the tag of what has arrived.

        `make_room` is told how many bytes are to come, and raises FetchError if there is no room.
        """
        self._source = source
        self._part = part
        self._state = state
        self._limits = limits
        self._make_room = make_room
        self._clock = clock
        self._size = 0
        self._expected: int | None = None
        self._tag = ""
        self._encoding = ""
        self._digest = hashlib.sha256()
        self._told = clock()

    async def run(self, sha256: str) -> None:
        """Bring the file, so that its part is whole and has this digest.

        Raises:
            FetchError: it cannot be had, or is another one.

        """
        shown = self._source.shown
        try:
            async with asyncio.timeout(self._limits.total_seconds):
                await self._resume()
                resumed = self._size > 0
                if not resumed or self._digest.hexdigest() != sha256:
                    await self._bring()
                if resumed and self._digest.hexdigest() != sha256:  # what was here is of another
                    log.warning(
                        "%s: what had arrived before does not belong to it; it is fetched anew", shown
                    )
                    self._forget()
                    await self._bring()
        except TimeoutError as error:
            raise FetchError(
                shown,
                f"it is not done after {self._limits.total_seconds:g} s: {self._arrived()}",
                "What has arrived is kept; raise --fetch-seconds if the network is slow",
            ) from error
        if (found := self._digest.hexdigest()) != sha256:
            await to_its_end(self._remove)
            raise FetchError(
                shown,
                f"its sha256 is {found} ({self._size} bytes), but {sha256} is asked for",
                f"The server sends it packed ({self._encoding}): have it send the file as it is"
                if self._encoding
                else "The file was cut short, swapped or replaced: correct it, or the digest",
            )

    async def _bring(self) -> None:
        failures = 0
        while True:
            before = self._size
            try:
                await self._attempt()
            except ChangedError:
                log.warning("%s has changed; it is fetched anew", self._source.shown)
                self._forget()
                failures += 1
                problem = "it changes again and again"
            except BrokenTransferError as error:
                failures = 1 if self._size > before else failures + 1
                problem = str(error)
            else:
                return
            if failures >= ATTEMPTS:
                raise FetchError(
                    self._source.shown,
                    f"{problem}; {self._arrived()}",
                    f"Tried {ATTEMPTS} times in a row: check the server and the network",
                )
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (failures - 1))
            log.warning("%s: %s; again in %.1f s", self._source.shown, problem, pause)
            await asyncio.sleep(pause)

    async def _attempt(self) -> None:
        async with self._source.open(self._size, self._tag) as answer:
            if answer.offset != self._size:
                self._forget()
            if answer.offset != self._size:
                raise BrokenTransferError(f"it begins at byte {answer.offset}, where 0 was asked for")
            await to_its_end(self._begin, answer)
            async for block in answer.blocks:
                if self._expected is None:
                    await to_its_end(self._have_room, len(block))
                await to_its_end(self._take, block)
                self._tell()
        if self._expected is not None and self._size != self._expected:
            raise BrokenTransferError(f"{self._size} of {self._expected} bytes arrived")

    def _begin(self, answer: Answer) -> None:
        self._expected, self._tag, self._encoding = answer.size, _usable(answer.tag), answer.encoding
        if answer.size is not None:
            self._have_room(answer.size - self._size)
        with cache_errors(self._source.shown, self._part.parent):
            if not self._size:
                self._part.write_bytes(b"")
            self._state.write_text(self._tag)

    def _have_room(self, more: int) -> None:
        try:
            self._make_room(more)
        except FetchError:
            self._remove()  # others may need what it takes
            raise

    def _take(self, block: bytes) -> None:
        try:
            with (
                cache_errors(self._source.shown, self._part.parent, self._size),
                self._part.open("ab") as file,
            ):
                file.write(block)
        except FetchError:
            self._remove()
            raise
        self._digest.update(block)
        self._size += len(block)

    async def _resume(self) -> None:
        """Go on with what an earlier transfer left: perhaps from another address, but of the same digest."""
        if not self._state.exists():
            return
        with cache_errors(self._source.shown, self._part.parent):
            self._tag = _usable(self._state.read_text(errors="replace"))
            if self._tag:
                await asyncio.to_thread(self._hash_part)
        if self._size:
            log.info("%s: %d bytes are here already", self._source.shown, self._size)

    def _hash_part(self) -> None:
        try:
            with self._part.open("rb", buffering=0) as file:
                while block := file.read(_HASHED):
                    self._digest.update(block)
                    self._size += len(block)
        except FileNotFoundError:
            return

    def _forget(self) -> None:
        self._size, self._tag, self._expected, self._digest = 0, "", None, hashlib.sha256()

    def _remove(self) -> None:
        for path in (self._part, self._state):
            path.unlink(missing_ok=True)

    def _arrived(self) -> str:
        return f"{self._size} of {self._expected or 'an unknown number of'} bytes arrived"

    def _tell(self) -> None:
        now = self._clock()
        if now - self._told >= PROGRESS_SECONDS:
            self._told = now
            log.info("%s: %s", self._source.shown, self._arrived())


def _usable(tag: str) -> str:
    """Return a tag that can be written down and sent again; others do not count."""
    return tag if tag.isascii() and tag.isprintable() else ""
