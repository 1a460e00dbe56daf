"""The one scorer, asked once for each class of (kind of machine, free GPUs, size, what is known of each GPU).

A cluster of thousands of nodes has few kinds of machines in few states, so nearly every answer is known.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

from mcp2026.scheduler_extender.snapshot import NodeGpus
from mcp2026.topology.bands import NOTHING_KNOWN
from mcp2026.topology.score import Circumstances, Score, best_gpu_set

DEFAULT_LIMIT = 65_536
"""Classes kept. One takes about 1 KiB, with MIG devices up to 3 KiB."""

_Found = TypeVar("_Found")


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
        self._known: OrderedDict[Hashable, Any] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._known)

    def best(
        self,
        gpus: NodeGpus,
        free: tuple[int, ...],
        size: int,
        circumstances: Circumstances = NOTHING_KNOWN,
    ) -> BestSet:
        """Return the best set of `size` out of `free`, which has at least `size` GPUs."""
        asked = (gpus.fingerprint, free, size, None if circumstances is NOTHING_KNOWN else circumstances)
        return self.recall(asked, lambda: _best(gpus, free, size, circumstances))

    def recall(self, asked: Hashable, find: Callable[[], _Found]) -> _Found:
        """Return what `find` returned for the class `asked`, or returns now."""
        known: _Found | None = self._known.get(asked)
        if known is not None:
            self.hits += 1
            self._known.move_to_end(asked)
            return known
        self.misses += 1
        found = find()
        self._known[asked] = found
        if len(self._known) > self._limit:
            self._known.popitem(last=False)
        return found


def _best(gpus: NodeGpus, free: tuple[int, ...], size: int, circumstances: Circumstances) -> BestSet:
    choice = best_gpu_set(gpus.graph, free, size, circumstances=circumstances)
    return BestSet(choice.gpus, choice.score.key, choice.score)
