"""Which version a request gets that names none: exact shares, spread evenly, without chance."""

from collections.abc import Mapping
from itertools import cycle


class TrafficTable:
    """One immutable revision of the weights, and the position in its cycle of 100 requests."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        """Take weights in percent that sum to 100."""
        self.choose = cycle(_spread(weights)).__next__
        """Return the version of the next request."""


def _spread(weights: Mapping[str, int]) -> list[str]:
    """Smooth weighted round robin: of any 100 requests in a row each version gets exactly its weight."""
    total = sum(weights.values())
    credit = dict.fromkeys(weights, 0)
    cycle = []
    for _ in range(total):
        for version_id, weight in weights.items():
            credit[version_id] += weight
        chosen = max(credit, key=lambda version_id: credit[version_id])
        credit[chosen] -= total
        cycle.append(chosen)
    return cycle
