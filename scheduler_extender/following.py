"""Does the kube-scheduler beside us lead? Its Lease tells; only then is there somebody to answer (0117)."""

from mcp2026.scheduler_extender.election import LeaseRecord

RANDOM_PART = "_"
"""kube-scheduler calls itself `<host name>_<random>`; no host name has an underscore."""


class SchedulerBeside:
    """What is known of the Lease of the kube-schedulers, one of which runs beside the process `identity`."""

    def __init__(self, identity: str) -> None:
        self._host = identity.partition(RANDOM_PART)[0]
        self._lease: LeaseRecord | None = None
        self._changed = 0.0

    @property
    def holder(self) -> str:
        """Which kube-scheduler leads; empty: none."""
        return self._lease.holder if self._lease is not None else ""

    def read(self, lease: LeaseRecord | None, now: float) -> None:
        """Take what the API server has; None: there is no such Lease."""
        if lease is None or self._lease is None or lease.version != self._lease.version:
            self._changed = now
        self._lease = lease

    def leads(self, now: float) -> bool:
        """Whether ours leads: it holds the Lease, and has renewed it in time as far as we saw."""
        if self._lease is None or self._lease.holder.partition(RANDOM_PART)[0] != self._host:
            return False
        return now - self._changed < self._lease.lease_s
