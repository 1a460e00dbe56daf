"""Calls ONNX Runtime in a loop and prints rate and latency as one line of JSON.

`python -m bench.peers.raw.program SECONDS BATCH`, with the task in the environment.
"""

import json
import sys
import time

import numpy as np

from bench.peers.session import open_session
from bench.peers.task import Task, read_task

WARM_UP_S = 0.3


def measure(task: Task, seconds: float, batch: int) -> dict[str, float]:
    """Return rows a second, and percentiles of one call in ms, with `batch` rows a call."""
    session = open_session(task)
    rows = np.random.default_rng(0).standard_normal((batch, *task.input_shape), np.float32)
    warm = time.perf_counter() + WARM_UP_S
    session.run(None, {"input": rows})
    while time.perf_counter() < warm:
        session.run(None, {"input": rows})
    durations = []
    start = last = time.perf_counter()
    while last - start < seconds:
        session.run(None, {"input": rows})
        now = time.perf_counter()
        durations.append(now - last)
        last = now
    p50, p99 = np.percentile(durations, (50, 99)) * 1000
    return {
        "rate": len(durations) * batch / (last - start),
        "p50_ms": p50,
        "p99_ms": p99,
        "calls": len(durations),
    }


if __name__ == "__main__":
    print(json.dumps(measure(read_task(), float(sys.argv[1]), int(sys.argv[2]))))
