"""What kube-scheduler's own metrics tell of its calls of the extender. Pure.

It has no histogram of these calls. It has the time of each attempt to choose a node
(`scheduler_scheduling_algorithm_duration_seconds`) and, within that, of its plugins
(`scheduler_framework_extension_point_duration_seconds`). What is left of the first is the extender, with the
scheduler's writing and reading of JSON, and the scheduler's snapshot of the cluster; a scheduler without an
extender shows the latter alone. So there is a mean of the calls, but no distribution: for that there is only
the bound that no call takes longer than its attempt.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from prometheus_client.parser import text_string_to_metric_families

ATTEMPTS = "scheduler_scheduling_algorithm_duration_seconds"
PLUGINS = "scheduler_framework_extension_point_duration_seconds"
OF_AN_ATTEMPT = ("PreFilter", "Filter", "PreScore", "Score")


@dataclass(frozen=True, slots=True)
class Attempts:
    """The attempts of one scheduler: how many, and the seconds of all of them together."""

    count: float
    seconds: float
    in_plugins: float
    """Seconds of these that its plugins took."""
    up_to: tuple[tuple[float, float], ...]
    """Upper bound of the time of an attempt in seconds → how many took as long or less."""

    @property
    def mean_ms(self) -> float:
        """Of an attempt."""
        return 1e3 * self.seconds / self.count if self.count else 0.0

    @property
    def outside_plugins_ms(self) -> float:
        """The mean of what is neither plugin."""
        return 1e3 * (self.seconds - self.in_plugins) / self.count if self.count else 0.0

    def at_most_ms(self, fraction: float) -> float:
        """Return the bucket's bound below which `fraction` of the attempts lie; infinite if it is none."""
        enough = (bound for bound, count in self.up_to if count >= fraction * self.count)
        return 1e3 * next(enough, inf)


def attempts(page: str) -> Attempts:
    """Return what a page of kube-scheduler's metrics tells."""
    count = seconds = in_plugins = 0.0
    up_to: list[tuple[float, float]] = []
    for name, labels, value in _samples(page):
        if name == f"{ATTEMPTS}_count":
            count = value
        elif name == f"{ATTEMPTS}_sum":
            seconds = value
        elif name == f"{ATTEMPTS}_bucket":
            up_to.append((float(labels["le"]), value))
        elif name == f"{PLUGINS}_sum" and labels["extension_point"] in OF_AN_ATTEMPT:
            in_plugins += value
    return Attempts(count, seconds, in_plugins, tuple(sorted(up_to)))


def both(first: Attempts, second: Attempts) -> Attempts:
    """Return the attempts of two schedulers together."""
    bounds = dict(second.up_to)
    return Attempts(
        first.count + second.count,
        first.seconds + second.seconds,
        first.in_plugins + second.in_plugins,
        tuple((bound, count + bounds.get(bound, 0.0)) for bound, count in first.up_to),
    )


def _samples(page: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for family in text_string_to_metric_families(page):
        if family.name in (ATTEMPTS, PLUGINS):
            for sample in family.samples:
                yield sample.name, sample.labels, sample.value
