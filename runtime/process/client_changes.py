"""Changes that clients ask for: who may, what is made, and what the log says of it."""

import logging
from typing import NamedTuple

from mcp2026.runtime.changes import (
    Change,
    LoadModel,
    RegisterVersion,
    RetireVersion,
    UnloadModel,
    VersionChange,
)
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

    def __init__(self, settings: Settings, rounds: ChangeRounds, served: Served) -> None:
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
                asked, named = "load", model[:64]
            case UnloadModel(model):
                asked, named = "unload", model[:64]
            case RegisterVersion():
                asked, named = "registration", f"version {change.version_id[:64]} of {change.model[:64]}"
            case RetireVersion():
                asked, named = "retirement", f"version {change.version_id[:64]} of {change.model[:64]}"
            case _:
                return
        if outcome.problem is not None:
            log.warning("a client's %s of %s was refused: %s", asked, named, outcome.problem.message)
        elif isinstance(change, LoadModel):
            versions = self._served.models[change.model].versions
            log.info("loaded %s: version(s) %s", named, ", ".join(one.version_id for one in versions))
        elif isinstance(change, UnloadModel):
            log.info("unloaded %s", named)
        elif isinstance(change, RegisterVersion):
            log.info(
                "registered %s with weight %d in revision %d, as %s asked",
                named,
                change.weight,
                outcome.revision,
                change.owner_email,
            )
        else:
            log.info("retired %s in revision %d", named, outcome.revision)
