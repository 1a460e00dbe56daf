"""Measurements of MCP 2026 alone: latency at half load, endurance, shares of tenants, cost of idling."""

import contextlib
import dataclasses
import json
import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from bench.client import closed_loop, workload
from bench.client.single import check
from bench.client.workload import Stream, StreamResult
from bench.comparison import measure_raw
from bench.errors import BenchError
from bench.exchange import Exchange
from bench.peers.catalogue import find_peer
from bench.peers.mcp2026.peer import mcp2026
from bench.peers.peer import Peer
from bench.protocols import PROTOCOLS
from bench.samples import Sample
from bench.serving import Conditions, RunningServer, running

TENANT_HEADER = "x-mcp-tenant-id"
PRIORITY_HEADER = "x-mcp-priority"
TENANTS = {"gold": 3, "silver": 1}
LITTLE = 0.1
"""What the victim of a flood asks for, as a part of what the server can do."""


@dataclass(frozen=True)
class Setting:
    """What all measurements here need: the model, where things run, and where logs go."""

    sample: Sample
    conditions: Conditions
    client: closed_loop.ClientName
    logs: Path

    def exchange(self, server: RunningServer, protocol: str = "json") -> Exchange:
        """Return a request that the server has just answered rightly."""
        exchange = server.peer.ask(server.task, self.sample, PROTOCOLS[protocol])
        if exchange is None:
            raise BenchError(f"{server.peer.name} has no interface {protocol}")
        check(exchange, self.sample)
        return exchange


@dataclass(frozen=True)
class HalfLoad:
    """One server at half of the capacity (answers/s) of the first one; times in ms.

    `execution_ms` is one run of one row by ONNX Runtime alone.
    """

    capacity: float
    rate: float
    p50_ms: float
    p99_ms: float
    lag_p99_ms: float
    stood_still: float
    execution_ms: float
    errors: int


def half_load(
    setting: Setting, servers: Sequence[str], seconds: float, connections: int, rounds: int
) -> Iterator[tuple[str, HalfLoad]]:
    """Find the capacities in a closed loop, then offer each server half of the first one's at random times.

    All servers run; in each round they are loaded one after another, so that what slows the machine down for
    a while slows all alike.
    """
    execution = measure_raw(setting.sample, setting.conditions, 1.0, 1).p50_ms
    cores = setting.conditions.client_cores
    with contextlib.ExitStack() as all_running:
        exchanges = {}
        capacities = {}
        for name in servers:
            server = all_running.enter_context(
                running(find_peer(name), setting.sample, setting.conditions, setting.logs)
            )
            exchange = exchanges[name] = setting.exchange(server)
            load = closed_loop.Load(exchange, PROTOCOLS["json"], connections, seconds / 2, cores)
            capacities[name] = closed_loop.run(setting.client, load, 0).rate
        rate = capacities[servers[0]] / 2
        for _ in range(rounds):
            for name, exchange in exchanges.items():
                result = workload.run([Stream("half", exchange, connections, rate)], seconds, cores)["half"]
                yield (
                    name,
                    HalfLoad(
                        capacity=capacities[name],
                        rate=result.answers / seconds,
                        p50_ms=result.p50_ms,
                        p99_ms=result.p99_ms,
                        lag_p99_ms=result.lag_p99_ms,
                        stood_still=result.stood_still,
                        execution_ms=execution,
                        errors=result.errors,
                    ),
                )


@dataclass(frozen=True)
class Soak:
    """Good answers a second in windows of equal length, all statuses, memory before and after in MiB.

    `cpu` is the part of a core that the server had in each window: on a machine that does other work too, a
    rate that falls with it tells of that work.
    """

    window_s: int
    rates: Sequence[float]
    cpu: Sequence[float]
    statuses: dict[str, dict[int, int]]
    memory_mib: tuple[float, float]

    @property
    def last_to_first(self) -> float:
        """Throughput of the last window as a part of that of the first."""
        return self.rates[-1] / self.rates[0]

    @property
    def last_to_first_per_cpu(self) -> float:
        """Return the same for answers in a second of processor time; NaN if the server had none."""
        return math.nan if not self.cpu[-1] else self.last_to_first * self.cpu[0] / self.cpu[-1]


def soak(setting: Setting, server_name: str, seconds: int) -> Soak:
    """Load for long with requests of which some expire: what they leave behind would slow the server down."""
    window = min(60, seconds // 2)
    with (
        running(find_peer(server_name), setting.sample, setting.conditions, setting.logs) as server,
        ThreadPoolExecutor(1) as beside,
    ):
        steady = setting.exchange(server)
        hurried = dataclasses.replace(
            steady, body=json.dumps({**json.loads(steady.body), "timeout_ms": 1}).encode()
        )
        streams = [Stream("steady", steady, 64), Stream("hurried", hurried, 32)]
        before = server.resident_mib()
        cpu = beside.submit(_cpu_in_windows, server, window, seconds // window)
        results = workload.run(streams, seconds, setting.conditions.client_cores)
        memory = (before, server.resident_mib())
    steady_counts = results["steady"].per_second
    windows = [steady_counts[first : first + window] for first in range(0, seconds - window + 1, window)]
    return Soak(
        window,
        [sum(counts) / window for counts in windows],
        cpu.result(),
        {name: result.statuses for name, result in results.items()},
        memory,
    )


def _cpu_in_windows(server: RunningServer, window_s: int, windows: int) -> list[float]:
    """Return the part of a core that the server used in each of the windows that follow."""
    used = [server.cpu_seconds()]
    for _ in range(windows):
        time.sleep(window_s)
        used.append(server.cpu_seconds())
    return [(later - earlier) / window_s for earlier, later in pairwise(used)]


@dataclass(frozen=True)
class TenantShares:
    """Answers of each tenant while both have more to ask than can run, and latencies of a flood's victim."""

    answers: dict[str, int]
    alone: StreamResult
    flooded: StreamResult
    flooded_with_priority: StreamResult

    @property
    def ratio(self) -> float:
        """Answers of the tenant of weight 3 to one of the tenant of weight 1."""
        return self.answers["gold"] / max(1, self.answers["silver"])


def tenants(setting: Setting, checkout: Path, seconds: float) -> TenantShares:
    """Let two tenants compete, then let one flood the server while the other asks little."""
    cores = setting.conditions.client_cores
    peer: Peer = mcp2026(checkout, tenants=TENANTS)
    with running(peer, setting.sample, setting.conditions, setting.logs) as server:
        asked = setting.exchange(server)

        def of(tenant: str, priority: int | None = None) -> Exchange:
            labels = [(TENANT_HEADER, tenant)]
            labels += [(PRIORITY_HEADER, str(priority))] if priority is not None else []
            return dataclasses.replace(asked, headers=(*asked.headers, *labels))

        both = [Stream(name, of(name), 4 * setting.conditions.max_batch_size) for name in TENANTS]
        competing = workload.run(both, seconds, cores)
        little = LITTLE * sum(result.answers for result in competing.values()) / seconds
        victim = Stream("gold", of("gold"), 64, rate=little)
        urgent = Stream("gold", of("gold", priority=1), 64, rate=little)
        flood = Stream("silver", of("silver"), 8 * setting.conditions.max_batch_size)
        return TenantShares(
            {name: result.answers for name, result in competing.items()},
            workload.run([victim], seconds, cores)["gold"],
            workload.run([victim, flood], seconds, cores)["gold"],
            workload.run([urgent, flood], seconds, cores)["gold"],
        )


def idle(setting: Setting, server_name: str, seconds: float, rounds: int) -> float:
    """Return the part of one core that a server without requests uses, the median of the rounds."""
    with running(find_peer(server_name), setting.sample, setting.conditions, setting.logs) as server:
        setting.exchange(server)
        time.sleep(1.0)
        used = []
        for _ in range(rounds):
            before = server.cpu_seconds()
            time.sleep(seconds)
            used.append((server.cpu_seconds() - before) / seconds)
    return median(used)
