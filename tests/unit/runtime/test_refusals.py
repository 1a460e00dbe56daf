"""A refusal names the limit, its value, and the setting that it comes from."""

import pytest

from mcp2026.api.serving import Batching, QueuePolicy, single_version
from mcp2026.runtime.batching import Lane, Model, ModelPolicy, ProcessLimits, Request
from mcp2026.runtime.batching.policy import Queue
from mcp2026.runtime.refusals import queue_is_full, time_is_over

MS = 1_000_000
LIMITS = ProcessLimits(1_000, 64 << 20)


def request(rows: int = 1, expires_ms: float = 0, *, named: bool = False, max_rows: int = 0) -> Request:
    queue = Queue(QueuePolicy(max_rows=max_rows))
    queue.rows = max_rows
    lane = Lane(Model("m", ModelPolicy(single_version("m.onnx", Batching()))))
    expires = int(expires_ms * MS)
    return Request(lane, queue, 1, "", rows, 0, expires, expires, named=named)


@pytest.mark.parametrize(
    ("refused", "waiting_rows", "told"),
    [
        pytest.param(
            request(max_rows=32), 32, "32 rows may wait in its queue of this worker (maxRows)", id="own"
        ),
        pytest.param(request(2), 999, "1000 rows may wait in this worker (--queue-size)", id="rows"),
        pytest.param(request(1), 10, "64 MiB of inputs may wait in this worker (--queue-mib)", id="bytes"),
    ],
)
def test_a_full_queue_says_how_much_may_wait(refused: Request, waiting_rows: int, told: str) -> None:
    assert queue_is_full(refused, LIMITS, waiting_rows) == (
        f"too many requests wait already: {told}; try again later"
    )


@pytest.mark.parametrize(
    ("late", "asked_ms", "told"),
    [
        pytest.param(
            request(expires_ms=30_000), 30_000, "30000 ms, the time allowed (--request-timeout)", id="any"
        ),
        pytest.param(
            request(expires_ms=0.5, named=True),
            0.5,
            "0.5 ms, the time allowed (the timeout of the request)",
            id="asked",
        ),
        pytest.param(
            request(expires_ms=50, named=True),
            100,
            "50 ms, the time allowed (maxTimeoutMs of its queue)",
            id="cut",
        ),
        pytest.param(
            request(expires_ms=50),
            30_000,
            "50 ms, the time allowed (defaultTimeoutMs or maxTimeoutMs of its queue)",
            id="default",
        ),
    ],
)
def test_a_late_answer_says_how_long_it_might_take(late: Request, asked_ms: float, told: str) -> None:
    assert time_is_over(late, 0, int(asked_ms * MS), 30_000 * MS) == f"no answer within {told}"
