"""Who of several extenders leads? The rules of an election by Lease, without its requests (0117).

As in client-go's leader election (`k8s.io/client-go/tools/leaderelection`): the holder writes itself into a
`coordination.k8s.io/v1` Lease and renews that; the others take it once they have seen it unchanged for as
long as it is valid. Seen here, by a clock that only grows: the times in the Lease are never compared with it.
Every write names the version that was read, so of two that come at once one is refused.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """Seconds, as client-go names them, with its defaults."""

    lease_s: float = 15.0
    """How long a Lease that nobody renews is valid for those who watch it."""
    renew_s: float = 10.0
    """How long after its last renewal a leader answers."""
    retry_s: float = 2.0
    """Between two renewals, and between two looks at another's Lease."""


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A Lease's spec: times as RFC 3339, for people. `version`: its resourceVersion, empty if not stored."""

    holder: str
    lease_s: int
    transitions: int
    acquired: str
    renewed: str
    version: str = ""


@dataclass(frozen=True, slots=True)
class WriteLease:
    """Store `record`: over the version that it names, or as a new object if it names none."""

    record: LeaseRecord


READ: Literal["read"] = "read"
Step = Literal["read"] | WriteLease


class Wish(Enum):
    """What this process wants of the Lease."""

    LEAD = "lead"
    ABSTAIN = "abstain"
    """Write nothing: neither renew nor let go."""
    LEAVE = "leave"
    """Let it go if it is held."""


class Election:
    """One candidate. The caller carries out `next_step` and tells how it ended; `now` is in seconds.

    `sent` is the time before the request was sent: whatever the API server did, it did not do it earlier.
    """

    def __init__(self, identity: str, timing: LeaseTiming) -> None:
        self.identity = identity
        self.timing = timing
        self.term = 0
        """Counts up whenever the Lease becomes ours and may have been another's before."""
        self.due = 0.0
        """When there is a next step."""
        self.problem = "it was not read yet"
        """Why the last request failed; empty if it did not."""
        self._wish = Wish.LEAD
        self._lease: LeaseRecord | None = None
        self._changed = 0.0
        self._fresh = False
        """Whether `_lease` is the answer to the last request."""
        self._unbroken = False
        self._renewed: float | None = None

    @property
    def holder(self) -> str:
        """Who held the Lease when it was last seen; empty: nobody."""
        return self._lease.holder if self._lease is not None else ""

    @property
    def holds(self) -> bool:
        """Whether the Lease is ours as far as we know, valid or not."""
        return self._unbroken

    def unchanged_for(self, now: float) -> float:
        """Return for how many seconds the Lease has been seen as it is."""
        return now - self._changed

    def leads(self, now: float) -> bool:
        """Whether this process may answer."""
        if self._wish is not Wish.LEAD or self._renewed is None:
            return False
        return now < self._renewed + self.timing.renew_s

    def seconds_alone(self, now: float) -> float:
        """Return for how many seconds nobody else can have taken the Lease."""
        return 0.0 if self._renewed is None else self._renewed + self.timing.lease_s - now

    def want(self, wish: Wish, now: float) -> None:
        """Take note of what is wanted from now on."""
        if wish is not self._wish:
            self._wish = wish
            self.due = now

    def hurry(self, now: float) -> None:
        """Look at the Lease now rather than at the end of the pause."""
        self.due = min(self.due, now)

    def next_step(self, now: float, wall: str) -> Step | None:
        """Return what to do; None: nothing before `due`. `wall` is the time that people read in the Lease."""
        if now < self.due:
            return None
        if not self._fresh:
            return READ
        return self._write(now, wall) or READ

    def read(self, lease: LeaseRecord | None, now: float) -> None:
        """Take what the API server has; None: there is no such Lease."""
        if lease is None or self._lease is None or lease.version != self._lease.version:
            self._changed = now
        self._lease = lease
        self.problem = ""
        if lease is None or lease.holder != self.identity:
            self._unbroken, self._renewed = False, None
        self._fresh = self._write(now, "") is not None
        self.due = now if self._fresh else now + self.timing.retry_s

    def written(self, lease: LeaseRecord, sent: float, now: float) -> None:
        """Take what the API server has stored."""
        self._lease, self._changed, self._fresh = lease, now, True
        self.problem = ""
        self.due = now + self.timing.retry_s
        if lease.holder != self.identity:
            self._unbroken, self._renewed = False, None
            self._fresh = False
            return
        if not self._unbroken:
            self.term += 1
        self._unbroken, self._renewed = True, sent

    def overtaken(self, now: float) -> None:
        """Take note that a write was refused because the Lease is another one by now."""
        self._fresh, self.due = False, now

    def failed(self, problem: str, now: float) -> None:
        """Take note that a request has failed; whether a write was stored is not known."""
        self.problem = problem
        self._fresh, self.due = False, now + self.timing.retry_s

    def _write(self, now: float, wall: str) -> WriteLease | None:
        """Return the write that what was read allows and that is wanted."""
        lease = self._lease
        ours = LeaseRecord(self.identity, round(self.timing.lease_s), 0, wall, wall)
        if lease is None:
            return WriteLease(ours) if self._wish is Wish.LEAD else None
        if lease.holder == self.identity:
            match self._wish:
                case Wish.LEAD:
                    return WriteLease(replace(lease, lease_s=ours.lease_s, renewed=wall))
                case Wish.LEAVE:
                    return WriteLease(replace(lease, holder="", lease_s=1, renewed=wall))
                case Wish.ABSTAIN:
                    return None
        valid = max(self.timing.lease_s, lease.lease_s)
        if self._wish is not Wish.LEAD or (lease.holder and self.unchanged_for(now) < valid):
            return None
        transitions = lease.transitions + 1
        return WriteLease(replace(ours, transitions=transitions, version=lease.version))
