"""LitServe with one worker and one API server."""

from bench import dialects
from bench.exchange import Exchange
from bench.peers.peer import Launch, Peer, address, program
from bench.peers.task import Task
from bench.protocols import Protocol
from bench.samples import Sample


def _launch(_task: Task) -> Launch:
    return program("litserve", "litserve")


def _ask(task: Task, sample: Sample, protocol: Protocol) -> Exchange | None:
    makers = {"json": dialects.nested, "binary": dialects.base64_in_json}
    if (make := makers.get(protocol.name)) is None:
        return None
    return Exchange("http1", address(task, protocol), "/predict", *make(sample.row))


LITSERVE = (
    Peer("litserve", "LitServe, batching on", "litserve", _launch, _ask, "litserve", ready_path="/health"),
    Peer(
        "litserve-unbatched",
        "LitServe, batching off",
        "litserve",
        _launch,
        _ask,
        "litserve",
        batching=False,
        ready_path="/health",
    ),
)
