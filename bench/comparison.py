"""Runs the cells of a comparison round by round, server by server, and records each at once.

In a round every server is measured before any is measured again, so that what slows the machine down for
minutes slows all alike. Only the measured server runs.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.client import closed_loop
from bench.client.load import LoadResult
from bench.client.single import check
from bench.errors import BenchError, NotSupportedError
from bench.peers.catalogue import NO_SERVER, RAW, find_peer, why_not_here
from bench.peers.peer import ROOT
from bench.protocols import PROTOCOLS
from bench.results import Cell, Measurement, ResultFile
from bench.samples import Sample
from bench.serving import Conditions, RunningServer, make_task, running, server_environment
from tools.cluster.progress import Report


@dataclass(frozen=True)
class Plan:
    """What is compared: every server in every protocol and concurrency for every model."""

    models: Sequence[str]
    protocols: Sequence[str]
    servers: Sequence[str]
    concurrency: Sequence[int]
    rounds: int
    seconds: float

    def visits(self) -> Iterator[tuple[int, str, str, list[Cell]]]:
        """Yield round, model, server, and the cells that one start of the server serves, in order."""
        for model in self.models:
            for round_number in range(self.rounds):
                for server in self.servers:
                    cells = [
                        Cell(model, protocol, concurrency, server)
                        for protocol in self.protocols
                        for concurrency in self.concurrency
                    ]
                    yield round_number, model, server, cells

    @property
    def size(self) -> int:
        """Number of measurements."""
        per_round = len(self.models) * len(self.protocols) * len(self.servers) * len(self.concurrency)
        return per_round * self.rounds


@dataclass
class Comparison:
    """One run of a plan into one file. `client` is `h2load`, or `python` where that is missing."""

    plan: Plan
    conditions: Conditions
    samples: dict[str, Sample]
    results: ResultFile
    client: closed_loop.ClientName
    report: Report

    def run(self) -> None:
        """Measure all cells that the file does not hold yet."""
        left = 0
        given_up: set[tuple[str, str]] = set()
        for round_number, model, server, cells in self.plan.visits():
            left += len(cells)
            due = [cell for cell in cells if not self.results.is_done(cell, round_number)]
            if not due or (model, server) in given_up:
                continue
            self._position = f"[{left}/{self.plan.size}] round {round_number + 1} {model}"
            if server in NO_SERVER:
                for cell in due:
                    self._record(Measurement(cell, round_number, result=self._without_server(cell)))
            elif not self._visit(server, self.samples[model], due, round_number):
                given_up.add((model, server))

    def _visit(self, server: str, sample: Sample, due: Sequence[Cell], round_number: int) -> bool:
        """Start a server and measure its cells; return whether it started."""
        peer = find_peer(server)
        problem = why_not_here(peer)
        if problem is None:
            try:
                with running(peer, sample, self.conditions, self._logs) as started:
                    for cell in due:
                        self._record(self._measure(started, sample, cell, round_number))
            except BenchError as error:
                problem = str(error)
            else:
                return True
        for cell in due:
            self._record(Measurement(cell, round_number, failed=problem))
        return False

    @property
    def _logs(self) -> Path:
        return self.results.folder / "logs"

    def _measure(self, server: RunningServer, sample: Sample, cell: Cell, round_number: int) -> Measurement:
        protocol = PROTOCOLS[cell.protocol]
        exchange = server.peer.ask(server.task, sample, protocol)
        if exchange is None:
            return Measurement(cell, round_number, not_supported="no such interface")
        try:
            answer_bytes = check(exchange, sample)
            load = closed_loop.Load(
                exchange, protocol, cell.concurrency, self.plan.seconds, self.conditions.client_cores
            )
            result = closed_loop.run(self.client, load, answer_bytes)
        except NotSupportedError as error:
            return Measurement(cell, round_number, not_supported=str(error))
        except BenchError as error:
            return Measurement(cell, round_number, failed=str(error))
        return Measurement(cell, round_number, result=result)

    def _without_server(self, cell: Cell) -> LoadResult:
        batch = 1 if cell.server == RAW else min(cell.concurrency, self.conditions.max_batch_size)
        return measure_raw(self.samples[cell.model], self.conditions, self.plan.seconds, batch)

    def _record(self, measurement: Measurement) -> None:
        self.results.append(measurement)
        cell = measurement.cell
        if (result := measurement.result) is not None:
            text = f"{result.rate:,.0f}/s, p50 {result.p50_ms:.2f} ms, p99 {result.p99_ms:.2f} ms"
            text += f", {result.errors} ERRORS" if result.errors else ""
        else:
            text = measurement.not_supported or f"FAILED {measurement.failed}"
        self.report(f"{self._position} {cell.protocol} c={cell.concurrency} {cell.server}: {text}")

    _position: str = ""


def measure_raw(sample: Sample, conditions: Conditions, seconds: float, batch: int) -> LoadResult:
    """Return how fast ONNX Runtime alone is on the servers' cores with `batch` rows a call."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        task = make_task(find_peer("bare"), sample, conditions, Path(folder))
        run = subprocess.run(
            conditions.server_cores.command(
                [sys.executable, "-m", "bench.peers.raw.program", str(seconds), str(batch)]
            ),
            start_new_session=True,
            env=server_environment({**task.to_environment(), "PYTHONPATH": str(ROOT)}, os.environ),
            capture_output=True,
            text=True,
            check=False,
        )
    if run.returncode:
        raise BenchError(f"ONNX Runtime alone failed:\n{run.stderr[-2000:]}")
    found = json.loads(run.stdout)
    return LoadResult(found["rate"], found["p50_ms"], found["p99_ms"], 0, found["calls"])
