"""How a server is started and asked."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.exchange import Address, Exchange
from bench.peers.task import Task
from bench.protocols import Protocol
from bench.samples import Sample
from tools.cluster.cache import cache_folder

ROOT = Path(__file__).parents[2]
PEERS = ROOT / "bench" / "peers"


@dataclass(frozen=True)
class Launch:
    """A command with what it adds to the environment. It runs in the folder of its task."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Peer:
    """A server in one setting.

    `requirements` names the folder of `bench/peers` whose versions its own virtual environment holds; None
    means the interpreter that runs this. `ask` returns None for a protocol that the server does not speak.
    `batching` says whether the server may put several requests into one execution.
    `delayed` says whether it waits the delay of the comparison for a batch to fill.
    `ready_path` answers 200 when `{model}` is served; None if a server that listens is ready.
    """

    name: str
    summary: str
    distribution: str
    launch: Callable[[Task], Launch]
    ask: Callable[[Task, Sample, Protocol], Exchange | None]
    requirements: str | None = None
    batching: bool = True
    delayed: bool = True
    ready_path: str | None = None


def environment_folder(requirements: str) -> Path:
    """Return where the virtual environment of a peer is or will be."""
    return cache_folder() / "bench" / requirements


def interpreter(requirements: str | None) -> str:
    """Return the Python interpreter that runs a peer."""
    if requirements is None:
        return sys.executable
    return str(environment_folder(requirements) / "bin" / "python")


def program(name: str, requirements: str | None, *arguments: str) -> Launch:
    """Return how `bench/peers/<name>/program.py` is started; it finds its task in the environment."""
    command = (interpreter(requirements), "-m", f"bench.peers.{name}.program", *arguments)
    return Launch(command, {"PYTHONPATH": str(ROOT)})


def address(task: Task, protocol: Protocol) -> Address:
    """Return where a server that follows the task's ports and sockets takes this protocol."""
    if protocol.transport == "grpc":
        return Address(unix=task.grpc_unix) if protocol.socket == "unix" else Address(task.grpc_port)
    return Address(unix=task.unix) if protocol.socket == "unix" else Address(task.port)
