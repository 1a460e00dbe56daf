"""Starts one server on its cores, waits until it is ready, and ends it with all that it started."""

import contextlib
import http.client
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.cores import Cores
from bench.errors import BenchError
from bench.peers.peer import Peer
from bench.peers.task import Task
from bench.samples import Sample
from bench.shared_region import remove_region
from tools.cluster.errors import log_tail
from tools.cluster.processes import RUN_VARIABLE, end, of_run

READY_WITHIN_S = 120.0
LEAVES_WITHIN_S = 10.0
POLL_EVERY_S = 0.05


@dataclass(frozen=True)
class Conditions:
    """What is the same for all servers of a comparison."""

    server_cores: Cores
    client_cores: Cores
    threads: int
    max_batch_size: int
    delay_ms: int


@dataclass(frozen=True)
class RunningServer:
    """A server that is ready."""

    peer: Peer
    task: Task
    run_id: str
    log: Path

    def cpu_seconds(self) -> float:
        """Return the CPU time that all processes of the server that live now have used."""
        ticks = 0
        for identity in of_run(self.run_id):
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{identity.pid}/stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def resident_mib(self) -> float:
        """Return the memory of all processes of the server in MiB; shared pages count once for each."""
        pages = 0
        for identity in of_run(self.run_id):
            with contextlib.suppress(OSError):
                pages += int(Path(f"/proc/{identity.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface that are free now."""
    with contextlib.ExitStack() as open_sockets:
        found = []
        for _ in range(count):
            listener = open_sockets.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            found.append(int(listener.getsockname()[1]))
        return found


def make_task(peer: Peer, sample: Sample, conditions: Conditions, folder: Path) -> Task:
    """Return the task of serving a sample's model, on ports that are free."""
    port, grpc_port, spare_port = free_ports(3)
    return Task(
        model=sample.model,
        file=str(sample.file.resolve()),
        input_shape=sample.shape.input,
        output_shape=sample.shape.output,
        threads=conditions.threads,
        batching=peer.batching,
        max_batch_size=conditions.max_batch_size,
        delay_ms=conditions.delay_ms if peer.delayed else 0,
        port=port,
        grpc_port=grpc_port,
        spare_port=spare_port,
        unix=str(folder / "http.sock"),
        grpc_unix=str(folder / "grpc.sock"),
        folder=str(folder),
    )


def server_environment(own: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of a server: nothing that sets up MCP 2026 reaches it by accident."""
    clean = {name: value for name, value in environment.items() if not name.startswith("MCP2026_")}
    return clean | dict(own)


@contextmanager
def running(peer: Peer, sample: Sample, conditions: Conditions, logs: Path) -> Iterator[RunningServer]:
    """Run a server for the length of the block.

    Raises:
        BenchError: it did not become ready; the message ends with its log.

    """
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    task = make_task(peer, sample, conditions, folder)
    launch = peer.launch(task)
    run_id = secrets.token_hex(8)
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{peer.name.replace('/', '_')}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            conditions.server_cores.command(launch.command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=server_environment({**launch.environment, **task.to_environment(), RUN_VARIABLE: run_id}),
            start_new_session=True,
        )
    try:
        _wait_ready(peer, task, process, log)
        yield RunningServer(peer, task, run_id, log)
    finally:
        _stop(process, run_id)
        remove_region(task.port)
        shutil.rmtree(folder, ignore_errors=True)


def _wait_ready(peer: Peer, task: Task, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while not _is_ready(peer, task):
        if process.poll() is not None:
            raise BenchError(f"{peer.name} ended at start; the end of {log}:\n{log_tail(log)}")
        if time.monotonic() > deadline:
            raise BenchError(f"{peer.name} was not ready in {READY_WITHIN_S:.0f} s; {log}:\n{log_tail(log)}")
        time.sleep(POLL_EVERY_S)


def _is_ready(peer: Peer, task: Task) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", task.port, timeout=5)
    try:
        connection.connect()
        if peer.ready_path is None:
            return True
        connection.request("GET", peer.ready_path.format(model=task.model))
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _stop(process: subprocess.Popen[bytes], run_id: str) -> None:
    """Ask the server to leave, then kill whatever of it is left, also what has left its process group."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LEAVES_WITHIN_S)
    end(of_run(run_id))
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(LEAVES_WITHIN_S)
