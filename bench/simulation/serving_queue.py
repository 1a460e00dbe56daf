"""How long do requests take on a GPU, or a slice, that serves one model or several in turn? A queue.

Requests come at random (Poisson). Whoever executes takes the model whose oldest request has waited longest,
as many of its requests as wait and a run takes, and runs them together: roughly the runtime's policy without
delays, priorities and tenants (docs/decisions/0013). A run is not interrupted.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from random import Random

GPU_COMPUTE_SLICES = 7
MEASURED_SHARE = 0.9
"""Of the time; before, queues fill."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model, its traffic, and what it promises.

    A run of n requests takes `fixed_ms` + n · `row_ms` on a whole GPU. `loss` tells how much it loses on a
    slice: with c of 7 compute slices each row takes (7 / c) ** `loss` times as long; 0 is nothing, 1 is in
    proportion. `fixed_ms` is the host's and stays.
    """

    name: str
    memory_mib: int
    rate_per_s: float
    fixed_ms: float
    row_ms: float
    loss: float
    largest_batch: int
    slo_ms: float

    def run_ms(self, requests: int, compute_slices: float) -> float:
        """Return how long a run of so many requests takes."""
        slower: float = (GPU_COMPUTE_SLICES / compute_slices) ** self.loss
        return self.fixed_ms + requests * self.row_ms * slower

    def load(self, compute_slices: float) -> float:
        """Return its traffic over what full batches could serve; from 1 on the queue grows for ever."""
        full = self.run_ms(self.largest_batch, compute_slices) / self.largest_batch
        return self.rate_per_s * full / 1_000


def latencies_ms(
    models: Sequence[ServedModel], compute_slices: float, seconds: float, seed: int
) -> Mapping[str, list[float]]:
    """Return the latency of each request of each model in the last nine tenths of `seconds`.

    A model's requests depend on its name, rate and `seed` alone, so they are the same in every arrangement.
    """
    arrivals = merge(*(_arrivals(model, place, seconds, seed) for place, model in enumerate(models)))
    waiting: list[deque[float]] = [deque() for _ in models]
    found: list[list[float]] = [[] for _ in models]
    measured_from = 1_000 * seconds * (1 - MEASURED_SHARE)
    now = 0.0
    coming = next(arrivals, None)
    while coming is not None or any(waiting):
        if coming is not None and not any(waiting):
            now = max(now, coming[0])
        while coming is not None and coming[0] <= now:
            waiting[coming[1]].append(coming[0])
            coming = next(arrivals, None)
        turn = min((queue[0], place) for place, queue in enumerate(waiting) if queue)[1]
        queue, model = waiting[turn], models[turn]
        batch = [queue.popleft() for _ in range(min(len(queue), model.largest_batch))]
        now += model.run_ms(len(batch), compute_slices)
        found[turn] += [now - came for came in batch if came >= measured_from]
    return {model.name: latencies for model, latencies in zip(models, found, strict=True)}


def _arrivals(model: ServedModel, place: int, seconds: float, seed: int) -> list[tuple[float, int]]:
    """Return pairs of a time in ms and `place`."""
    draw = Random(f"{seed} {model.name}")
    times = []
    now = draw.expovariate(model.rate_per_s)
    while now < seconds:
        times.append((1_000 * now, place))
        now += draw.expovariate(model.rate_per_s)
    return times
