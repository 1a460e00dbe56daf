"""Whether it pays to wait a moment for the callers that were just answered.

Callers that send their next request when they have an answer come back together, a moment after a batch.
An engine that starts with the first of them runs it alone, then all others, then the first alone again.
"""

import math

LONGEST_NS = 5_000_000
SHARE_OF_RUN = 0.1
SHORTEST_NS = 50_000
"""Below this a wait costs as much as it can save."""
LIKELY = 0.5
"""Share of the answered rows that must have come back in time lately."""
LEARNING_RATE = 0.25


class Company:
    """For one lane: who came back within the time that would have been waited, after the last few runs."""

    def __init__(self) -> None:
        self.until = 0
        """A wait ends then, in ns."""
        self.target = 0
        """Rows at which a wait ends; 0: none pays."""
        self._share = 0.0
        self._answered = 0
        self._returned = 0

    def answered(self, rows: int, waiting: int, run_ns: float, fixed_ns: float, now: int) -> None:
        """A run with `rows` rows has ended while `waiting` rows wait: decide on the time that follows.

        `run_ns` is what a run of all of them would take, `fixed_ns` what one run less would save.
        """
        if self._answered:
            back = min(1.0, self._returned / self._answered)
            self._share += (back - self._share) * LEARNING_RATE
        window = min(LONGEST_NS, SHARE_OF_RUN * run_ns, fixed_ns)
        if window < SHORTEST_NS:
            self._answered = self.target = self.until = 0
            return
        self._answered, self._returned = rows, 0
        self.until = now + int(window)
        self.target = waiting + math.ceil(rows * self._share) if self._share >= LIKELY else 0

    def arrived(self, rows: int) -> None:
        """Count rows that came not later than `until`."""
        self._returned += rows
