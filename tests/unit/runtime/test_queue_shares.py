"""Several workers together hold as long a queue as was asked for."""

import msgspec
import pytest

from mcp2026.api.serving import Batching, Priorities, QueuePolicy, single_version
from mcp2026.runtime.queue_shares import share_of_worker


@pytest.mark.parametrize(
    ("max_rows", "workers", "share"),
    [
        pytest.param(0, 4, 0, id="no limit stays none"),
        pytest.param(256, 1, 256, id="one worker holds all"),
        pytest.param(256, 4, 64, id="a quarter each"),
        pytest.param(257, 4, 65, id="rounded up"),
        pytest.param(100, 64, 8, id="never less than a batch of 8"),
        pytest.param(5, 4, 5, id="the whole queue is less than a batch"),
    ],
)
def test_a_worker_holds_its_part_but_no_less_than_a_batch(max_rows: int, workers: int, share: int) -> None:
    config = msgspec.structs.replace(
        single_version("m.onnx", Batching(max_batch_size=8)),
        queue=QueuePolicy(max_rows=max_rows, default_timeout_ms=5),
        priorities=Priorities(queues={1: QueuePolicy(max_rows=max_rows)}),
    )
    shared = share_of_worker(config, workers)
    assert shared.queue == QueuePolicy(max_rows=share, default_timeout_ms=5)
    assert shared.priorities.queues == {1: QueuePolicy(max_rows=share)}
    assert msgspec.structs.replace(shared, queue=config.queue, priorities=config.priorities) == config
