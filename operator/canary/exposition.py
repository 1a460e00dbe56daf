"""What one pod has counted, read from the text of its `/metrics`."""

import math
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from mcp2026.operator.canary.counts import Counts

REQUESTS = "mcp2026_requests_total"
"""By `model`, `version` and `code`, the HTTP status."""
DURATIONS = "mcp2026_request_duration_seconds_bucket"
"""By `model`, `version` and `le`: answered requests up to that time."""
_READ = (f"{REQUESTS}{{", f"{DURATIONS}{{")


class UnreadableMetricsError(Exception):
    """A page is not what the runtime writes."""


def read_counts(page: str, model: str) -> dict[str, Counts]:
    """Return what `page` tells of each version of `model`.

    Answers of the class 4xx count nowhere: they are the caller's fault, and say nothing about the version.

    Raises:
        UnreadableMetricsError: the page cannot be parsed, or has a count that is none.

    """
    try:
        return {version: _counts(samples) for version, samples in _by_version(page, model).items()}
    except (ValueError, KeyError) as error:
        raise UnreadableMetricsError(f"{type(error).__name__}: {error}") from error


def _by_version(page: str, model: str) -> dict[str, list[Sample]]:
    # Only these lines: the parser takes far longer for a line than the look at its beginning.
    lines = "".join(line for line in page.splitlines(keepends=True) if line.startswith(_READ))
    found: dict[str, list[Sample]] = {}
    for sample in _samples(lines):
        if sample.labels["model"] != model or not sample.labels["version"]:
            continue
        if not (math.isfinite(sample.value) and sample.value >= 0):
            raise ValueError(f"{sample.name} is {sample.value}")
        found.setdefault(sample.labels["version"], []).append(sample)
    return found


def _samples(lines: str) -> Iterator[Sample]:
    for family in text_string_to_metric_families(lines):
        yield from family.samples


def _counts(samples: Iterable[Sample]) -> Counts:
    by_class = {"2": 0, "5": 0}
    up_to: dict[float, int] = {}
    for sample in samples:
        count = int(sample.value)
        if sample.name == DURATIONS:
            up_to[_bound(sample.labels["le"])] = count
        elif (code_class := sample.labels["code"][:1]) in by_class:
            by_class[code_class] += count
    return Counts(sum(by_class.values()), by_class["5"], _each_alone(up_to))


def _bound(text: str) -> float:
    bound = float(text)
    if math.isnan(bound):
        raise ValueError(f"{text} is no bound")
    return bound


def _each_alone(up_to: Mapping[float, int]) -> dict[float, int]:
    """Return buckets that do not hold the ones before them.

    Processes count on while the page is written, so a bucket may be read as fuller than the next one.
    """
    alone, before = {}, 0
    for bound in sorted(up_to):
        alone[bound] = max(up_to[bound] - before, 0)
        before = max(up_to[bound], before)
    return alone
