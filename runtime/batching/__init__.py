"""Which requests run together, and when: decisions only, no threads, no sockets, no clock of its own."""

from mcp2026.runtime.batching.cost import CostModel
from mcp2026.runtime.batching.lanes import Lane, Model
from mcp2026.runtime.batching.policy import ModelPolicy, ProcessLimits
from mcp2026.runtime.batching.request import Batch, Part, Request
from mcp2026.runtime.batching.scheduler import Scheduler

__all__ = [
    "Batch",
    "CostModel",
    "Lane",
    "Model",
    "ModelPolicy",
    "Part",
    "ProcessLimits",
    "Request",
    "Scheduler",
]
