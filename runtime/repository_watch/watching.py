"""Serve the repository as it is: what comes is loaded, what changes is taken over, what goes is unloaded.

Each change is a round over all workers, so it is made in all or in none. A model that cannot be served as it
is now stays as it was, and is tried again when its files change.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec
from watchfiles import awatch

from mcp2026.api.errors import SettingsError
from mcp2026.api.serving import ServingConfig
from mcp2026.runtime.changes import Change, UnloadModel
from mcp2026.runtime.errors import ErrorCode, ModelLoadError, RequestError
from mcp2026.runtime.model.sources import repository_model
from mcp2026.runtime.process.control import NoteRefusal, Problem
from mcp2026.runtime.repository_watch.folders import look_at
from mcp2026.runtime.repository_watch.settling import Settling
from mcp2026.runtime.settings import Settings

log = logging.getLogger(__name__)

_EVENTS_MS = 50
"""Events within this time are one."""
_PAUSE_SECONDS = 0.1
"""After an event: a file that is written makes many, and each look costs a stat of every file."""
MOST_REASON = 1_000

Models = Mapping[str, ServingConfig]
NextConfig = Callable[[Models], Awaitable[ServingConfig]]


class Rounds(Protocol):
    """What makes a change in every worker."""

    async def serve_next(self, next_config: NextConfig, *, may_differ: bool = False) -> ServingConfig:
        """Serve what `next_config` returns, in every worker or in none; raises RequestError."""

    async def make(self, change: Change) -> Problem | None:
        """Make `change` in every worker; returns why it was made in none."""

    async def note(self, refusal: NoteRefusal) -> None:
        """Show in every worker's index what cannot be served."""


class RepositoryWatch:
    """Follows one repository, from before the server is ready until it ends."""

    def __init__(
        self,
        repository: Path,
        rounds: Rounds,
        read: Callable[[str], ServingConfig],
        *,
        poll_seconds: float,
        quiet_seconds: float,
    ) -> None:
        """Follow `repository`.

        Args:
            repository: the folder of models' folders.
            rounds: make the changes.
            read: returns what a model asks for now. Blocks; raises ModelLoadError or SettingsError.
            poll_seconds: longest from one look to the next.
            quiet_seconds: how long a folder must not have changed before it is taken.

        """
        self._repository = repository
        self._rounds = rounds
        self._read = read
        self._poll_seconds = poll_seconds
        self._quiet_seconds = quiet_seconds
        self._settling = Settling(quiet_seconds)
        self._served: dict[str, tuple[str, ...]] = {}
        """Versions by model."""
        self._event = asyncio.Event()
        self._unreadable = ""

    async def load_all(self) -> None:
        """Load what is there and can be served.

        Raises:
            ModelLoadError: the repository cannot be read.

        """
        found = await asyncio.to_thread(look_at, self._repository, ())
        for name in self._settling.take_all(found, time.monotonic()):
            await self._load(name)

    async def run(self) -> None:
        """Follow what changes, until cancelled."""
        events = asyncio.create_task(self._listen())
        heard = False
        try:
            while True:
                await self._look()
                waits = [self._poll_seconds, self._settling.next_look(time.monotonic())]
                if heard:  # a file in a folder that is new may have come before that folder was listened to
                    waits.append(self._quiet_seconds)
                heard = await self._heard(min(wait for wait in waits if wait is not None))
        finally:
            events.cancel()

    async def _heard(self, seconds: float) -> bool:
        """Wait for an event, but for so long at most, and return whether there was one."""
        try:
            await asyncio.wait_for(self._event.wait(), seconds)
        except TimeoutError:
            return False
        await asyncio.sleep(_PAUSE_SECONDS)
        self._event.clear()
        return True

    async def _look(self) -> None:
        try:
            found = await asyncio.to_thread(look_at, self._repository, tuple(self._served))
        except ModelLoadError as error:
            if str(error) != self._unreadable:
                log.warning("the repository cannot be looked at, what is served stays: %s", error)
            self._unreadable = str(error)
            return
        self._unreadable = ""
        for name in self._settling.look(found, time.monotonic()):
            if self._settling.take(name) is None:
                await self._unload(name)
            else:
                await self._load(name)

    async def _listen(self) -> None:
        """Set the event whenever something moves; where nothing can be heard, the looks have to do."""
        while True:
            begun = False
            try:
                async for changes in awatch(
                    self._repository,
                    watch_filter=None,
                    debounce=_EVENTS_MS,
                    step=_EVENTS_MS,
                    yield_on_timeout=True,
                ):
                    if changes or not begun:  # what came before the beginning made no event
                        self._event.set()
                    begun = True
            except (OSError, RuntimeError) as error:
                log.warning(
                    "%s cannot be listened to, it is looked at each %g s: %s",
                    self._repository,
                    self._poll_seconds,
                    error,
                )
            await asyncio.sleep(self._poll_seconds)

    async def _load(self, name: str) -> None:
        wanted: tuple[str, ...] = ()

        async def next_config(models: Models) -> ServingConfig:
            nonlocal wanted
            config = await asyncio.to_thread(self._read, name)
            wanted = _version_ids(config)
            before = models.get(name)
            return config if before is None else msgspec.structs.replace(config, revision=before.revision + 1)

        try:
            # Who changes a repository may change what a model takes, as in Triton.
            config = await self._rounds.serve_next(next_config, may_differ=True)
        except ModelLoadError as error:
            await self._refuse(name, wanted or self._version_in(name, error.path), str(error))
        except SettingsError as error:
            await self._refuse(name, wanted, str(error))
        except OSError as error:  # a file went while it was looked for
            await self._refuse(name, wanted, f"{error.filename}: {error.strerror}")
        except RequestError as error:
            await self._refuse(name, wanted, error.message)
        except Exception as error:  # a fault of ours, met with one folder: the others are served on
            log.exception("model %s met an error that nobody foresaw", name)
            await self._refuse(name, wanted, f"{type(error).__name__}: {error}")
        else:
            self._served[name] = _version_ids(config)
            log.info("loaded %s as the repository has it: version(s) %s", name, ", ".join(self._served[name]))

    async def _refuse(self, name: str, wanted: tuple[str, ...], reason: str) -> None:
        served = self._served.get(name, ())
        stays = f"version(s) {', '.join(served)} stay as they are" if served else "nothing of it is served"
        reason = " ".join(reason.split())[:MOST_REASON]
        log.error("model %s cannot be served as the repository has it, %s: %s", name, stays, reason)
        missing = tuple(one for one in wanted if one not in served)
        await self._rounds.note(NoteRefusal(name, missing, reason))

    def _version_in(self, name: str, path: str) -> tuple[str, ...]:
        """Return the version in whose folder `path` lies; none if it lies in no version's folder."""
        folder = self._repository / name
        if not Path(path).is_relative_to(folder):
            return ()
        first = Path(path).relative_to(folder).parts[:1]
        return first if first and first[0].isdigit() else ()

    async def _unload(self, name: str) -> None:
        self._served.pop(name, None)
        problem = await self._rounds.make(UnloadModel(name))
        if problem is None:
            log.info("unloaded %s, which is gone from the repository", name)
        elif problem.code is ErrorCode.NOT_FOUND:  # nothing of it was served
            await self._rounds.note(NoteRefusal(name, (), ""))
        else:
            log.error("model %s cannot be unloaded: %s", name, problem.message)


def watch_of(settings: Settings, rounds: Rounds) -> RepositoryWatch:
    """Return what follows the repository of `settings`, which have one."""
    assert settings.model_repository is not None
    return RepositoryWatch(
        Path(settings.model_repository),
        rounds,
        lambda name: repository_model(settings, name),
        poll_seconds=settings.repository_poll_seconds,
        quiet_seconds=settings.repository_quiet_seconds,
    )


def _version_ids(config: ServingConfig) -> tuple[str, ...]:
    return tuple(version.version_id for version in config.versions)
