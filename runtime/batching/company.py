"""Whether it pays to wait a moment for the callers that were just answered.

Callers that send their next request when they have an answer come back together, a moment after a batch.
Where a run has a cost that does not grow with its rows, running them together again saves it. Else nothing
is lost by starting at once with those that are there: the callers then take turns in two groups, and each
has its answer after one run of either.

What must not happen is that the two alternate. Whoever has just missed a batch that waited waits for that
batch, and then for the next one too: twice as long as everybody else. So a wait begins only when nearly all
have come back in time lately, and the more nearly, the less there is to save; and each time that this turns
out wrong it takes twice as many runs until it is tried again.
"""

import math

LONGEST_NS = 20_000_000
SHARE_OF_SAVING = 0.5
"""A wait is at most this part of what it saves."""
SHORTEST_NS = 50_000
"""Below this a wait costs as much as it can save."""
TOLERANCE = 0.125
"""Part of the rows that may miss a wait which saves the whole run; one that saves little bears fewer."""
LEARNING_RATE = 0.25
SHORTEST_PAUSE = 8
LONGEST_PAUSE = 1024
"""Runs after a wait was given up until the next one."""


class Company:
    """For one lane: who came back within the time that could have been waited, after the last few runs."""

    def __init__(self) -> None:
        self.until = 0
        """A wait ends then, in ns."""
        self.target = 0
        """Rows at which a wait ends; 0: none pays."""
        self._share = 0.0
        self._answered = 0
        self._returned = 0
        self._pause = SHORTEST_PAUSE
        self._runs_since_change = SHORTEST_PAUSE

    def answered(self, rows: int, waiting: int, run_ns: float, fixed_ns: float, now: int) -> None:
        """A run with `rows` rows has ended while `waiting` rows wait: decide on the time that follows.

        `run_ns` is what a run of all of them would take, `fixed_ns` what one run less would save.
        """
        if self._answered:
            back = min(1.0, self._returned / self._answered)
            self._share += (back - self._share) * LEARNING_RATE
        self._answered = self._returned = 0
        self._runs_since_change += 1
        window = min(LONGEST_NS, SHARE_OF_SAVING * fixed_ns)
        if window < SHORTEST_NS:
            self.target = self.until = 0
            return
        self._answered = rows
        self.until = now + int(window)
        waits = self._pays(fixed_ns / run_ns)
        self.target = waiting + math.ceil(rows * self._share) if waits else 0

    def _pays(self, saving: float) -> bool:
        """Return whether to wait, if that saves this part of a run."""
        likely = self._share >= 1 - TOLERANCE * saving * saving
        if self.target:
            if not likely:
                self._pause = min(LONGEST_PAUSE, 2 * self._pause)
                self._runs_since_change = 0
            elif self._runs_since_change >= 2 * self._pause:
                self._pause = SHORTEST_PAUSE
            return likely
        if likely and self._runs_since_change >= self._pause:
            self._runs_since_change = 0
            return True
        return False

    def arrived(self, rows: int) -> None:
        """Count rows that came not later than `until`."""
        self._returned += rows
