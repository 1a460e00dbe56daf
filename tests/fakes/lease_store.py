"""Leases kept in memory, as the API server keeps them, which fail as a test asks."""

from dataclasses import replace

from mcp2026.scheduler_extender.election import LeaseRecord
from mcp2026.scheduler_extender.errors import LeaseChangedError, LeaseUnknownError


class LeaseStore:
    """Leases by `namespace/name`. While `problem` is set, nothing is answered."""

    def __init__(self) -> None:
        self.leases: dict[str, LeaseRecord] = {}
        self.problem = ""
        self._version = 0

    def put(self, lease: str, holder: str) -> None:
        """Somebody else writes the Lease."""
        self._version += 1
        self.leases[lease] = LeaseRecord(holder, 15, 0, "", "", str(self._version))

    def holder(self, lease: str) -> str:
        """Who holds it; empty: nobody."""
        return self.leases[lease].holder if lease in self.leases else ""

    async def read(self, lease: str, seconds: float) -> LeaseRecord | None:
        if self.problem:
            raise LeaseUnknownError(self.problem)
        return self.leases.get(lease)

    async def write(self, lease: str, record: LeaseRecord, seconds: float) -> LeaseRecord:
        if self.problem:
            raise LeaseUnknownError(self.problem)
        stored = self.leases.get(lease)
        if record.version != (stored.version if stored is not None else ""):
            raise LeaseChangedError("another one by now")
        self._version += 1
        self.leases[lease] = replace(record, version=str(self._version))
        return self.leases[lease]
