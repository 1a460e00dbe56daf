"""What a cluster's life comes to: a row of figures for each policy and seed, and ratios between them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from bench.simulation.cluster import SIZES, History, Run
from bench.simulation.fleet import Node


@dataclass(frozen=True, slots=True)
class Figures:
    """Times in seconds, the rest are shares of 1, but for `slowdown`.

    `link_of_machine` and `link_of_fleet`: weakest link got over the best for that size that the idle machine,
    or any of the fleet, could give; mean over pods of several GPUs. `slo_misses`: of serving pods.
    `slowdown`: mean of batch pods of several GPUs; 1 is with links of 300 GB/s. `stranded_by_number` and
    `stranded_by_links`: of free GPU time, what belongs to no set of that size.
    """

    wait_p50_s: float
    wait_p99_s: float
    wait_mean_s: float
    link_of_machine: float
    link_of_fleet: float
    slo_misses: float
    slowdown: float
    utilisation: float
    stranded_by_number: Mapping[int, float]
    stranded_by_links: Mapping[int, float]


def figures_of(fleet: Sequence[Node], history: History) -> Figures:
    """Return the figures of one life of `fleet`."""
    waits = sorted(run.waited_s for run in history.runs)
    several = [run for run in history.runs if run.job.gpus > 1]
    serving = [run for run in history.runs if run.job.serving]
    batch = [run for run in several if not run.job.serving]
    time = history.time
    best = {run.job.gpus: max(node.best_link(run.job.gpus) for node in fleet) for run in several}

    def link(run: Run) -> int:
        return fleet[run.placement.node].weakest_link(run.placement.gpus)

    return Figures(
        wait_p50_s=quantile(waits, 0.50),
        wait_p99_s=quantile(waits, 0.99),
        wait_mean_s=_mean(waits),
        link_of_machine=_mean(
            [link(run) / fleet[run.placement.node].best_link(run.job.gpus) for run in several]
        ),
        link_of_fleet=_mean([link(run) / best[run.job.gpus] for run in several]),
        slo_misses=_mean([run.job.misses(link(run)) for run in serving]),
        slowdown=_mean([run.job.slowdown(link(run)) for run in batch], nothing=1.0),
        utilisation=time.held / (time.held + time.free) if time.held else 0.0,
        stranded_by_number={size: _stranded(time.by_number[size], time.free) for size in SIZES},
        stranded_by_links={size: _stranded(time.by_links[size], time.free) for size in SIZES},
    )


def _stranded(usable: float, free: float) -> float:
    return 1 - usable / free if free else 0.0


def _mean(values: Sequence[float], nothing: float = 0.0) -> float:
    return fmean(values) if values else nothing


def quantile(ascending: Sequence[float], share: float) -> float:
    """Return the least value that at least `share` of the values do not exceed; 0 for none."""
    if not ascending:
        return 0.0
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]


@dataclass(frozen=True, slots=True)
class Spread:
    """Of one figure over seeds."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Return the spread of at least one value."""
        return cls(median(values), min(values), max(values))


def spread(rows: Sequence[Figures], figure: Callable[[Figures], float]) -> Spread:
    """Return one figure over seeds."""
    return Spread.of([figure(row) for row in rows])


def ratio(
    ours: Sequence[Figures], theirs: Sequence[Figures], figure: Callable[[Figures], float]
) -> Spread | None:
    """Return ours / theirs over the seeds, each with the same jobs; None where theirs is 0 in one."""
    pairs = [(figure(our), figure(their)) for our, their in zip(ours, theirs, strict=True)]
    if not all(their for _, their in pairs):
        return None
    return Spread.of([our / their for our, their in pairs])
