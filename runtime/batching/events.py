"""What can happen to the batcher. Times are nanoseconds of one monotonic clock."""

import msgspec


class Lane(msgspec.Struct, frozen=True):
    """Requests of equal lanes may share an execution."""

    version_id: str
    shapes: tuple[tuple[int, ...], ...]
    """Per input the dimensions after the batch dimension; all dimensions when the lane is not shared."""
    shared: bool = True
    """False: every request runs alone, and counts as one row."""


class RequestArrived(msgspec.Struct, frozen=True, gc=False):
    """A validated request wants to run. Ids grow: the order of ids is the order of arrival."""

    request_id: int
    lane: Lane
    rows: int
    size: int
    """Bytes that its inputs hold in memory."""
    deadline: int


class RequestCancelled(msgspec.Struct, frozen=True, gc=False):
    """The caller has gone. Nothing is said to it any more; the rest of its batch is not touched."""

    request_id: int


class BatchFinished(msgspec.Struct, frozen=True, gc=False):
    """An execution has results."""

    batch_id: int


class BatchFailed(msgspec.Struct, frozen=True, gc=False):
    """An execution raised."""

    batch_id: int


class TimerFired(msgspec.Struct, frozen=True, gc=False):
    """The time of the last `SetTimer` has come. Firing early or twice does no harm."""


class DrainStarted(msgspec.Struct, frozen=True, gc=False):
    """The process is about to end: no batch waits for company any more. Arrivals are still taken in.

    Whoever reads requests decides when to stop; what was read gets its answer.
    """


Event = RequestArrived | RequestCancelled | BatchFinished | BatchFailed | TimerFired | DrainStarted
