"""What is read out of a run: rates, percentiles, differences of counters. Pure."""

from collections.abc import Iterable, Sequence


def pods_per_second(times: Iterable[float]) -> float:
    """Return how many pods were bound in a second, over the middle nine tenths of `times` in seconds.

    The first wait for the scheduler to begin, and the last for a pause after a failed attempt.
    """
    ordered = sorted(times)
    cut = len(ordered) // 20
    middle = ordered[cut : len(ordered) - cut]
    if len(middle) < 2 or middle[-1] == middle[0]:
        return 0.0
    return (len(middle) - 1) / (middle[-1] - middle[0])


def percentile(values: Sequence[float], fraction: float) -> float:
    """Return the value below which `fraction` of `values` lie; 0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))] if ordered else 0.0
