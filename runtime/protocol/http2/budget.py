"""How often a peer may do something that costs the server more than the peer."""


class Budget:
    """A bucket of tokens that fills with time. The clock is the caller's, in s."""

    __slots__ = ("_per_second", "_since", "_size", "_tokens")

    def __init__(self, size: int, per_second: float, now: float) -> None:
        self._size = float(size)
        self._per_second = per_second
        self._tokens = float(size)
        self._since = now

    def spend(self, now: float) -> bool:
        """Take one token; False if there is none."""
        tokens = min(self._size, self._tokens + (now - self._since) * self._per_second)
        self._since = now
        if tokens < 1.0:
            self._tokens = tokens
            return False
        self._tokens = tokens - 1.0
        return True

    def refund(self, tokens: int) -> None:
        """Give tokens back."""
        self._tokens = min(self._size, self._tokens + tokens)
