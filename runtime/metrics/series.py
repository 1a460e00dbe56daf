"""Which metrics there are, where in a row each series lives, and how they are told to Prometheus."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import product, zip_longest
from typing import Literal

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.samples import Exemplar


@dataclass(frozen=True)
class Family:
    """One metric: its name, help, kind, and every value that each label can have."""

    name: str
    help: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Besides the labels `model` and `version` of a version's block."""
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
    """The columns of a block, the same in every process that builds it from the same families."""

    def __init__(self, families: Sequence[Family], shared_labels: tuple[str, ...] = ()) -> None:
        """Lay out `families`; every series has `shared_labels` besides those of its family."""
        self.families = families
        self.shared_labels = shared_labels
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

    def only(self, *families: Family) -> "Layout":
        """Return the layout of some of the families, in the same columns."""
        part = copy(self)
        part.families = families
        return part


@dataclass(frozen=True)
class Block:
    """The totals of one block, and the values of the labels that all of its series share."""

    labels: tuple[str, ...]
    totals: Sequence[float]
    exemplars: Mapping[str, Sequence[Exemplar | None]] = field(default_factory=dict)
    """By the name of a histogram, one for each of its buckets."""


def exposition(parts: Iterable[tuple[Layout, Sequence[Block]]], *, openmetrics: bool = False) -> bytes:
    """Return the blocks of each layout in Prometheus' text format, or in that of OpenMetrics with exemplars.

    A family may stand in several layouts: its series then come from the blocks of all of them.
    """
    registry = CollectorRegistry()
    registry.register(_Totals(parts))
    if openmetrics:
        text: bytes = generate_openmetrics(registry)  # type: ignore[no-untyped-call]  # untyped
        return text
    return generate_latest(registry)


class _Totals(Collector):
    def __init__(self, parts: Iterable[tuple[Layout, Sequence[Block]]]) -> None:
        self._parts = list(parts)

    def collect(self) -> Iterable[Metric]:
        metrics: dict[str, Metric] = {}
        for layout, blocks in self._parts:
            for family in layout.families:
                metric = metrics.setdefault(family.name, _metric(family, layout))
                for block in blocks:
                    _add(metric, family, layout, block)
        return metrics.values()


def _metric(family: Family, layout: Layout) -> Metric:
    makers: dict[str, Callable[..., Metric]] = {
        "counter": CounterMetricFamily,
        "gauge": GaugeMetricFamily,
        "histogram": HistogramMetricFamily,
    }
    labels = [*layout.shared_labels, *(name for name, _ in family.labels)]
    return makers[family.kind](family.name, family.help, labels=labels)


def _add(metric: Metric, family: Family, layout: Layout, block: Block) -> None:
    for values in family.series():
        start = layout.column(family, *values)
        labels = [*block.labels, *values]
        if isinstance(metric, HistogramMetricFamily):
            cells = block.totals[start : start + family.width]
            _add_histogram(metric, labels, family, cells, block.exemplars.get(family.name, ()))
        elif isinstance(metric, CounterMetricFamily | GaugeMetricFamily):
            metric.add_metric(labels, block.totals[start])


def _add_histogram(
    metric: HistogramMetricFamily,
    labels: list[str],
    family: Family,
    cells: Sequence[float],
    exemplars: Sequence[Exemplar | None],
) -> None:
    count = 0.0
    buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = []
    bounds = (*map(str, family.bounds), "+Inf")
    for bound, cell, exemplar in zip_longest(bounds, cells[: len(bounds)], exemplars):
        count += cell
        buckets.append((bound, count) if exemplar is None else (bound, count, exemplar))
    metric.add_metric(labels, buckets, cells[-1])
