"""What the batcher asks its surroundings to do."""

import msgspec

from mcp2026.runtime.batching.events import Lane


class Member(msgspec.Struct, frozen=True, gc=False):
    """A request's place in a batch: rows `first_row` to `first_row + rows`."""

    request_id: int
    first_row: int
    rows: int


class RunBatch(msgspec.Struct, frozen=True):
    """Gather these requests in this order and execute them; batches run in the order they are given."""

    batch_id: int
    lane: Lane
    members: tuple[Member, ...]
    rows: int


class Answer(msgspec.Struct, frozen=True):
    """Send these members their rows of the batch's result. Members that left meanwhile are missing."""

    batch_id: int
    members: tuple[Member, ...]


class Fail(msgspec.Struct, frozen=True, gc=False):
    """The request ran alone and its execution raised: tell it so."""

    request_id: int
    batch_id: int


class Expire(msgspec.Struct, frozen=True, gc=False):
    """The deadline has passed without an answer."""

    request_id: int


class Refuse(msgspec.Struct, frozen=True, gc=False):
    """The request was not taken in: the queue is full."""

    request_id: int


class SetTimer(msgspec.Struct, frozen=True, gc=False):
    """Send `TimerFired` at this time; replaces the timer before."""

    at: int


Instruction = RunBatch | Answer | Fail | Expire | Refuse | SetTimer
