"""When a failed attempt is made again, and when: pure, with a clock and a die that are given.

Retries cost a server the most when it has the least to spare. So they are bounded three times: by what is
safe (`errors.Retry`), by the deadline of the call, and by a budget that all calls of a client share, a
bucket of tokens: each call puts a fraction of one in, each retry takes one out.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from mcp2026.client.errors import ClientError, DeadlineExceededError, OverloadedError, Retry


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and how soon."""

    attempts: int = 4
    """Most attempts of one call, the first included; 1: no retries."""
    first_pause: float = 0.05
    """Longest pause before the first retry, in s; each next one is twice as long."""
    longest_pause: float = 1.0
    """In s. A server that asks by `Retry-After` for a longer one gets it."""
    budget_ratio: float = 0.2
    """Retries per call that the budget allows in the long run, 0 to 1."""
    budget_reserve: float = 10.0
    """Retries that it allows beyond that, so that a client of few calls can retry at all."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts: {self.attempts} is out of range; allowed: from 1")
        if not 0 <= self.first_pause <= self.longest_pause:
            raise ValueError(f"first_pause: {self.first_pause} s; allowed: 0 to longest_pause")
        if not 0 <= self.budget_ratio <= 1:
            raise ValueError(f"budget_ratio: {self.budget_ratio} is out of range; allowed: 0 to 1")
        if self.budget_reserve < 0:
            raise ValueError(f"budget_reserve: {self.budget_reserve} is out of range; allowed: from 0")


class RetryBudget:
    """The tokens of all calls of one client; any thread may use it.

    In any stretch of n calls there are at most `reserve + ratio * n` retries.
    """

    def __init__(self, ratio: float, reserve: float) -> None:
        self._ratio = ratio
        self._reserve = reserve
        self._tokens = reserve
        self._lock = threading.Lock()

    def call_begins(self) -> None:
        """Put in what one call is worth; the bucket does not hold more than the reserve, or one."""
        with self._lock:
            self._tokens = min(self._tokens + self._ratio, max(self._reserve, 1.0))

    def take(self) -> bool:
        """Take one retry out if there is one."""
        with self._lock:
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True


class Attempts:
    """The attempts of one call and the time that is left for them."""

    def __init__(
        self,
        policy: RetryPolicy,
        budget: RetryBudget,
        timeout: float,
        now: float,
        *,
        idempotent: bool,
        random: Callable[[], float],
    ) -> None:
        """Begin the first attempt at `now`; `random` gives numbers from 0 to 1, `timeout` is in s."""
        budget.call_begins()
        self.timeout = timeout
        self.deadline = now + timeout
        self._policy = policy
        self._budget = budget
        self._idempotent = idempotent
        self._random = random
        self._made = 1

    def timeout_to_send(self, now: float) -> float:
        """Return the s that the server is told; raise if there are none left.

        An attempt that starts in the first hundredth of the timeout tells the whole: servers remember
        questions by their bytes, and a number that differs each time would make each a new one.

        Raises:
            DeadlineExceededError: there is no time left.

        """
        left = self.deadline - now
        if left <= 0:
            raise deadline_exceeded(self.timeout)
        return self.timeout if left >= 0.99 * self.timeout else left

    def pause_after(self, error: ClientError, now: float) -> float:
        """Return the s to wait before the next attempt.

        Raises:
            DeadlineExceededError: the server said that it is busy, without a pause, after the timeout.
            ClientError: `error` itself: there is no next attempt.

        """
        if isinstance(error, OverloadedError) and error.retry_after is None and now >= self.deadline:
            # Triton's protocol has one status for a server that is busy and for a deadline that passed.
            raise deadline_exceeded(self.timeout) from error
        safe = error.retry is Retry.ALWAYS or (error.retry is Retry.IF_IDEMPOTENT and self._idempotent)
        if not safe or self._made >= self._policy.attempts:
            raise error
        longest: float = min(self._policy.first_pause * 2 ** (self._made - 1), self._policy.longest_pause)
        pause = longest * self._random()
        if isinstance(error, OverloadedError) and error.retry_after is not None:
            pause += error.retry_after
        if now + pause >= self.deadline or not self._budget.take():
            raise error
        self._made += 1
        return pause


def deadline_exceeded(timeout: float) -> DeadlineExceededError:
    """Return the error for a call that got no answer within `timeout` s."""
    return DeadlineExceededError(f"no answer within {timeout:g} s")
