"""Campaigns for the Lease, and tells server and binder whether they may answer (0117).

The rules are `election.Election`'s; here are their requests, their pauses, and what a new leader does first:
it reads which pods are bound, in a list that it begins when the Lease is its own.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from mcp2026.scheduler_extender.election import Election, LeaseRecord, Wish, WriteLease
from mcp2026.scheduler_extender.errors import LeaseChangedError, LeaseUnknownError, NotLeadingError
from mcp2026.scheduler_extender.following import SchedulerBeside
from mcp2026.scheduler_extender.leadership import Standing, WritesUnderWay
from mcp2026.scheduler_extender.settings import ElectionSettings

log = logging.getLogger(__name__)

HURRY_SECONDS = 0.2
"""The shortest time between two looks at the Lease because somebody asks a standby."""
LEAVE_SECONDS = 3.0
"""For letting the Lease go at the end; after that it runs out by itself."""
SHORTEST_WRITE_SECONDS = 1.0
"""A write that would have less is not begun."""


class LeaseStore(Protocol):
    """Where Leases are kept; a Lease is named as `namespace/name`."""

    async def read(self, lease: str, seconds: float) -> LeaseRecord | None:
        """Return the Lease; None: there is none.

        Raises:
            LeaseUnknownError: the API server does not tell.

        """

    async def write(self, lease: str, record: LeaseRecord, seconds: float) -> LeaseRecord:
        """Store `record` over the version that it names, or anew if it names none; return it as stored.

        Raises:
            LeaseChangedError: the stored one has another version by now.
            LeaseUnknownError: the API server does not tell.

        """


class Campaign:
    """One candidate of one event loop. `clock` gives seconds that only grow, `wall` the time as RFC 3339.

    `catch_up` is what a new leader does before it answers.
    """

    def __init__(
        self,
        settings: ElectionSettings,
        store: LeaseStore,
        catch_up: Callable[[], Awaitable[None]],
        clock: Callable[[], float],
        wall: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._store = store
        self._catch_up = catch_up
        self._clock = clock
        self._wall = wall
        self._election = Election(settings.identity, settings.timing)
        self._beside = SchedulerBeside(settings.identity) if settings.beside else None
        self._writes = WritesUnderWay()
        self._caught_up = 0
        """The last term of which everything before it has been read."""
        self._catching_up: asyncio.Task[None] | None = None
        self._awake = asyncio.Event()
        self._hurried = clock()
        self._logged = ""

    # ---- what server and binder ask ----

    @property
    def terms(self) -> int:
        """How often this process has become the leader."""
        return self._election.term

    def standing(self) -> Standing:
        """Return whether this process leads, and who does."""
        now = self._clock()
        asked = self._beside is None or self._beside.leads(now)
        if self._election.leads(now) and self._caught_up == self._election.term:
            return Standing(leads=True, asked=asked)
        words = f"the scheduler extender {self._election.identity} is standing by: {self._who_leads(now)}"
        return Standing(False, asked, words)

    def term(self) -> int:
        """Return the term in which an answer may be given now.

        Raises:
            NotLeadingError: another process is to be asked.

        """
        standing = self.standing()
        if not standing.leads:
            self._hurry()
            raise NotLeadingError(standing.words)
        return self._election.term

    @contextmanager
    def writing(self, term: int) -> Iterator[float]:
        """Enclose a write that was decided in `term`; gives the seconds within which it must have ended.

        Raises:
            NotLeadingError: that term is over, or nearly.

        """
        now = self._clock()
        seconds = self._election.seconds_alone(now)
        if self.term() != term or seconds < SHORTEST_WRITE_SECONDS:
            raise NotLeadingError("this was decided before another extender may have led; ask anew")
        with self._writes.one(now + seconds):
            yield seconds

    # ---- the loop ----

    async def run(self) -> None:
        """Campaign until cancelled."""
        while True:
            self._awake.clear()
            await self._look_beside()
            self._election.want(self._wish(), self._clock())
            await self._carry_out()
            self._begin_to_catch_up()
            self._log_who_leads()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._awake.wait(), max(0.0, self._election.due - self._clock()))

    async def leave(self) -> None:
        """Let the Lease go, so that another may have it at once; not while a write may still take effect."""
        if self._catching_up is not None:
            self._catching_up.cancel()
        if not self._writes.settled(self._clock()):
            log.warning("the outcome of a binding is not known: the Lease %s runs out", self._settings.lease)
            return
        self._election.want(Wish.LEAVE, self._clock())
        held = self._election.holds
        with suppress(TimeoutError):
            await asyncio.wait_for(self._carry_out(), LEAVE_SECONDS)
        if held and not self._election.holds:
            log.info("let the Lease %s go", self._settings.lease)

    def _hurry(self) -> None:
        now = self._clock()
        if now >= self._hurried + HURRY_SECONDS:
            self._hurried = now
            self._election.hurry(now)
            self._awake.set()

    def _wish(self) -> Wish:
        now = self._clock()
        if self._beside is None or self._beside.leads(now):
            return Wish.LEAD
        return Wish.LEAVE if self._writes.settled(now) else Wish.ABSTAIN

    async def _look_beside(self) -> None:
        """Read the schedulers' Lease. Where that fails, what was seen last counts until it runs out."""
        if self._beside is None:
            return
        seconds = self._settings.timing.retry_s
        with suppress(LeaseUnknownError):
            lease = await self._store.read(self._settings.beside, seconds)
            self._beside.read(lease, self._clock())

    async def _carry_out(self) -> None:
        while (step := self._election.next_step(self._clock(), self._wall())) is not None:
            sent = self._clock()
            try:
                if isinstance(step, WriteLease):
                    stored = await self._store.write(self._settings.lease, step.record, self._seconds)
                    self._election.written(stored, sent, self._clock())
                else:
                    lease = await self._store.read(self._settings.lease, self._seconds)
                    self._election.read(lease, self._clock())
            except LeaseChangedError:
                self._election.overtaken(self._clock())
            except LeaseUnknownError as error:
                self._election.failed(str(error), self._clock())

    @property
    def _seconds(self) -> float:
        """For one request: two fit into the time in which a Lease must be renewed."""
        return self._settings.timing.renew_s / 2

    def _begin_to_catch_up(self) -> None:
        term = self._election.term
        if self._catching_up is not None:
            if self._catching_up.get_name() == str(term):
                if self._catching_up.done():
                    self._catching_up.result()
                return
            self._catching_up.cancel()
        if self._election.leads(self._clock()):
            self._catching_up = asyncio.create_task(self._catch_up_in(term), name=str(term))

    async def _catch_up_in(self, term: int) -> None:
        await self._catch_up()
        self._caught_up = term
        self._log_who_leads()

    # ---- words ----

    def _who_leads(self, now: float) -> str:
        election, lease = self._election, f"Lease {self._settings.lease}"
        if election.leads(now):
            return f"it has just got the {lease} and reads which pods are bound"
        if self._beside is not None and not self._beside.leads(now):
            who, where = self._beside.holder or "none", self._settings.beside
            return f"the kube-scheduler that leads is {who}, not the one beside it (Lease {where})"
        if election.problem:
            return f"the {lease} cannot be read or renewed: {election.problem}"
        if not election.holder:
            return f"nobody leads (the {lease} is free)"
        if election.holder == election.identity:
            return f"it has the {lease} and has not renewed it yet"
        seen = election.unchanged_for(now)
        return f"{election.holder} leads ({lease}, unchanged for {seen:.0f} s)"

    def _log_who_leads(self) -> None:
        """Tell who leads when it is another than before, or for another reason."""
        standing = self.standing()
        key = f"term {self.terms}" if standing.leads else standing.words.partition(", unchanged")[0]
        if key == self._logged:
            return
        self._logged = key
        extra = {"leads": standing.leads, "term": self.terms, "identity": self._election.identity}
        log.info("%s", "leading" if standing.leads else standing.words, extra=extra)
