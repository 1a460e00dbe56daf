"""What is read out of a run: rates, percentiles, and whether any GPU was given away twice. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from bench.scheduling.api_server import Bound


def pods_per_second(bound: Mapping[str, Bound]) -> float:
    """Return how many pods were bound in a second, from the first to the last."""
    times = sorted(pod.at for pod in bound.values())
    if len(times) < 2 or times[-1] == times[0]:
        return 0.0
    return (len(times) - 1) / (times[-1] - times[0])


def percentile(values: Sequence[float], fraction: float) -> float:
    """Return the value below which `fraction` of `values` lie; 0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))] if ordered else 0.0


def double_bookings(bound: Iterable[Bound]) -> int:
    """Return how many devices were reserved for more than one pod, or not for as many as were asked."""
    wrong = 0
    taken: Counter[tuple[str, str]] = Counter()
    for pod in bound:
        devices = [
            device
            for by_resource in pod.assignment.values()
            for those in by_resource.values()
            for device in those
        ]
        wrong += len(devices) != pod.gpus
        taken.update((pod.node, device) for device in devices)
    return wrong + sum(count - 1 for count in taken.values())
