"""Which version a request gets that names none: exact shares, and the same one for the same sticky key."""

import math
import random
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from itertools import repeat


class TrafficTable:
    """One immutable revision of the weights, and the position in its deck of 100 requests."""

    def __init__(
        self, weights: Mapping[str, int], shuffle: Callable[[list[str]], None] | None = None
    ) -> None:
        """Take weights in percent that sum to 100; `shuffle` puts a list into another order."""
        self._weights = {version_id: weight for version_id, weight in weights.items() if weight}
        dealt = repeat(*self._weights) if len(self._weights) == 1 else self._deal(shuffle or random.shuffle)
        self.choose: Callable[[], str] = dealt.__next__
        """Return the version of the next request."""

    def choose_for(self, key: bytes) -> str:
        """Return the version of all requests with `key`, in every process that has these weights.

        Weighted rendezvous hashing: where a weight grows, keys only move towards its version, and where a
        version goes, only its own keys move.
        """
        return max(
            self._weights, key=lambda version_id: _affinity(key, version_id, self._weights[version_id])
        )

    def _deal(self, shuffle: Callable[[list[str]], None]) -> Iterator[str]:
        """Deal a deck in which each version lies as often as its weight says, shuffled anew each time.

        The order is left to chance, so that a client that comes back in a fixed rhythm meets every version.
        """
        deck = [version_id for version_id, weight in self._weights.items() for _ in range(weight)]
        while True:
            shuffle(deck)
            yield from deck


def _affinity(key: bytes, version_id: str, weight: int) -> float:
    # Length before content: no two pairs of key and version are the same bytes.
    drawn = blake2b(b"%d:%b%b" % (len(key), key, version_id.encode()), digest_size=8).digest()
    uniform = (int.from_bytes(drawn, "big") + 0.5) / 2**64
    return -weight / math.log(uniform)
