"""How many lines a log may get: a flood of bad requests must not fill the disk."""

import msgspec


class LineBudget(msgspec.Struct):
    """So many lines a second, and some more at once. Times in s of one clock, which is passed in."""

    per_second: float
    burst: float
    left_out: int = 0
    """Lines that were not written since the last one that was."""
    _left: float = 0.0
    _at: float = float("-inf")

    def take(self, now: float) -> bool:
        """Return whether a line may be written at `now`."""
        if now > self._at:
            self._left = min(self.burst, self._left + (now - self._at) * self.per_second)
            self._at = now
        if self._left < 1.0:
            self.left_out += 1
            return False
        self._left -= 1.0
        return True
