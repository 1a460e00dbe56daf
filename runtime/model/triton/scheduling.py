"""The scheduling half of a model configuration, in this runtime's terms."""

import logging
from dataclasses import dataclass

from mcp2026.api.serving import MAX_BATCH_SIZE_RANGE, Batching, Execution, Priorities, QueuePolicy
from mcp2026.runtime.model.triton.model_config_pb2 import ModelConfig, ModelQueuePolicy

log = logging.getLogger(__name__)

_MICROSECONDS = 1_000
"""In a millisecond."""


@dataclass(frozen=True, slots=True)
class Scheduling:
    """How requests wait and run."""

    batching: Batching
    queue: QueuePolicy
    priorities: Priorities
    execution: Execution


def scheduling_of(config: ModelConfig) -> Scheduling:
    """Return the scheduling that an accepted configuration asks for.

    A batch leaves when it has the smallest preferred number of rows; without one, when it is full.
    """
    asked = config.dynamic_batching
    low, high = MAX_BATCH_SIZE_RANGE
    most = config.max_batch_size
    delay_us = asked.max_queue_delay_microseconds
    delay_ms = -(-delay_us // _MICROSECONDS)
    if delay_us % _MICROSECONDS:
        log.warning(
            "model %s: max_queue_delay_microseconds %d is rounded up to %d ms",
            config.name,
            delay_us,
            delay_ms,
        )
    leaves_at = min(asked.preferred_batch_size, default=most) if delay_ms else 1
    batching = Batching(
        max_batch_size=min(max(most, low), high),
        max_delay_ms=delay_ms,
        min_batch_size=min(max(1, leaves_at), high),
    )
    levels = asked.priority_levels
    priorities = Priorities()
    if levels:
        queues = {level: _queue(asked.priority_queue_policy[level]) for level in asked.priority_queue_policy}
        priorities = Priorities(levels, asked.default_priority_level, queues)
    instances = sum(max(1, group.count) for group in config.instance_group) or 1
    execution = Execution(instances=instances, max_rows=most)
    return Scheduling(batching, _queue(asked.default_queue_policy), priorities, execution)


def _queue(policy: ModelQueuePolicy) -> QueuePolicy:
    timeout_ms = policy.default_timeout_microseconds / _MICROSECONDS
    return QueuePolicy(
        max_rows=policy.max_queue_size,
        default_timeout_ms=timeout_ms,
        max_timeout_ms=timeout_ms,  # Triton too lets a request only shorten its time
        timeout_action="Delay" if policy.timeout_action == ModelQueuePolicy.DELAY else "Reject",
    )
