"""Several kinds of requests at the same time, each in a closed loop or at a rate, by a process of its own.

At a rate, requests are due at random times of a Poisson process whatever the answers do. Latency counts from
when a request was sent, or was due if all connections were waiting for answers: a server that stalls cannot
hide it. While the client itself does not run, because the kernel gave its core to something else, the clock
by which requests are due stands still: else what fell due meanwhile would reach the server all at once.
"""

import base64
import gc
import json
import select
import subprocess
import sys
import time
from array import array
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.client.connection import ClientConnection
from bench.client.load import LoadResult
from bench.cores import Cores
from bench.errors import BenchError
from bench.exchange import Exchange
from bench.peers.peer import ROOT

LONGEST_WARM_UP_S = 1.0
LONGEST_TAIL_S = 2.0
"""How long answers that are still on the way at the end are waited for."""
STOOD_STILL_NS = 300_000
"""From this on the client was not late but did not run."""
OK = 200
_SEED = 1
_SECOND = 1_000_000_000


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
    lag_p99_ms: float
    """How late the client itself sent what was due; not in the latencies."""
    stood_still: float
    """Part of the time in which the client did not run; nothing was due then."""
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
    """One stream while it runs. Times in ns."""

    name: str
    request: bytes
    connections: int
    rate: float | None
    port: int
    unix: str | None
    begins: int = 0
    ends: int = 0
    due: int = 0
    idle: deque[ClientConnection] = field(default_factory=deque)
    late: deque[int] = field(default_factory=deque)
    latencies: "array[int]" = field(default_factory=lambda: array("q"))
    lags: "array[int]" = field(default_factory=lambda: array("q"))
    done_at: "array[int]" = field(default_factory=lambda: array("q"))
    statuses: Counter[int] = field(default_factory=Counter)
    still_ns: int = 0

    def start(self, now: int, seconds: float) -> None:
        """Begin with the warm-up."""
        self.begins = now + int(min(LONGEST_WARM_UP_S, seconds) * _SECOND)
        self.ends = self.begins + int(seconds * _SECOND)
        self.due = now
        self._gaps = np.random.default_rng(_SEED)
        if self.rate is None:
            while self.idle:
                self.idle.popleft().send(self.request, time.time_ns())

    def send_due(self, now: int) -> None:
        """Send what is due, each over a connection that waits for nothing."""
        assert self.rate is not None
        late = now - self.due
        if late > STOOD_STILL_NS:
            self.due += late
            if self.begins <= now < self.ends:
                self.still_ns += late
        while self.due <= now and self.due < self.ends:
            if self.idle:
                self.lags.append(now - self.due)
                self.idle.popleft().send(self.request, time.time_ns())
            else:
                self.late.append(self.due)
            self.due += int(self._gaps.exponential(_SECOND / self.rate))

    def answered(self, connection: ClientConnection, status: int) -> None:
        """Count an answer, and use the connection again."""
        # By when it was sent, not when it was answered: else the slowest would fall out at the end.
        if self.begins <= connection.since < self.ends:
            self.statuses[status] += 1
            if status == OK:
                self.latencies.append(connection.answered_at - connection.since)
                self.done_at.append(connection.answered_at)
        now = time.time_ns()
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
        percentiles = np.percentile(self.latencies, (50, 99)) / 1e6 if self.latencies else np.zeros(2)
        whole_seconds = max(1, (self.ends - self.begins) // _SECOND)
        done = (np.array(self.done_at, np.int64) - self.begins) // _SECOND
        counts = np.bincount(np.clip(done, 0, None), minlength=whole_seconds)
        return {
            "answers": len(self.latencies),
            "statuses": dict(self.statuses),
            "p50_ms": float(percentiles[0]),
            "p99_ms": float(percentiles[1]),
            "lag_p99_ms": float(np.percentile(self.lags, 99) / 1e6) if self.lags else 0.0,
            "stood_still": self.still_ns / (self.ends - self.begins),
            "per_second": counts[:whole_seconds].tolist(),
        }


def _run(job: dict[str, Any]) -> dict[str, Any]:
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
    seconds = job["seconds"]
    poll = select.epoll()
    users: dict[int, tuple[_Load, ClientConnection]] = {}
    for load in loads:
        for _ in range(load.connections):
            connection = ClientConnection(load.port, load.unix)
            users[connection.socket.fileno()] = load, connection
            poll.register(connection.socket, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
            load.idle.append(connection)
    gc.disable()
    start = time.time_ns()
    for load in loads:
        load.start(start, seconds)
    end = max(load.ends for load in loads) + int(min(LONGEST_TAIL_S, seconds) * _SECOND)
    _take_turns(poll, users, [load for load in loads if load.rate is not None], end)
    return {load.name: load.result() for load in loads}


def _take_turns(
    poll: select.epoll, users: dict[int, tuple[_Load, ClientConnection]], paced: list[_Load], end: int
) -> None:
    """Send what is due and take answers until `end`."""
    while (now := time.time_ns()) < end:
        for load in paced:
            load.send_due(now)
        until = min([load.due for load in paced if load.due < load.ends], default=end)
        # epoll itself counts in ms.
        select.select([poll], [], [], max(0.0, (until - time.time_ns()) / _SECOND))
        for number, events in poll.poll(0):
            load, connection = users[number]
            if events & select.EPOLLOUT:
                connection.go_on()
            if events & ~select.EPOLLOUT:
                status = connection.receive()
                if status is not None:
                    load.answered(connection, status)


if __name__ == "__main__":
    print(json.dumps(_run(json.load(sys.stdin))))
