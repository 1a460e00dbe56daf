"""Who is told what became of a change: the worker that asked, and not the one that took its place."""

import asyncio
from typing import Any

import pytest

from mcp2026.runtime.changes import UnloadModel
from mcp2026.runtime.health import Health
from mcp2026.runtime.process import workers as module
from mcp2026.runtime.process.client_changes import Outcome
from mcp2026.runtime.process.control import Ask, Changed
from mcp2026.runtime.process.served import Served
from mcp2026.runtime.process.workers import Workers
from mcp2026.runtime.settings import Settings


class SlowChanges:
    def __init__(self) -> None:
        self.may_end = asyncio.Event()

    async def make(self, _change: Any) -> Outcome:
        await self.may_end.wait()
        return Outcome(None, 7)


@pytest.mark.parametrize("replaced", [False, True])
async def test_the_outcome_goes_to_the_worker_that_asked(
    replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[Any, Any]] = []
    monkeypatch.setattr(module, "send", lambda writer, message: told.append((writer, message)))
    changes: Any = SlowChanges()
    nothing: Any = None
    workers = Workers(Settings(), Health(), nothing, 0, nothing, Served())
    workers._client_changes = changes
    slot = workers._slots[0]
    first: Any = object()
    slot.writer = first
    asking = asyncio.create_task(workers._change(slot, Ask(0, UnloadModel("m"))))
    await asyncio.sleep(0)
    if replaced:
        slot.writer = object()  # type: ignore[assignment]  # only its identity counts
    changes.may_end.set()
    await asking
    assert told == ([] if replaced else [(first, Changed(0, None, 7))])
