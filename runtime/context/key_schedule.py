"""When a key set is fetched again."""

from typing import Final

import msgspec

DEFAULT_SECONDS: Final = 300.0
SHORTEST_SECONDS: Final = 10.0
LONGEST_SECONDS: Final = 3_600.0
FIRST_RETRY_SECONDS: Final = 1.0
LONGEST_RETRY_SECONDS: Final = 300.0


class KeySchedule(msgspec.Struct):
    """Times in s of one clock, which is passed in."""

    due: float = 0.0
    _failures: int = 0
    _fetched: float = float("-inf")

    def succeeded(self, now: float, cache_control: str | None) -> None:
        """The set was fetched, or has not changed."""
        self._failures = 0
        self._fetched = now
        self.due = now + lifetime(cache_control)

    def failed(self, now: float) -> None:
        """It could not be fetched, or is no key set."""
        self.due = now + min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2.0**self._failures)
        self._failures = min(self._failures + 1, 16)

    def wanted(self) -> None:
        """A token names a key that is not in the set: it may be newer than the set."""
        if not self._failures:
            self.due = min(self.due, self._fetched + SHORTEST_SECONDS)


def lifetime(cache_control: str | None) -> float:
    """Return how long a response may be used, in s, within bounds of our own."""
    for directive in (cache_control or "").lower().split(","):
        name, _, value = directive.strip().partition("=")
        if name in ("no-store", "no-cache"):
            return SHORTEST_SECONDS
        if name == "max-age" and value.strip('"').isdecimal() and len(value) < 12:
            return min(LONGEST_SECONDS, max(SHORTEST_SECONDS, float(value.strip('"'))))
    return DEFAULT_SECONDS
