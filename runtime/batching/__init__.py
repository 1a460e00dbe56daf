"""Which requests run together, and when: decisions only, no threads, no sockets, no clock of its own."""

from mcp2026.runtime.batching.batcher import Batcher
from mcp2026.runtime.batching.events import (
    BatchFailed,
    BatchFinished,
    DrainStarted,
    Event,
    Lane,
    RequestArrived,
    RequestCancelled,
    TimerFired,
)
from mcp2026.runtime.batching.instructions import (
    Answer,
    Expire,
    Fail,
    Instruction,
    Member,
    Refuse,
    RunBatch,
    SetTimer,
)
from mcp2026.runtime.batching.limits import Limits

__all__ = [
    "Answer",
    "BatchFailed",
    "BatchFinished",
    "Batcher",
    "DrainStarted",
    "Event",
    "Expire",
    "Fail",
    "Instruction",
    "Lane",
    "Limits",
    "Member",
    "Refuse",
    "RequestArrived",
    "RequestCancelled",
    "RunBatch",
    "SetTimer",
    "TimerFired",
]
