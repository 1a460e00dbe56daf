"""Which ways there are to ask a server: what the bytes travel over, and what they hold."""

from dataclasses import dataclass
from typing import Literal

Transport = Literal["http1", "http2", "grpc"]
Socket = Literal["tcp", "unix"]
Encoding = Literal["json", "v2-json", "binary", "protobuf", "shared-memory"]


@dataclass(frozen=True)
class Protocol:
    """One way to ask. `json` is the simplest JSON that a server takes, `v2-json` Open Inference Protocol."""

    name: str
    transport: Transport
    socket: Socket
    encoding: Encoding
    summary: str


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol("json", "http1", "tcp", "json", "HTTP/1.1, the simplest JSON that the server takes"),
        Protocol("v2-json", "http1", "tcp", "v2-json", "HTTP/1.1, Open Inference Protocol in JSON"),
        Protocol("binary", "http1", "tcp", "binary", "HTTP/1.1, the tensor as raw bytes"),
        Protocol("http2", "http2", "tcp", "json", "HTTP/2 by prior knowledge, JSON"),
        Protocol("http2-binary", "http2", "tcp", "binary", "HTTP/2 by prior knowledge, raw bytes"),
        Protocol("grpc", "grpc", "tcp", "protobuf", "gRPC, ModelInfer with raw contents"),
        Protocol("unix", "http1", "unix", "json", "HTTP/1.1 over a Unix socket, JSON"),
        Protocol("unix-binary", "http1", "unix", "binary", "HTTP/1.1 over a Unix socket, raw bytes"),
        Protocol("grpc-unix", "grpc", "unix", "protobuf", "gRPC over a Unix socket"),
        Protocol("shm", "http1", "tcp", "shared-memory", "HTTP/1.1, input and output in shared memory"),
    )
}

MOST_CONNECTIONS = 8
"""Connections of one client over which concurrent streams are spread, HTTP/2 and gRPC."""


def connections_and_streams(protocol: Protocol, concurrency: int) -> tuple[int, int]:
    """Return how many connections carry how many requests each at a time.

    HTTP/1.1 carries one request on a connection. Clients of HTTP/2 and gRPC share few connections.
    """
    if protocol.transport == "http1":
        return concurrency, 1
    connections = min(concurrency, MOST_CONNECTIONS)
    while concurrency % connections:
        connections -= 1
    return connections, concurrency // connections
