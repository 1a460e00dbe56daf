"""The one scorer, asked once for each class of (kind of machine, free GPUs, size).

A cluster of thousands of nodes has few kinds of machines in few states, so nearly every answer is known.
"""

from collections import OrderedDict

from mcp2026.scheduler_extender.snapshot import NodeGpus
from mcp2026.topology.score import Choice, best_gpu_set

DEFAULT_LIMIT = 65_536
"""Classes kept. One takes about 1 KiB."""


class ScoreMemo:
    """Remembers the `limit` classes used last. Not for use from several threads at once."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._limit = limit
        self._choices: OrderedDict[tuple[str, tuple[int, ...], int], Choice] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._choices)

    def best(self, gpus: NodeGpus, free: tuple[int, ...], size: int) -> Choice:
        """Return the best set of `size` out of `free`, which has at least `size` GPUs."""
        key = (gpus.fingerprint, free, size)
        choice = self._choices.get(key)
        if choice is not None:
            self.hits += 1
            self._choices.move_to_end(key)
            return choice
        self.misses += 1
        choice = best_gpu_set(gpus.graph, free, size)
        self._choices[key] = choice
        if len(self._choices) > self._limit:
            self._choices.popitem(last=False)
        return choice
