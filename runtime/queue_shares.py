"""The part of a model's queue that one of several workers holds.

`maxRows` bounds how long a request waits. N workers share the machine, so each serves about an N-th of the
rows: if each let all `maxRows` wait, the last of them would wait N times as long.
"""

import msgspec

from mcp2026.api.serving import QueuePolicy, ServingConfig
from mcp2026.runtime.model.loaded import rows_of_a_run


def share_of_worker(config: ServingConfig, workers: int) -> ServingConfig:
    """Return `config` with the queue lengths of one of `workers`: their part, rounded up.

    It is never less than one batch, unless the whole queue is: a shorter one would never fill a batch.
    """
    batch = rows_of_a_run(config)
    priorities = config.priorities
    queues = {level: _share(policy, workers, batch) for level, policy in priorities.queues.items()}
    return msgspec.structs.replace(
        config,
        queue=_share(config.queue, workers, batch),
        priorities=msgspec.structs.replace(priorities, queues=queues),
    )


def _share(policy: QueuePolicy, workers: int, batch: int) -> QueuePolicy:
    rows = policy.max_rows
    part = -(-rows // workers)
    return msgspec.structs.replace(policy, max_rows=max(part, min(rows, batch)))
