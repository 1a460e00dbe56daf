"""MCP 2026 with one worker, from this checkout or, as `mcp2026@FOLDER`, from another one beside it."""

import functools
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from bench import dialects
from bench.exchange import Exchange
from bench.peers.peer import ROOT, Launch, Peer, address
from bench.peers.task import Task
from bench.protocols import Protocol
from bench.samples import Sample
from bench.shared_region import shared_memory_exchange

FLAGS_VARIABLE = "BENCH_MCP2026_FLAGS"
"""More flags for the server, such as `--max-delay-ms 5`."""
_COMPONENTS = ("api", "topology", "runtime", "cli", "crds")
_SOCKET_FLAGS = {"http1": "--unix-socket", "http2": "--unix-socket", "grpc": "--grpc-unix-socket"}


def mcp2026(checkout: Path = ROOT, name: str = "mcp2026", tenants: Mapping[str, int] | None = None) -> Peer:
    """Return the server of one checkout; `tenants` are weights by name."""

    def launch(task: Task) -> Launch:
        return _launch(task, checkout, tenants)

    def ask(task: Task, sample: Sample, protocol: Protocol) -> Exchange | None:
        return _ask(task, sample, protocol, _flags(checkout))

    return Peer(name, f"MCP 2026 from {checkout}", "mcp2026", launch, ask, ready_path="/readyz")


def _environment(checkout: Path) -> dict[str, str]:
    """Return what makes Python take the packages of `checkout` before any that is installed."""
    links = checkout / "build" / "links"
    for component in _COMPONENTS:
        link = links / "mcp2026" / component
        if not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(checkout.resolve() / component)
    return {"PYTHONPATH": str(links)}


@functools.cache
def _flags(checkout: Path) -> str:
    """Return the text of --help: it says which protocols this checkout serves."""
    command = (sys.executable, "-m", "mcp2026.runtime", "--help")
    environment = os.environ | _environment(checkout)
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout


def _source(task: Task, tenants: Mapping[str, int] | None) -> tuple[str, str]:
    """Return the flag that says what to serve."""
    if tenants is None:
        return "--model-path", task.file
    config = {
        "model": task.model,
        "versions": [{"versionId": "1", "path": task.file}],
        "tenants": [{"tenantId": name, "weight": weight} for name, weight in tenants.items()],
    }
    file = Path(task.folder, "serving.json")
    file.write_text(json.dumps(config))
    return "--serving-config", str(file)


def _launch(task: Task, checkout: Path, tenants: Mapping[str, int] | None) -> Launch:
    known = _flags(checkout)
    optional = {
        "--grpc-port": str(task.grpc_port),
        "--unix-socket": task.unix,
        "--grpc-unix-socket": task.grpc_unix,
    }
    chosen = [word for flag, value in optional.items() if flag in known for word in (flag, value)]
    command = (
        *(sys.executable, "-m", "mcp2026.runtime", *_source(task, tenants)),
        *("--host", "127.0.0.1", "--port", str(task.port), "--workers", "1"),
        *("--threads", str(task.threads), "--max-batch-size", str(task.max_batch_size)),
        *chosen,
        *shlex.split(os.environ.get(FLAGS_VARIABLE, "")),
    )
    return Launch(command, _environment(checkout))


def _ask(task: Task, sample: Sample, protocol: Protocol, known: str) -> Exchange | None:
    where = address(task, protocol)
    if protocol.socket == "unix" and _SOCKET_FLAGS[protocol.transport] not in known:
        return None
    if protocol.transport == "grpc":
        if "--grpc-port" not in known:
            return None
        return Exchange("grpc", where, dialects.METHOD, *dialects.v2_grpc(sample.model, sample.row))
    v2 = f"/v2/models/{sample.model}/infer"
    match protocol.encoding:
        case "json":
            return Exchange(protocol.transport, where, "/v1/infer", *dialects.flat(sample.row))
        case "v2-json":
            return Exchange(protocol.transport, where, v2, *dialects.v2_json(sample.row))
        case "binary":
            return Exchange(protocol.transport, where, v2, *dialects.v2_binary(sample.row))
        case "shared-memory":
            return shared_memory_exchange(where, v2, sample)
        case _:
            return None
