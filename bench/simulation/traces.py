"""Where jobs come from: a description in YAML from which they are drawn, or a CSV file of real ones."""

import csv
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal

import msgspec

from bench.errors import BenchError
from bench.simulation.jobs import Job

Positive = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]


class Arrivals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Poisson, or Poisson bursts of a geometric number of jobs that come at once."""

    process: Literal["poisson", "bursts"] = "poisson"
    mean_burst: Annotated[float, msgspec.Meta(ge=1, le=1e6)] = 1.0


class Durations(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Log-normal; `sigma` is the standard deviation of the logarithm."""

    median_s: Positive
    sigma: Annotated[float, msgspec.Meta(ge=0, le=10)] = 1.0

    @property
    def mean_s(self) -> float:
        """The mean in seconds."""
        return self.median_s * math.exp(self.sigma**2 / 2)


class Serving(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of which jobs are services with a latency SLO."""

    percent: Percent
    collective_share: Share
    slo_slowdown: Annotated[float, msgspec.Meta(ge=1)]


class Description(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cluster and its jobs.

    `machines` counts nodes by file of tests/topologies. `load`: GPU seconds asked for, of those that the
    cluster has while jobs come. `sizes` and `priorities` are in percent.
    """

    machines: dict[str, Count]
    jobs: Count
    load: Positive
    sizes: dict[Count, Percent]
    duration: Durations
    serving: Serving
    batch_collective_share: Share
    arrivals: Arrivals = Arrivals()
    priorities: dict[int, Percent] = msgspec.field(default_factory=lambda: {0: 100})

    @property
    def mean_gpus(self) -> float:
        """How many GPUs a job asks for, on average."""
        return sum(size * percent for size, percent in self.sizes.items()) / 100


def read_description(path: Path) -> Description:
    """Read a description.

    Raises:
        BenchError: the file cannot be read or a field is wrong; the message names it.

    """
    try:
        described = msgspec.yaml.decode(path.read_bytes(), type=Description)
    except OSError as error:
        raise BenchError(f"{path}: cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise BenchError(f"{path}: {error}") from error
    for field, shares in (("sizes", described.sizes), ("priorities", described.priorities)):
        if sum(shares.values()) != 100:
            raise BenchError(f"{path}: {field}: the sum is {sum(shares.values())}; allowed: 100")
    return described


def synthetic(described: Description, gpus: int, seed: int) -> list[Job]:
    """Draw the jobs for a cluster of `gpus` GPUs, by arrival; equal arguments give equal jobs."""
    draw = Random(seed)
    mean_gap_s = described.mean_gpus * described.duration.mean_s / (described.load * gpus)
    times = _arrival_times(described.arrivals, mean_gap_s, draw)
    return [_job(described, number, next(times), draw) for number in range(described.jobs)]


def _arrival_times(arrivals: Arrivals, mean_gap_s: float, draw: Random) -> Iterator[float]:
    burst = arrivals.mean_burst if arrivals.process == "bursts" else 1.0
    now = 0.0
    while True:
        now += draw.expovariate(1 / (mean_gap_s * burst))
        yield now
        while draw.random() < 1 - 1 / burst:
            yield now


def _job(described: Description, number: int, arrival_s: float, draw: Random) -> Job:
    duration = described.duration
    serving = draw.random() * 100 < described.serving.percent
    return Job(
        name=f"job-{number:05}",
        arrival_s=arrival_s,
        gpus=_drawn(described.sizes, draw),
        duration_s=duration.median_s * math.exp(draw.gauss(0, duration.sigma)),
        priority=_drawn(described.priorities, draw),
        serving=serving,
        collective_share=described.serving.collective_share if serving else described.batch_collective_share,
        slo_slowdown=described.serving.slo_slowdown if serving else float("inf"),
    )


def _drawn(shares: Mapping[int, int], draw: Random) -> int:
    (value,) = draw.choices(list(shares), list(shares.values()))
    return value


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    arrival_s: Annotated[float, msgspec.Meta(ge=0, le=1e12)]
    gpus: Count
    duration_s: Positive
    name: str = ""
    priority: int = 0
    serving: bool = False
    collective_share: Share = 0.0
    slo_slowdown: Annotated[float, msgspec.Meta(ge=1)] = float("inf")


def read_csv(path: Path) -> list[Job]:
    """Read jobs from CSV with a header; `arrival_s`, `gpus`, `duration_s` must be there, the rest may.

    The other columns: `name`, `priority`, `serving` (true or false), `collective_share`, `slo_slowdown`.
    An empty cell is as a column that is not there.

    Raises:
        BenchError: the file cannot be read, or a row is wrong; the message names line and field.

    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            jobs = [_read_row(f"{path}:{rows.line_num}", row, number) for number, row in enumerate(rows)]
    except OSError as error:
        raise BenchError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BenchError(f"{path}: not UTF-8: {error}") from error
    counts = Counter(job.name for job in jobs)
    if twice := sorted(name for name, count in counts.items() if count > 1):
        raise BenchError(f"{path}: name: {twice[0]} is there twice")
    if not jobs:
        raise BenchError(f"{path}: has no jobs")
    return sorted(jobs, key=lambda job: job.arrival_s)


def _read_row(place: str, row: dict[str, Any], number: int) -> Job:
    if None in row:
        raise BenchError(f"{place}: has more cells than the header")
    try:
        read = msgspec.convert({key: cell for key, cell in row.items() if cell}, _Row, strict=False)
    except msgspec.ValidationError as error:
        raise BenchError(f"{place}: {error}") from error
    fields = msgspec.structs.asdict(read)
    return Job(**(fields | {"name": read.name or f"job-{number:05}"}))
