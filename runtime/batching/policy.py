"""The serving configuration of a model as its scheduler reads it: limits in rows and ns."""

import msgspec

from mcp2026.api.serving import QueuePolicy, ServingConfig

NANOSECONDS_PER_MS = 1_000_000
MAX_VERIFIED = 256
"""Accounts of one model for tenants whose weight a token says."""


class ProcessLimits(msgspec.Struct, frozen=True):
    """How much may wait in one process, whatever the model."""

    max_queued_rows: int
    max_queued_bytes: int
    max_timeout_ns: int = 0
    """Longest from arrival to answer; 0: as long as each request says."""


class Queue:
    """One bounded queue: a model's, or that of one of its priority levels that has a policy of its own."""

    def __init__(self, policy: QueuePolicy) -> None:
        self.rows = 0
        """Rows that wait."""
        self.max_rows = policy.max_rows
        """0: only the process bounds it."""
        self._default_ns = int(policy.default_timeout_ms * NANOSECONDS_PER_MS)
        self._max_ns = int(policy.max_timeout_ms * NANOSECONDS_PER_MS)
        self._late = policy.timeout_action == "Delay"
        self._plain = not (self._default_ns or self._max_ns or self._late)

    def deadlines(self, arrived: int, timeout_ns: int, limit_ns: int, *, named: bool) -> tuple[int, int]:
        """Return until when the request is in time, and when it is given up.

        `timeout_ns` is what the caller asked for if it `named` a timeout; `limit_ns` is the process's limit.
        """
        if self._plain:
            expires = arrived + min(timeout_ns, limit_ns)
            return expires, expires
        allowed = timeout_ns if named else self._default_ns or timeout_ns
        if self._max_ns:
            allowed = min(allowed, self._max_ns)
        allowed = min(allowed, limit_ns)
        return arrived + allowed, arrived + (limit_ns if self._late else allowed)


class ModelPolicy:
    """One revision of a model's configuration."""

    def __init__(self, config: ServingConfig) -> None:
        batching, execution = config.batching, config.execution
        limit = execution.max_rows
        self.max_rows = batching.max_batch_size if limit is None else max(1, limit)
        self.min_rows = min(batching.min_batch_size, self.max_rows) if batching.max_delay_ms else 1
        self.max_delay_ns = batching.max_delay_ms * NANOSECONDS_PER_MS
        self.ahead = batching.prefetch_queue_depth
        self.instances = execution.instances
        self.padded = execution.padded_batch_sizes
        self._default_level = config.priorities.default
        self._levels = config.priorities.levels
        self._queue = Queue(config.queue)
        self._own = {level: Queue(policy) for level, policy in config.priorities.queues.items()}
        self._tenants = {tenant.tenant_id: tenant.weight for tenant in config.tenants}
        self._verified: dict[str, int] = {}
        self._unlabelled = (
            self._default_level,
            self._own.get(self._default_level, self._queue),
            "",
        )

    def place(self, priority: int, tenant: str) -> tuple[int, Queue, str]:
        """Return the level of a request, where it waits, and whose account pays.

        Priority 0 asks for none. All tenants without a name in the configuration share one account.
        """
        if not priority and not tenant:
            return self._unlabelled
        level = min(priority, self._levels) if priority > 0 else self._default_level
        return level, self._own.get(level, self._queue), tenant if tenant in self._tenants else ""

    def place_verified(self, priority: int, tenant: str, weight: int) -> tuple[int, Queue, str]:
        """Return the same for a request whose tenant and weight are verified.

        It has an account of its own, which nobody gets by a label alone: each pair of tenant and weight has
        one. Beyond `MAX_VERIFIED` of them, such requests are placed by their labels.
        """
        level, queue, account = self.place(priority, tenant)
        verified = f"{tenant}\0{weight}"  # no label can hold that character
        if verified not in self._verified:
            if len(self._verified) >= MAX_VERIFIED:
                return level, queue, account
            self._verified[verified] = weight
        return level, queue, verified

    def weight(self, tenant: str) -> int:
        """Return the share of a tenant, by its account, under contention, relative to the others'."""
        return self._tenants.get(tenant) or self._verified.get(tenant, 1)

    def run_rows(self, rows: int) -> int:
        """Return how many rows run for a batch of `rows`."""
        return next_padded_size(self.padded, rows) if self.padded else rows


def next_padded_size(sizes: tuple[int, ...], rows: int) -> int:
    """Return the next declared size for `rows` rows, or `rows` if there is none."""
    return next((size for size in sizes if size >= rows), rows)
