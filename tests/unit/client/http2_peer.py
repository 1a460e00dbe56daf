"""An HTTP/2 server in memory, on h2 as its users have it, that says exactly what a test wants."""

from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings

from mcp2026.api.batching_negotiation import BatchingOffer
from mcp2026.client.addresses import parse_address
from mcp2026.client.exchange import HttpRequest
from mcp2026.client.wire.first_frames import settings_frame
from mcp2026.client.wire.http2 import Http2Wire

ADDRESS = parse_address("h2://localhost:8080/below")
ASK = HttpRequest("POST", "/v2/x", (("a", "b"),), (b"head", memoryview(b"tensor")), batchable=True)
Headers = list[tuple[str, str]]


class Peer:
    """A wire and the server at its other end."""

    def __init__(
        self,
        offer: BatchingOffer | None = None,
        *,
        limit: int = 2**20,
        settings: dict[int, int] | None = None,
        started: bool = True,
    ) -> None:
        self.wire = Http2Wire(ADDRESS, limit, offer)
        self.server = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        )
        self.server.initiate_connection()
        self.events: list[Any] = []
        self.heads: dict[int, dict[str, str]] = {}
        self.bodies: dict[int, bytes] = {}
        self._settings = settings or {}
        self.hear()
        if started:
            self.say(settings_frame(self._settings))

    def hear(self) -> None:
        """Let the server take what the client has written."""
        while data := self.wire.take():
            for event in self.server.receive_data(data):
                self.events.append(event)
                if isinstance(event, h2.events.RequestReceived):
                    self.heads[event.stream_id] = dict(event.headers or ())
                elif isinstance(event, h2.events.DataReceived):
                    body = self.bodies.get(event.stream_id, b"")
                    self.bodies[event.stream_id] = body + (event.data or b"")
                    self.server.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id)

    def say(self, *frames: bytes) -> None:
        """Let the client take what the server has written, and `frames` after it."""
        self.wire.receive(self.server.data_to_send() + b"".join(frames))
        self.hear()
        self.wire.receive(self.server.data_to_send())

    def ask(self, request: HttpRequest = ASK) -> int:
        """Let the client ask, and return the stream."""
        stream_id = self.wire.open(request)
        self.hear()
        return stream_id

    def answer(self, stream_id: int, headers: Headers | None = None, body: bytes = b"body") -> None:
        """Let the server answer as a whole."""
        self.server.send_headers(stream_id, [(":status", "200"), *(headers or [])])
        self.server.send_data(stream_id, body, end_stream=True)
        self.say()

    def hint(self, stream_id: int, *headers: tuple[str, str]) -> None:
        """Let the server send 103 Early Hints."""
        self.server.send_headers(stream_id, [(":status", "103"), *headers])
        self.say()
