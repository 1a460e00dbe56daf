"""How large a batch may be, how long it may wait, and how much may queue."""

import msgspec

from mcp2026.api.serving import Batching

NANOSECONDS_PER_MS = 1_000_000


class Limits(msgspec.Struct, frozen=True):
    """The batcher's limits. Sizes count rows."""

    max_batch_rows: int
    min_batch_rows: int
    """A waiting batch leaves as soon as it has this many."""
    max_delay_ns: int
    """Longest wait of an idle engine for more rows."""
    batches_ahead: int
    """Full batches that may be handed out while another one runs."""
    max_queued_rows: int
    max_queued_bytes: int


def limits_of(batching: Batching, max_queued_rows: int, max_queued_bytes: int) -> Limits:
    """Return the limits that the serving configuration asks for."""
    return Limits(
        max_batch_rows=batching.max_batch_size,
        min_batch_rows=min(batching.min_batch_size, batching.max_batch_size),
        max_delay_ns=batching.max_delay_ms * NANOSECONDS_PER_MS,
        batches_ahead=batching.prefetch_queue_depth,
        max_queued_rows=max_queued_rows,
        max_queued_bytes=max_queued_bytes,
    )
