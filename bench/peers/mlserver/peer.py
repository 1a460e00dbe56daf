"""MLServer in one process: worker processes of its own died at start and would need a second core."""

import json
from pathlib import Path

from bench import dialects
from bench.exchange import Exchange
from bench.peers.peer import ROOT, Launch, Peer, address, environment_folder
from bench.peers.task import Task
from bench.protocols import Protocol
from bench.samples import Sample


def _launch(task: Task) -> Launch:
    server = {
        "host": "127.0.0.1",
        "http_port": task.port,
        "grpc_port": task.grpc_port,
        "metrics_port": task.spare_port,
        "parallel_workers": 0,
        "debug": False,
        "use_structured_logging": False,
    }
    model: dict[str, object] = {
        "name": task.model,
        "implementation": "bench.peers.mlserver.program.OnnxModel",
        "parameters": {"uri": task.file},
    }
    if task.batching:
        model |= {"max_batch_size": task.max_batch_size, "max_batch_time": task.delay_ms / 1000}
    Path(task.folder, "settings.json").write_text(json.dumps(server))
    Path(task.folder, "model-settings.json").write_text(json.dumps(model))
    command = str(environment_folder("mlserver") / "bin" / "mlserver")
    return Launch((command, "start", task.folder), {"PYTHONPATH": str(ROOT)})


def _ask(task: Task, sample: Sample, protocol: Protocol) -> Exchange | None:
    where = address(task, protocol)
    match protocol.name:
        case "json" | "v2-json":
            return Exchange("http1", where, f"/v2/models/{sample.model}/infer", *dialects.v2_json(sample.row))
        case "grpc":
            return Exchange("grpc", where, dialects.METHOD, *dialects.v2_grpc(sample.model, sample.row))
        case _:
            return None


MLSERVER = (
    Peer(
        "mlserver",
        "MLServer, adaptive batching on",
        "mlserver",
        _launch,
        _ask,
        "mlserver",
        ready_path="/v2/health/ready",
    ),
    Peer(
        "mlserver-unbatched",
        "MLServer, adaptive batching off",
        "mlserver",
        _launch,
        _ask,
        "mlserver",
        batching=False,
        ready_path="/v2/health/ready",
    ),
)
