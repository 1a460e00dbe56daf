"""Changes that clients ask for: who may, what is made, and what the log says of it."""

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from mcp2026.runtime.changes import (
    Change,
    LoadModel,
    RegisterVersion,
    RetireVersion,
    UnloadModel,
    VersionChange,
)
from mcp2026.runtime.context.line_budget import LineBudget
from mcp2026.runtime.context.request_log import BURST, LINES_PER_SECOND, printable
from mcp2026.runtime.errors import RequestError
from mcp2026.runtime.model.sources import check_control
from mcp2026.runtime.process.change_rounds import ChangeRounds
from mcp2026.runtime.process.control import Problem, problem_of
from mcp2026.runtime.process.registrations import Registrations
from mcp2026.runtime.process.served import Served
from mcp2026.runtime.settings import Settings

log = logging.getLogger("mcp2026.runtime")


class Outcome(NamedTuple):
    """What became of a change."""

    problem: Problem | None
    revision: int = 0
    """Of the model, where versions were registered or retired."""


class ClientChanges:
    """Makes what clients of all workers ask for, if this server lets them."""

    def __init__(
        self,
        settings: Settings,
        rounds: ChangeRounds,
        served: Served,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make changes by `rounds`; `clock` gives s for the budgets of log lines."""
        self._clock = clock
        # What was refused must not crowd out what was made; a registration that comes again is made again.
        self._lines = {
            level: LineBudget(LINES_PER_SECOND, BURST) for level in (logging.WARNING, logging.INFO)
        }
        self._settings = settings
        self._rounds = rounds
        self._served = served
        self._registrations = Registrations(settings, rounds, served.models)

    async def make(self, change: Change | VersionChange) -> Outcome:
        """Make `change` in every worker or in none."""
        try:
            if isinstance(change, RegisterVersion | RetireVersion):
                outcome = Outcome(None, await self._registrations.make(change))
            else:
                if isinstance(change, LoadModel | UnloadModel):
                    check_control(self._settings)
                outcome = Outcome(await self._rounds.make(change))
        except RequestError as error:
            outcome = Outcome(problem_of(error))
        self._log(change, outcome)
        return outcome

    def _log(self, change: Change | VersionChange, outcome: Outcome) -> None:
        match change:
            case LoadModel(model):
                asked, named = "load", model
            case UnloadModel(model):
                asked, named = "unload", model
            case RegisterVersion() | RetireVersion():
                asked = "registration" if isinstance(change, RegisterVersion) else "retirement"
                named = f"version {change.version_id[:64]} of {change.model[:64]}"
            case _:
                return
        named = printable(named[:150])
        if outcome.problem is not None:
            problem = printable(outcome.problem.message)
            self._write(logging.WARNING, f"a client's {asked} of {named} was refused: {problem}")
        elif isinstance(change, LoadModel):
            versions = self._served.models[change.model].versions
            ids = ", ".join(one.version_id for one in versions)
            self._write(logging.INFO, f"loaded {named}: version(s) {ids}")
        elif isinstance(change, UnloadModel):
            self._write(logging.INFO, f"unloaded {named}")
        elif isinstance(change, RegisterVersion):
            made = f"with weight {change.weight} in revision {outcome.revision}"
            self._write(logging.INFO, f"registered {named} {made}, as {printable(change.owner_email)} asked")
        else:
            self._write(logging.INFO, f"retired {named} in revision {outcome.revision}")

    def _write(self, level: int, text: str) -> None:
        """Write a line, as far as clients may fill the log."""
        budget = self._lines[level]
        if not budget.take(self._clock()):
            return
        if budget.left_out:
            log.log(level, "%d lines about changes that clients asked for were left out", budget.left_out)
            budget.left_out = 0
        log.log(level, "%s", text)
