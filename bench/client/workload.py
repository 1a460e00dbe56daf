"""Several kinds of requests at the same time, each in a closed loop or at a rate, by a process of its own.

At a rate, requests are due at random times of a Poisson process whatever the answers do, and latency
counts from when a request was due: a server that stalls cannot hide it.
"""

import asyncio
import base64
import json
import subprocess
import sys
import time
from array import array
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import uvloop

from bench.client.connection import ClientConnection
from bench.client.load import LoadResult
from bench.cores import Cores
from bench.errors import BenchError
from bench.exchange import Exchange
from bench.peers.peer import ROOT

LONGEST_WARM_UP_S = 1.0
LONGEST_TAIL_S = 2.0
"""How long answers that are still on the way at the end are waited for."""
OK = 200
_SEED = 1


@dataclass(frozen=True)
class Stream:
    """Requests of one kind: `connections` in a closed loop, or `rate` a second over these connections."""

    name: str
    exchange: Exchange
    connections: int
    rate: float | None = None

    def request(self) -> bytes:
        """Return the bytes of one request."""
        exchange = self.exchange
        lines = [
            f"POST {exchange.path} HTTP/1.1",
            f"host: {exchange.address.authority}",
            f"content-length: {len(exchange.body)}",
            *(f"{name}: {value}" for name, value in exchange.headers),
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + exchange.body


@dataclass(frozen=True)
class StreamResult:
    """What one stream gave in the measured time. Latencies in ms are of answers with status 200."""

    answers: int
    statuses: dict[int, int]
    p50_ms: float
    p99_ms: float
    worst_ms: float
    lag_p99_ms: float
    """How late the client itself sent what was due: if this is not small, the client was the bottleneck."""
    per_second: list[int]
    """Good answers in each second."""

    @property
    def errors(self) -> int:
        """Answers with another status, and requests without one (status 0)."""
        return sum(count for status, count in self.statuses.items() if status != OK)

    def as_load_result(self, seconds: float) -> LoadResult:
        """Return it as a closed loop's result."""
        if not self.answers:
            raise BenchError(f"no good answer in {seconds:g} s; statuses {self.statuses}")
        return LoadResult(self.answers / seconds, self.p50_ms, self.p99_ms, self.errors, self.answers)


def run(streams: Sequence[Stream], seconds: float, cores: Cores) -> dict[str, StreamResult]:
    """Run the streams from a process on `cores` for `seconds` after a warm-up; return results by name."""
    job = {
        "seconds": seconds,
        "streams": [
            {
                "name": stream.name,
                "port": stream.exchange.address.port,
                "unix": stream.exchange.address.unix,
                "request": base64.b64encode(stream.request()).decode(),
                "connections": stream.connections,
                "rate": stream.rate,
            }
            for stream in streams
        ],
    }
    process = subprocess.run(
        cores.command([sys.executable, "-m", "bench.client.workload"]),
        start_new_session=True,
        input=json.dumps(job),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        raise BenchError(f"the client failed:\n{process.stderr[-2000:]}")
    found = json.loads(process.stdout)
    for result in found.values():
        result["statuses"] = {int(status): count for status, count in result["statuses"].items()}
    return {name: StreamResult(**result) for name, result in found.items()}


@dataclass
class _Load:
    """One stream while it runs."""

    name: str
    request: bytes
    connections: int
    rate: float | None
    port: int
    unix: str | None
    begins: float = 0.0
    ends: float = 0.0
    idle: deque[ClientConnection] = field(default_factory=deque)
    late: deque[float] = field(default_factory=deque)
    latencies: "array[float]" = field(default_factory=lambda: array("d"))
    lags: "array[float]" = field(default_factory=lambda: array("d"))
    done_at: "array[float]" = field(default_factory=lambda: array("d"))
    statuses: Counter[int] = field(default_factory=Counter)

    async def connect(self) -> None:
        """Open all connections."""
        loop = asyncio.get_running_loop()
        for _ in range(self.connections):
            self.idle.append(await self._open(loop))

    async def _open(self, loop: asyncio.AbstractEventLoop) -> ClientConnection:
        def make() -> ClientConnection:
            return ClientConnection(self._answered)

        if self.unix:
            return (await loop.create_unix_connection(make, self.unix))[1]
        return (await loop.create_connection(make, "127.0.0.1", self.port))[1]

    def _answered(self, connection: ClientConnection, status: int) -> None:
        now = time.perf_counter()
        # By when it was due, not when it was answered: else the slowest would fall out at the end.
        if self.begins <= connection.sent_at < self.ends:
            self.statuses[status] += 1
            if status == OK:
                self.latencies.append(now - connection.sent_at)
                self.done_at.append(now)
        if not connection.is_open or now >= self.ends:
            return
        if self.rate is None:
            connection.send(self.request, now)
        elif self.late:
            connection.send(self.request, self.late.popleft())
        else:
            self.idle.append(connection)

    def result(self) -> dict[str, Any]:
        """Return the measured part as plain data."""
        percentiles = np.percentile(self.latencies, (50, 99, 100)) * 1000 if self.latencies else np.zeros(3)
        seconds = np.floor(np.array(self.done_at) - self.begins).astype(int)
        counts = np.bincount(np.clip(seconds, 0, None), minlength=int(self.ends - self.begins))
        return {
            "answers": len(self.latencies),
            "statuses": dict(self.statuses),
            "p50_ms": float(percentiles[0]),
            "p99_ms": float(percentiles[1]),
            "worst_ms": float(percentiles[2]),
            "lag_p99_ms": float(np.percentile(self.lags, 99) * 1000) if self.lags else 0.0,
            "per_second": counts[: max(1, int(self.ends - self.begins))].tolist(),
        }


async def _run(job: dict[str, Any]) -> dict[str, Any]:
    loads = [
        _Load(
            stream["name"],
            base64.b64decode(stream["request"]),
            stream["connections"],
            stream["rate"],
            stream["port"],
            stream["unix"],
        )
        for stream in job["streams"]
    ]
    for load in loads:
        await load.connect()
    seconds = job["seconds"]
    start = time.perf_counter()
    for load in loads:
        load.begins = start + min(LONGEST_WARM_UP_S, seconds)
        load.ends = load.begins + seconds
    paced = [asyncio.ensure_future(_pace(load, start)) for load in loads if load.rate is not None]
    for load in loads:
        if load.rate is None:
            while load.idle:
                load.idle.popleft().send(load.request, start)
    await asyncio.sleep(loads[0].ends - time.perf_counter() + min(LONGEST_TAIL_S, seconds))
    for task in paced:
        await task
    return {load.name: load.result() for load in loads}


async def _pace(load: _Load, start: float) -> None:
    """Send what is due. The loop spins: timers are too coarse, and the client has a core of its own."""
    assert load.rate is not None
    gaps = np.random.default_rng(_SEED)
    due = start
    while due < load.ends:
        now = time.perf_counter()
        while due <= now and due < load.ends:
            if load.idle:
                load.lags.append(now - due)
                load.idle.popleft().send(load.request, due)
            else:
                load.late.append(due)
            due += gaps.exponential(1 / load.rate)
        await asyncio.sleep(0)


if __name__ == "__main__":
    print(json.dumps(uvloop.run(_run(json.load(sys.stdin)))))
