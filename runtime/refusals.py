"""What a caller is told whose request waits in vain: which limit it met, its value, and what sets it."""

from mcp2026.runtime.batching import ProcessLimits, Request

_NS_PER_MS = 1_000_000


def queue_is_full(request: Request, limits: ProcessLimits, waiting_rows: int) -> str:
    """Return why `request` was not let in; `waiting_rows` wait in this process, of all models."""
    queue, rows = request.queue, request.rows
    if queue.max_rows and queue.rows and queue.rows + rows > queue.max_rows:
        limit = f"{queue.max_rows} rows may wait in its queue of this worker (maxRows)"
    elif waiting_rows + rows > limits.max_queued_rows:
        limit = f"{limits.max_queued_rows} rows may wait in this worker (--queue-size)"
    else:
        mib = limits.max_queued_bytes // (1024 * 1024)
        limit = f"{mib} MiB of inputs may wait in this worker (--queue-mib)"
    return f"too many requests wait already: {limit}; try again later"


def time_is_over(request: Request, arrived_ns: int, asked_ns: int, longest_ns: int) -> str:
    """Return which time has passed for a request that came at `arrived_ns`.

    Its caller asked for `asked_ns`, if it named a time; `longest_ns` is what any request may have, 0 for as
    long as it asks.
    """
    allowed = request.expires - arrived_ns
    if longest_ns and allowed >= longest_ns:
        source = "--request-timeout"
    elif request.named and allowed >= asked_ns:
        source = "the timeout of the request"
    elif request.named:
        source = "maxTimeoutMs of its queue"
    else:
        source = "defaultTimeoutMs or maxTimeoutMs of its queue"
    return f"no answer within {allowed / _NS_PER_MS:g} ms, the time allowed ({source})"
