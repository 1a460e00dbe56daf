"""Serve each newer revision as it comes: in every worker, or in none and with the reason told.

An older revision is never taken, so sources may lag behind each other. A document without a number is the
next revision whenever it says something new: so a file may be edited by hand. A revision that could not be
served is tried again, ever more rarely, until a newer one comes: its file may be on its way.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import msgspec

from mcp2026.api.errors import InvalidResourceError, SettingsError
from mcp2026.api.serving import ServingConfig, as_utf8, decode_serving_config
from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.fetching.errors import FetchError
from mcp2026.runtime.revisions.newest import Newest

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 60.0

Bring = Callable[[ServingConfig], Awaitable[ServingConfig]]
"""Returns a configuration whose versions are all files of this machine; raises FetchError."""
Models = Mapping[str, ServingConfig]
NextConfig = Callable[[Models], Awaitable[ServingConfig]]


class Rounds(Protocol):
    """What makes a change in every worker."""

    async def serve_next(self, next_config: NextConfig) -> ServingConfig:
        """Serve what `next_config` returns, in every worker or in none; raises RequestError."""


class Standing(msgspec.Struct, frozen=True):
    """How far this server is: for whoever has to know on which pods a revision is live."""

    live: int
    """Revision that every worker serves."""
    failed: int | None = None
    """Newer revision that could not be served."""
    problem: str = ""
    """Why not."""


Report = Callable[[Standing], None]


class _StoppedError(Exception):
    """The model is stopped; args: by which revision."""


class _NothingNewError(Exception):
    """The revision is live already, or an older one, or another document waits."""


class Follower:
    """Takes documents out of a mailbox and has them served."""

    def __init__(
        self,
        model: str,
        mailbox: Newest,
        rounds: Rounds,
        with_flags: Callable[[ServingConfig], ServingConfig],
        report: Report,
        bring: Bring | None = None,
        asked: ServingConfig | None = None,
    ) -> None:
        """Follow the revisions of `model`.

        Args:
            model: the only one whose revisions are taken.
            mailbox: where documents arrive.
            rounds: serve them.
            with_flags: adds what the server's flags say; raises SettingsError.
            report: is told after each attempt, and first of all what is live at the start.
            bring: fetches what lies elsewhere, beside the traffic; another document ends it.
            asked: what the server was started with. A document without a number that says the same is
                nothing new, though clients may have changed what is served since.

        """
        self._model = model
        self._mailbox = mailbox
        self._rounds = rounds
        self._with_flags = with_flags
        self._report = report
        self._bring = bring
        self._asked = asked
        self._live = 0

    async def run(self, live: int) -> int:
        """Follow until a revision says that the model is stopped, and return its number.

        `live` is the revision that is served now.
        """
        self._live = live
        self._report(Standing(live))
        document: bytes | None = None
        retry: float | None = None
        try:
            while True:
                newer = await self._mailbox.take(retry)
                if newer is not None:
                    document, retry = newer, None
                assert document is not None
                retry = None if await self._serve(document) else self._next_retry(retry)
        except _StoppedError as stopped:
            number: int = stopped.args[0]
            return number

    async def _serve(self, document: bytes) -> bool:
        """Return whether there is nothing left to try."""
        revision = None
        try:
            config = decode_serving_config(document)
            numbered = "revision" in msgspec.json.decode(as_utf8(document))
            revision = config.revision if numbered else None
            self._check_stopped(config)
            if revision is not None and revision < self._live:
                return True
            asked = self._with_flags(config)
            if not numbered and asked == self._asked:
                return True
            wanted = await self._brought(asked, document)
            made = await self._rounds.serve_next(
                lambda models: self._newer(models, wanted, numbered=numbered)
            )
        except _NothingNewError:
            return True
        except (InvalidResourceError, SettingsError) as error:
            self._failed(revision, str(error))
            return True  # only another document can be better
        except RequestError as error:
            self._failed(revision, error.message)
            return False
        except FetchError as error:
            self._failed(revision, str(error))
            return False
        except _StoppedError:
            raise
        except Exception as error:  # a fault of ours, met with one document: what is live is served on
            log.exception("a revision met an error that nobody foresaw")
            self._failed(revision, f"{type(error).__name__}: {error}")
            return False
        self._live, self._asked = made.revision, asked
        versions = ", ".join(f"{one.version_id}={one.weight}" for one in made.versions)
        log.info("revision %d of %s is live: %s", made.revision, made.model, versions)
        self._report(Standing(made.revision))
        return True

    async def _brought(self, wanted: ServingConfig, document: bytes) -> ServingConfig:
        """Return `wanted` with files of this machine.

        Raises:
            _NothingNewError: another document has come meanwhile.
            FetchError: one cannot be had.

        """
        if self._bring is None:
            return wanted
        bringing = asyncio.ensure_future(self._bring(wanted))
        other = asyncio.create_task(self._mailbox.other_than(document))
        try:
            await asyncio.wait({bringing, other}, return_when=asyncio.FIRST_COMPLETED)
            if not bringing.done():
                raise _NothingNewError
            return bringing.result()
        finally:
            bringing.cancel()
            other.cancel()
            await asyncio.wait({bringing, other})

    async def _newer(self, models: Models, wanted: ServingConfig, *, numbered: bool) -> ServingConfig:
        self._check_model(wanted)
        live = models.get(wanted.model)
        if live is None:
            raise RequestError(ErrorCode.NOT_READY, f"{wanted.model!r} is not served now", "model")
        if not numbered:
            wanted = msgspec.structs.replace(wanted, revision=live.revision)
        if wanted.revision < live.revision or wanted == live:
            raise _NothingNewError
        if not numbered:
            return msgspec.structs.replace(wanted, revision=live.revision + 1)
        if wanted.revision == live.revision:
            raise InvalidResourceError(
                "revision",
                f"{wanted.revision} is live with another content",
                f"a number above {live.revision} for each change",
            )
        return wanted

    def _check_stopped(self, config: ServingConfig) -> None:
        if config.stopped is True:
            self._check_model(config)
            raise _StoppedError(config.revision)  # it cannot be taken back, so no other comes after it

    def _check_model(self, wanted: ServingConfig) -> None:
        if wanted.model != self._model:
            raise InvalidResourceError("model", f"{wanted.model!r} is not served here", self._model)

    def _failed(self, revision: int | None, problem: str) -> None:
        log.error("a revision cannot be served, %d stays live: %s", self._live, problem)
        self._report(Standing(self._live, revision, problem[:1_000]))

    def _next_retry(self, last: float | None) -> float:
        return FIRST_RETRY_SECONDS if last is None else min(2 * last, LONGEST_RETRY_SECONDS)
