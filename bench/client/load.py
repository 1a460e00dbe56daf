"""What a load on a server gave."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.errors import BenchError


@dataclass(frozen=True)
class LoadResult:
    """Good answers a second, latency of good answers in ms, requests that failed, and how many were good."""

    rate: float
    p50_ms: float
    p99_ms: float
    errors: int
    answers: int


def summarize(latencies_ms: npt.NDArray[np.float64], errors: int, seconds: float) -> LoadResult:
    """Return the result of a load of this length from the latencies of the good answers.

    Raises:
        BenchError: there was no good answer.

    """
    if not latencies_ms.size:
        raise BenchError(f"no good answer in {seconds:g} s, {errors} errors")
    p50, p99 = np.percentile(latencies_ms, (50, 99))
    return LoadResult(latencies_ms.size / seconds, float(p50), float(p99), errors, int(latencies_ms.size))
