"""How a server that speaks the whole Open Inference Protocol is asked."""

from bench import dialects
from bench.exchange import Exchange
from bench.peers.peer import address
from bench.peers.task import Task
from bench.protocols import Protocol
from bench.samples import Sample
from bench.shared_region import shared_memory_exchange


def ask_v2(task: Task, sample: Sample, protocol: Protocol) -> Exchange | None:
    """Return a v2 request over HTTP/1.1 or gRPC on a TCP port; the plain JSON is v2 JSON too."""
    if protocol.socket != "tcp" or protocol.transport == "http2":
        return None
    where = address(task, protocol)
    path = f"/v2/models/{sample.model}/infer"
    match protocol.encoding:
        case "json" | "v2-json":
            return Exchange("http1", where, path, *dialects.v2_json(sample.row))
        case "binary":
            return Exchange("http1", where, path, *dialects.v2_binary(sample.row))
        case "protobuf":
            return Exchange("grpc", where, dialects.METHOD, *dialects.v2_grpc(sample.model, sample.row))
        case "shared-memory":
            return shared_memory_exchange(where, path, sample)


def ask_v2_without_shared_memory(task: Task, sample: Sample, protocol: Protocol) -> Exchange | None:
    """Return a v2 request to a server without the shared memory extension."""
    return None if protocol.encoding == "shared-memory" else ask_v2(task, sample, protocol)
