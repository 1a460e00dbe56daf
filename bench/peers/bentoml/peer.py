"""BentoML with one worker. It takes arrays as JSON; its raw form of them is pickle."""

import json
from collections.abc import Mapping

import numpy as np

from bench import dialects
from bench.exchange import Exchange, Floats
from bench.peers.peer import ROOT, Launch, Peer, address, interpreter
from bench.peers.task import Task
from bench.protocols import Protocol
from bench.samples import Sample


def _launch(task: Task) -> Launch:
    command = (
        *(interpreter("bentoml"), "-m", "bentoml", "serve", "bench.peers.bentoml.program:Onnx"),
        *("--host", "127.0.0.1", "--port", str(task.port), "--working-dir", str(ROOT)),
    )
    environment = {"PYTHONPATH": str(ROOT), "BENTOML_HOME": task.folder, "BENTOML_DO_NOT_TRACK": "true"}
    return Launch(command, environment)


def _decode(_headers: Mapping[str, str], body: bytes) -> Floats:
    return np.array(json.loads(body), np.float32)


def _ask(task: Task, sample: Sample, protocol: Protocol) -> Exchange | None:
    if protocol.name != "json":
        return None
    headers, body, _ = dialects.nested(sample.row)
    return Exchange("http1", address(task, protocol), "/infer", headers, body, _decode)


BENTOML = (
    Peer(
        "bentoml", "BentoML, adaptive batching on", "bentoml", _launch, _ask, "bentoml", ready_path="/readyz"
    ),
    Peer(
        "bentoml-unbatched",
        "BentoML, adaptive batching off",
        "bentoml",
        _launch,
        _ask,
        "bentoml",
        batching=False,
        ready_path="/readyz",
    ),
)
