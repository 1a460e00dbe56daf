"""The bare server: what any Python server of this design cannot pass."""

from bench import dialects
from bench.exchange import Exchange
from bench.peers.peer import Launch, Peer, address, program
from bench.peers.task import Task
from bench.protocols import Protocol
from bench.samples import Sample


def _ask(task: Task, sample: Sample, protocol: Protocol) -> Exchange | None:
    if protocol.transport != "http1" or protocol.encoding not in ("json", "binary"):
        return None
    make = dialects.nested if protocol.encoding == "json" else dialects.octets
    return Exchange("http1", address(task, protocol), "/", *make(sample.row))


def _launch(_task: Task) -> Launch:
    return program("bare", None)


BARE = Peer("bare", "asyncio, httptools, uvloop and ONNX Runtime in 150 lines", "uvloop", _launch, _ask)
