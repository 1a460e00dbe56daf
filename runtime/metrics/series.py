"""Which metrics there are, and where in a row each series lives."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry


@dataclass(frozen=True)
class Family:
    """One metric: its name, help, kind, and every value that each label can have."""

    name: str
    help: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[tuple[str, tuple[str, ...]], ...] = ()
    bounds: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, without infinity."""

    @property
    def width(self) -> int:
        """Cells of one series: 1, or the buckets, the one up to infinity, and the sum."""
        return len(self.bounds) + 2 if self.kind == "histogram" else 1

    def series(self) -> Iterator[tuple[str, ...]]:
        """Iterate over the label values of every series."""
        return product(*(values for _, values in self.labels))


class Layout:
    """The columns of a table, the same in every process that builds it from the same families."""

    def __init__(self, families: Sequence[Family]) -> None:
        self.families = families
        self._start: dict[tuple[str, tuple[str, ...]], int] = {}
        column = 0
        for family in families:
            for values in family.series():
                self._start[family.name, values] = column
                column += family.width
        self.columns = column

    def column(self, family: Family, *values: str) -> int:
        """Return the first column of a series."""
        return self._start[family.name, values]


def exposition(layout: Layout, totals: Sequence[float]) -> bytes:
    """Return `totals` in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Totals(layout, totals))
    return generate_latest(registry)


class _Totals(Collector):
    def __init__(self, layout: Layout, totals: Sequence[float]) -> None:
        self._layout = layout
        self._totals = totals

    def collect(self) -> Iterable[Metric]:
        for family in self._layout.families:
            labels = [name for name, _ in family.labels]
            if family.kind == "histogram":
                yield self._histogram(family, labels)
                continue
            make = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            metric = make(family.name, family.help, labels=labels)
            for values in family.series():
                metric.add_metric(values, self._totals[self._layout.column(family, *values)])
            yield metric

    def _histogram(self, family: Family, labels: list[str]) -> Metric:
        metric = HistogramMetricFamily(family.name, family.help, labels=labels)
        for values in family.series():
            start = self._layout.column(family, *values)
            cells = self._totals[start : start + family.width]
            count = 0.0
            buckets = []
            for bound, cell in zip((*map(str, family.bounds), "+Inf"), cells, strict=False):
                count += cell
                buckets.append((bound, count))
            metric.add_metric(values, buckets, cells[-1])
        return metric
