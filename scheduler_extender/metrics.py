"""What Prometheus sees of the extender. Cache figures are read when it asks, not kept in step."""

from collections.abc import Iterator
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mcp2026.scheduler_extender.cache import ClusterCache
from mcp2026.scheduler_extender.leadership import Alone, Leadership
from mcp2026.scheduler_extender.score_memo import ScoreMemo

LATENCY_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Seconds. kube-scheduler gives up after its `httpTimeout`, 5 s by default."""


class Outcome(StrEnum):
    """How a call of a verb ended."""

    FITS = "fits"
    """filter found a node, or preempt one where evicting pods helps."""
    NOTHING_FITS = "nothing_fits"
    BOUND = "bound"
    REFUSED = "refused"
    """bind was refused by the API server, or its outcome is not known."""
    RANKED = "ranked"
    """prioritize gave its list."""
    NOT_SYNCED = "not_synced"
    STANDING_BY = "standing_by"
    """Another extender leads."""
    MALFORMED = "malformed"
    FAILED = "failed"
    """An error of ours."""


class Metrics:
    """The instruments, in a registry of their own."""

    def __init__(self, cache: ClusterCache, memo: ScoreMemo, leadership: Leadership | None = None) -> None:
        self.registry = CollectorRegistry()
        self.decisions = Counter(
            "mcp2026_extender_decisions",
            "Calls of a verb by how they ended.",
            ("verb", "outcome"),
            registry=self.registry,
        )
        self.latency = Histogram(
            "mcp2026_extender_verb_seconds",
            "Time from the whole body to the whole answer, in seconds.",
            ("verb",),
            buckets=LATENCY_BUCKETS,
            registry=self.registry,
        )
        self.watch_breaks = Counter(
            "mcp2026_extender_watch_breaks",
            "Lists and watches that ended with an error, by kind of object.",
            ("kind",),
            registry=self.registry,
        )
        self.registry.register(_StateCollector(cache, memo, leadership or Alone()))


class _StateCollector(Collector):
    def __init__(self, cache: ClusterCache, memo: ScoreMemo, leadership: Leadership) -> None:
        self._cache = cache
        self._memo = memo
        self._leadership = leadership

    def collect(self) -> Iterator[Metric]:
        objects = GaugeMetricFamily(
            "mcp2026_extender_cache_objects",
            "Objects kept of each kind; of pods only those that are bound and ask for GPUs.",
            labels=("kind",),
        )
        synced = GaugeMetricFamily(
            "mcp2026_extender_synced", "1 once the kind was read whole, else 0.", labels=("kind",)
        )
        waiting_for = self._cache.waiting_for
        for kind, size in self._cache.sizes.items():
            objects.add_metric((kind,), size)
            synced.add_metric((kind,), kind not in waiting_for)
        scores = CounterMetricFamily(
            "mcp2026_extender_scores", "Scores of node classes: remembered or computed.", labels=("source",)
        )
        scores.add_metric(("memo",), self._memo.hits)
        scores.add_metric(("computed",), self._memo.misses)
        classes = GaugeMetricFamily("mcp2026_extender_score_classes", "Classes remembered.", len(self._memo))
        leading = GaugeMetricFamily(
            "mcp2026_extender_leading",
            "1 while this extender answers the verbs, 0 while another one does.",
            int(self._leadership.standing().leads),
        )
        terms = CounterMetricFamily(
            "mcp2026_extender_terms", "How often this extender has become the leader.", self._leadership.terms
        )
        yield from (objects, synced, scores, classes, leading, terms)
