"""The one scorer, asked once for each class of (kind of machine, free GPUs, size, what is known of each GPU).

A cluster of thousands of nodes has few kinds of machines in few states, so nearly every answer is known.
"""

from collections import OrderedDict
from dataclasses import dataclass

from mcp2026.scheduler_extender.snapshot import NodeGpus
from mcp2026.topology.bands import NOTHING_KNOWN
from mcp2026.topology.score import Circumstances, Score, best_gpu_set

DEFAULT_LIMIT = 65_536
"""Classes kept. One takes about 1 KiB."""


@dataclass(frozen=True, slots=True)
class BestSet:
    """The best set of one class, as positions, with its score and the score's key."""

    gpus: tuple[int, ...]
    key: tuple[int, ...]
    score: Score


class ScoreMemo:
    """Remembers the `limit` classes used last. Not for use from several threads at once."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._limit = limit
        self._best: OrderedDict[tuple[str, tuple[int, ...], int, Circumstances | None], BestSet] = (
            OrderedDict()
        )
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._best)

    def best(
        self,
        gpus: NodeGpus,
        free: tuple[int, ...],
        size: int,
        circumstances: Circumstances = NOTHING_KNOWN,
    ) -> BestSet:
        """Return the best set of `size` out of `free`, which has at least `size` GPUs."""
        asked = (gpus.fingerprint, free, size, None if circumstances is NOTHING_KNOWN else circumstances)
        known = self._best.get(asked)
        if known is not None:
            self.hits += 1
            self._best.move_to_end(asked)
            return known
        self.misses += 1
        choice = best_gpu_set(gpus.graph, free, size, circumstances=circumstances)
        found = BestSet(choice.gpus, choice.score.key, choice.score)
        self._best[asked] = found
        if len(self._best) > self._limit:
            self._best.popitem(last=False)
        return found
