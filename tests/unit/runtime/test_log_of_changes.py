"""What clients ask to change is told in the log: in one line each, and in no more than a disk can bear."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

import pytest

from mcp2026.api.serving import ServingConfig
from mcp2026.runtime.changes import (
    Change,
    LoadModel,
    RegisterVersion,
    RetireVersion,
    UnloadModel,
    VersionChange,
)
from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.process.client_changes import ClientChanges
from mcp2026.runtime.process.control import Problem
from mcp2026.runtime.process.served import Served
from mcp2026.runtime.settings import Settings

FORGED = "m\n2026-11-30 15:00:00,000 ERROR   mcp2026.runtime: all is lost\x1b[31m\u2028\x85\r"
UUID = "2a8e1c5e-5a57-4f0e-9d1e-1f4c9f1f0c11"


class Rounds:
    """Makes every change, or none and repeats what it refuses."""

    def __init__(self) -> None:
        self.refuses = True

    async def make(self, change: Change) -> Problem | None:
        return Problem(ErrorCode.NOT_FOUND, f"no model {FORGED} is served") if self.refuses else None

    async def serve_next(
        self, next_config: Callable[[Mapping[str, ServingConfig]], Awaitable[ServingConfig]]
    ) -> ServingConfig:
        raise RequestError(ErrorCode.NOT_FOUND, f"no model {FORGED} is served")


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def changes(rounds: Rounds, clock: Clock, control: str = "explicit") -> ClientChanges:
    settings = Settings(model_control=control)
    return ClientChanges(settings, rounds, Served(), clock)  # type: ignore[arg-type]


@pytest.mark.parametrize("control", ["explicit", "none"])
@pytest.mark.parametrize(
    "change",
    [
        LoadModel(FORGED),
        UnloadModel(FORGED),
        RetireVersion(FORGED, FORGED),
        RegisterVersion(UUID, FORGED, FORGED, "file:///m.onnx", 1, FORGED),
    ],
)
def test_names_that_clients_send_begin_no_line_of_their_own(
    change: Change | VersionChange, control: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mcp2026.runtime")
    asyncio.run(changes(Rounds(), Clock(), control).make(change))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "was refused" in record.getMessage()
    assert record.getMessage().isprintable()
    assert len(record.getMessage()) < 600


def test_a_flood_of_refusals_leaves_few_lines_and_does_not_hide_what_is_made(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "mcp2026.runtime")
    clock, rounds = Clock(), Rounds()
    asked = changes(rounds, clock)

    async def flood() -> None:
        for _ in range(1_000):
            await asked.make(RetireVersion("m", "w"))
        rounds.refuses = False
        await asked.make(UnloadModel("m"))
        clock.now += 1
        await asked.make(RetireVersion("m", "w"))

    asyncio.run(flood())
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 50 + 1 + 2
    assert said[50] == "unloaded m"
    assert said[51] == "950 lines about changes that clients asked for were left out"
    assert "was refused" in said[52]
