"""A fixed number of requests on the way: by h2load, or by a client in Python where that is missing."""

import shutil
from dataclasses import dataclass
from typing import Literal

from bench.client import h2load, workload
from bench.client.load import LoadResult
from bench.cores import Cores
from bench.errors import BenchError, NotSupportedError
from bench.exchange import Exchange
from bench.protocols import Protocol

ClientName = Literal["h2load", "python"]


@dataclass(frozen=True)
class Load:
    """`concurrency` requests at any time for `seconds`, from these cores."""

    exchange: Exchange
    protocol: Protocol
    concurrency: int
    seconds: float
    cores: Cores


def check_client(client: ClientName) -> None:
    """Raise BenchError, saying what to install, unless the client can run."""
    needed = {"h2load": "nghttp2-client", "curl": "curl"} if client == "h2load" else {}
    missing = {
        program: package
        for program, package in {**needed, "taskset": "util-linux"}.items()
        if shutil.which(program) is None
    }
    if missing:
        raise BenchError(
            f"missing: {', '.join(missing)}; on Debian: apt-get install {' '.join(missing.values())}"
        )


def run(client: ClientName, load: Load, answer_bytes: int) -> LoadResult:
    """Return what the load gave. `answer_bytes` is the size of a good answer's body.

    Raises:
        NotSupportedError: the client in Python speaks HTTP/1.1 alone.

    """
    if client == "h2load":
        return h2load.run(
            load.exchange, load.protocol, load.concurrency, load.seconds, load.cores, answer_bytes
        )
    if load.exchange.transport != "http1":
        raise NotSupportedError("the client in Python speaks HTTP/1.1 alone")
    stream = workload.Stream("all", load.exchange, connections=load.concurrency)
    return workload.run([stream], load.seconds, load.cores)["all"].as_load_result(load.seconds)
