"""Changes that all workers make, or none: prepared everywhere first, then committed everywhere.

The parent makes one change at a time. A worker that ends during a change has no vote: the one that replaces
it is started with what is served then. What changes while it starts it is told when it has loaded, and until
it has done that, too, no other change begins: it joins, however often clients change the models.

What no worker has loaded is never served: it may be what ends them. So a change waits for a worker to try it,
and one that workers did not survive is tried by one of them alone.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

import msgspec

from mcp2026.api.serving import ServingConfig
from mcp2026.runtime.changes import Change, LoadModel, UnloadModel
from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.process.control import (
    Commit,
    Committed,
    Discard,
    NoteRefusal,
    Prepare,
    Prepared,
    Problem,
    ServeModel,
    Step,
    ToWorker,
    problem_of,
)
from mcp2026.runtime.process.served import Missed, Served
from mcp2026.runtime.settings import LOAD_SECONDS

log = logging.getLogger(__name__)

FIRST_WORD_SECONDS = 30.0
"""After which, and then after each doubling, the log tells that a model is still being loaded."""


class Voters(Protocol):
    """The workers, as far as changes are concerned."""

    def loaded(self) -> list[int]:
        """Return the slots of the workers that have loaded everything."""

    def tell(self, slot: int, message: ToWorker) -> None:
        """Send `message` to the worker in `slot`."""


class ChangeRounds:
    """Takes changes one after another through their two rounds."""

    def __init__(
        self,
        served: Served,
        voters: Voters,
        read_model: Callable[[str], Awaitable[ServingConfig]],
        claim: Callable[[ServingConfig], None],
        retire: Callable[[str, list[str]], None],
        load_seconds: float = LOAD_SECONDS,
    ) -> None:
        """Read a model's configuration with `read_model`; make room for its metrics with `claim`.

        A change that a worker has not prepared after `load_seconds` is not made.
        """
        self._load_seconds = load_seconds
        self._served = served
        self._voters = voters
        self._read_model = read_model
        self._claim = claim
        self._retire = retire
        self._next_id = 0
        self._votes: dict[tuple[int, int], asyncio.Future[Problem | None]] = {}
        self._one_at_a_time = asyncio.Lock()
        self._joined = asyncio.Event()
        """A worker has joined since a change found none."""
        self._not_survived: Step | None = None
        """The last change during whose preparation a worker ended, if it was made nowhere."""

    async def make(self, change: Change) -> Problem | None:
        """Make `change` in every worker; returns why it was made in none."""
        async with self._turn():
            try:
                return await self._rounds(await self._step(change))
            except RequestError as error:
                return problem_of(error)

    async def serve_next(
        self,
        next_config: Callable[[Mapping[str, ServingConfig]], Awaitable[ServingConfig]],
        *,
        may_differ: bool = False,
    ) -> ServingConfig:
        """Serve what `next_config` makes of what is served now, in every worker.

        With `may_differ` its inputs and outputs need not be those of what is served under its name.

        Raises:
            RequestError: it is served in none.

        """
        async with self._turn():
            config = await next_config(self._served.models)
            problem = await self._rounds(ServeModel(config, may_differ))
        if problem is not None:
            raise problem.error()
        return config

    async def note(self, refusal: NoteRefusal) -> None:
        """Show in every worker's index what cannot be served."""
        async with self._turn():
            await self._rounds(refusal)

    async def join(self, slot: int, missed: Missed, joined: Callable[[], None]) -> Problem | None:
        """Have the worker in `slot`, which has just loaded, make up for what it missed; then call `joined`.

        Returns why it could not. Cancel this when the worker ends.
        """
        async with self._one_at_a_time:
            for step in self._served.steps(missed):
                problem = await self._make_up(slot, step)
                if problem is not None and isinstance(step, ServeModel):
                    return problem  # a region's owner may have removed it since
            self._served.forget(missed)
            joined()
            self._joined.set()
            return None

    def voted(self, slot: int, vote: Prepared | Committed) -> None:
        """Take in what a worker said."""
        future = self._votes.get((vote.change_id, slot))
        if future is not None and not future.done():
            future.set_result(vote.problem if isinstance(vote, Prepared) else None)

    def ended(self, slot: int) -> None:
        """Wait no longer for a worker that has ended."""
        for (_, voter), future in self._votes.items():
            if voter == slot and not future.done():
                future.set_result(None)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Be alone with the workers as soon as there is one."""
        while True:
            async with self._one_at_a_time:
                if self._voters.loaded():
                    yield
                    return
                self._joined.clear()
            await self._joined.wait()

    async def _step(self, change: Change) -> Step:
        if isinstance(change, LoadModel):
            config = await self._read_model(change.model)
            before = self._served.models.get(change.model)
            revision = before.revision + 1 if before is not None else config.revision
            # Who loads a model again by hand may change what it takes, as in Triton.
            return ServeModel(msgspec.structs.replace(config, revision=revision), may_differ=True)
        if isinstance(change, UnloadModel) and change.model not in self._served.models:
            raise RequestError(
                ErrorCode.NOT_FOUND,
                f"no model {change.model[:64]!r} is served",
                "model",
                ", ".join(self._served.models),
            )
        return change

    async def _rounds(self, step: Step) -> Problem | None:
        before = self._served.models.get(step.config.model) if isinstance(step, ServeModel) else None
        if isinstance(step, ServeModel):
            self._make_room(step.config, before)
        change_id = self._new_id()
        problems = await self._prepare(change_id, step)
        if problems:
            for slot in self._voters.loaded():
                self._voters.tell(slot, Discard(change_id))
            if isinstance(step, ServeModel):
                self._keep_no_room(step.config, before)
            return problems[0]
        if isinstance(step, UnloadModel):
            self._retire(step.model, ["", *_version_ids(self._served.models[step.model])])
        elif before is not None and isinstance(step, ServeModel):
            kept = _version_ids(step.config)
            self._retire(before.model, [one for one in _version_ids(before) if one not in kept])
        self._served.apply(step)
        await self._round(self._voters.loaded(), Commit(change_id))
        return None

    async def _prepare(self, change_id: int, step: Step) -> list[Problem]:
        """Have all workers prepare `step`, and return why it must not be made."""
        telling = asyncio.create_task(_tell_of_a_long_load(step))
        try:
            return await self._prepared(change_id, step)
        finally:
            telling.cancel()

    async def _prepared(self, change_id: int, step: Step) -> list[Problem]:
        slots = self._voters.loaded()
        tries = [slots] if step != self._not_survived else [slots[:1], slots[1:]]
        for some in tries:
            problems = await self._round(some, Prepare(change_id, step))
            left = self._voters.loaded()
            if (
                not problems
                and isinstance(step, ServeModel)
                and some
                and not any(one in left for one in some)
            ):
                problems = [_nobody_left(step)]
            if problems:
                self._not_survived = step if len(left) < len(slots) else self._not_survived
                return problems
        self._not_survived = None
        return []

    def _make_room(self, config: ServingConfig, before: ServingConfig | None) -> None:
        try:
            self._claim(config)
        except RequestError:
            self._keep_no_room(config, before)
            raise

    def _keep_no_room(self, config: ServingConfig, before: ServingConfig | None) -> None:
        """Give back what `config` needed beyond `before`, which goes on to be served."""
        kept = [] if before is None else ["", *_version_ids(before)]
        self._retire(config.model, [one for one in ("", *_version_ids(config)) if one not in kept])
        if before is not None:
            self._claim(before)  # so that its revision is shown

    async def _make_up(self, slot: int, step: Step) -> Problem | None:
        change_id = self._new_id()
        problems = await self._round([slot], Prepare(change_id, step))
        if problems:
            self._voters.tell(slot, Discard(change_id))
            return problems[0]
        await self._round([slot], Commit(change_id))
        return None

    async def _round(self, slots: list[int], message: Prepare | Commit) -> list[Problem]:
        """Tell the workers in `slots`, wait for all of them, and return the problems they had."""
        loop = asyncio.get_running_loop()
        keys = [(message.change_id, slot) for slot in slots]
        try:
            for key in keys:
                self._votes[key] = loop.create_future()
                self._voters.tell(key[1], message)
            seconds = self._load_seconds if isinstance(message, Prepare) else None
            if keys:
                await asyncio.wait([self._votes[key] for key in keys], timeout=seconds)
            votes = [
                self._votes[key].result() if self._votes[key].done() else _not_in_time(message, seconds)
                for key in keys
            ]
        finally:
            for key in keys:
                self._votes.pop(key, None)
        return [vote for vote in votes if vote is not None]

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id


async def _tell_of_a_long_load(step: Step) -> None:
    """Warn of a load that takes long, or never ends: other changes wait for it, and nothing else says so."""
    if not isinstance(step, ServeModel):
        return
    waited, pause = 0.0, FIRST_WORD_SECONDS
    while True:
        await asyncio.sleep(pause)
        waited += pause
        pause = waited
        log.warning(
            "version(s) %s of %s are still being loaded and run for the first time after %.0f s; "
            "what is served stays, and changes that come later wait",
            ", ".join(_version_ids(step.config)),
            step.config.model,
            waited,
        )


def _not_in_time(message: Prepare | Commit, seconds: float | None) -> Problem:
    loaded = (
        message.step.config if isinstance(message, Prepare) and isinstance(message.step, ServeModel) else None
    )
    what = "it" if loaded is None else f"version(s) {', '.join(_version_ids(loaded))} of {loaded.model!r}"
    return Problem(
        ErrorCode.DEADLINE_EXCEEDED,
        f"{what} could not be loaded and run for the first time within {seconds:g} s",
        "model",
        "a disk that answers, or a larger --load-timeout",
    )


def _nobody_left(step: ServeModel) -> Problem:
    ids = ", ".join(_version_ids(step.config))
    return Problem(
        ErrorCode.NOT_READY,
        f"every worker that loaded version(s) {ids} of {step.config.model!r} ended meanwhile",
        "model",
        "a model that fits into the memory of this server; the log says how the workers ended",
    )


def _version_ids(config: ServingConfig) -> list[str]:
    return [version.version_id for version in config.versions]
