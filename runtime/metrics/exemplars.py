"""The trace of one recent request per bucket of a histogram, in the memory that all processes share.

Each process writes in its own row, without a lock, while another may read it: an exemplar is only taken if
its check fits, so half of one and half of another are never told as one.
"""

from collections.abc import Sequence
from typing import NamedTuple

from mcp2026.runtime.metrics.families import REQUEST_SECONDS
from mcp2026.runtime.metrics.version_statistics import STATISTICS_END

_BUCKETS = len(REQUEST_SECONDS) + 1
_COLUMNS = 7
"""Value in s, time in s since the epoch, the trace id in four numbers of 32 bits, and the check."""
FIRST = STATISTICS_END
VERSION_COLUMNS = FIRST + _BUCKETS * _COLUMNS
"""Of a version's block in all: metrics, statistics, exemplars."""
COLUMNS = slice(FIRST, VERSION_COLUMNS)


class RequestExemplar(NamedTuple):
    """One request."""

    trace_id: str
    seconds: float
    """How long it took."""
    at: float
    """When it was over, in s since the epoch."""


def keep(row: "memoryview[float]", bucket: int, exemplar: RequestExemplar) -> None:
    """Write the exemplar of a bucket over the one before it."""
    words = [int(exemplar.trace_id[start : start + 8], 16) for start in range(0, 32, 8)]
    cells = (exemplar.seconds, exemplar.at, *words)
    start = FIRST + bucket * _COLUMNS
    for offset, cell in enumerate((*cells, _check(cells))):
        row[start + offset] = cell


def newest(rows: Sequence[Sequence[float]]) -> list[RequestExemplar | None]:
    """Return the newest exemplar of each bucket; `rows` are the exemplars' columns of each process."""
    return [
        max(filter(None, (_read(row, b) for row in rows)), key=_at, default=None) for b in range(_BUCKETS)
    ]


def _read(row: Sequence[float], bucket: int) -> RequestExemplar | None:
    *cells, check = row[bucket * _COLUMNS : (bucket + 1) * _COLUMNS]
    seconds, at, *words = cells
    if not at or check != _check(cells):
        return None
    return RequestExemplar("".join(f"{int(word):08x}" for word in words), seconds, at)


def _check(cells: Sequence[float]) -> float:
    return sum(place * cell for place, cell in enumerate(cells, 1))


def _at(exemplar: RequestExemplar) -> float:
    return exemplar.at
