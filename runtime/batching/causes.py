"""Why a batch leaves."""

from enum import StrEnum


class Cause(StrEnum):
    """What made a batch leave; each has exactly one. The set is closed: metrics have a series for each."""

    SIZE = "size"
    """The rows that suffice had come."""
    DELAY = "delay"
    """The longest wait was over."""
    DEADLINE = "deadline"
    """The deadline of a request left no more time to wait."""
    DRAIN = "drain"
    """It would have waited, but the server is on its way out."""
    FULL = "full"
    """It had as many rows as one execution may have."""
    IDLE = "idle"
    """The engine was free, and nothing was to be waited for."""
