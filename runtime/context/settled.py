"""A request that has come to its end: what its log line and its spans are made of."""

from typing import NamedTuple

from mcp2026.api.scheduling_context import QosClass, TraceContext


class Settled(NamedTuple):
    """One request. Times in ns of the monotonic clock; 0 for what did not happen."""

    trace: TraceContext
    qos_class: QosClass | None
    model: str
    """Empty if it is not known, as is `version`."""
    version: str
    tenant: str
    priority: int
    """As it was asked for; 0 is the model's default."""
    arrived_ns: int
    started_ns: int
    """The model began to run."""
    finished_ns: int
    """The model was done."""
    ended_ns: int
    batch_ns: int = 0
    """How long it took to gather the batch."""
    reason: str = ""
    """Of a failure; empty if the request was answered."""
    message: str = ""
    status: int = 200
    """The failure's HTTP status."""


class SettledBatch(NamedTuple):
    """Requests that ran together."""

    requests: tuple[Settled, ...]
    """Those of them that are recorded."""
    rows: int
    assemble_ns: int
    """How long it took to gather the batch."""
    clock_offset_ns: int
    """What turns a time of the monotonic clock into one since the epoch."""
