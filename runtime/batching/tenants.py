"""Who goes first: strict priority levels, and in each level tenants that share execution time by weight.

Deficit round-robin with a vanishing quantum, also known as start-time fair queueing: Goyal, Vin, Cheng,
"Start-Time Fair Queueing", SIGCOMM 1996.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp2026.runtime.batching.lanes import Backlog, Lane
    from mcp2026.runtime.batching.request import Batch


class Account:
    """What one tenant has used in one level."""

    __slots__ = ("backlogs", "debt", "formed", "last_seen", "level", "own_run_ns", "tenant")

    def __init__(self, level: "Level", tenant: str) -> None:
        self.level = level
        self.tenant = tenant
        self.debt = 0.0
        """ns of execution divided by the tenant's weight. The least debt goes first."""
        self.backlogs: dict[Lane, Backlog] = {}
        """Only those in which requests wait."""
        self.formed: list[Batch] = []
        """Its batches that were formed ahead and do not run yet."""
        self.last_seen = 0
        self.own_run_ns = 0.0
        """How long its requests would usually run if they ran by themselves; 0: not known."""

    @property
    def waits(self) -> bool:
        """Whether anything of it may be run."""
        return bool(self.backlogs or self.formed)

    def charge(self, run_ns: float, weight: int) -> None:
        """Add run time to the debt, or give back what was charged too much."""
        self.debt += run_ns / weight

    def would_run(self, run_ns: float) -> None:
        """Take in how long the requests that wait now would run by themselves."""
        self.own_run_ns += (run_ns - self.own_run_ns) * (0.125 if self.own_run_ns else 1.0)


class Level:
    """One priority: its tenants, and the debt of the one that was served last."""

    __slots__ = ("_clock", "accounts", "number", "waiting")

    def __init__(self, number: int) -> None:
        self.number = number
        self.accounts: dict[str, Account] = {}
        self.waiting: dict[str, Account] = {}
        """Those of them that have something to run."""
        self._clock = 0.0

    def account(self, tenant: str) -> Account:
        """Return the account of `tenant`."""
        account = self.accounts.get(tenant)
        if account is None:
            account = self.accounts[tenant] = Account(self, tenant)
        return account

    def joins(self, account: Account) -> None:
        """`account` has something to run: a pause saves up no credit."""
        if account.tenant not in self.waiting:
            account.debt = max(account.debt, self._clock)
            self.waiting[account.tenant] = account

    def leaves(self, account: Account) -> None:
        """Take `account` off the list if nothing of it waits."""
        if not account.waits:
            self.waiting.pop(account.tenant, None)

    def serves(self, account: Account) -> None:
        """`account` is served now, before it is charged."""
        self._clock = max(self._clock, account.debt)

    def in_turn(self) -> list[Account]:
        """Return the accounts that have something to run, least debt first."""
        accounts = list(self.waiting.values())
        if len(accounts) > 1:
            accounts.sort(key=_debt)
        return accounts


def _debt(account: Account) -> float:
    return account.debt
