"""One connection of HTTP/2 between a socket and the calls on it; what both ends have in common."""

import asyncio
from contextlib import suppress

import h2.events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.exceptions import ProtocolError


class Connection(asyncio.Protocol):
    """Subclasses take what comes of each stream. For one event loop."""

    def __init__(self, *, client_side: bool) -> None:
        self.http = H2Connection(H2Configuration(client_side=client_side, header_encoding="utf-8"))
        self._transport: asyncio.WriteTransport | None = None
        self._room = asyncio.Event()

    # ---- what subclasses do ----

    def headers_came(self, stream: int, headers: dict[str, str], /) -> None:
        """Take headers or trailers."""
        raise NotImplementedError

    def data_came(self, stream: int, data: bytes, /) -> None:
        """Take a part of a body."""
        raise NotImplementedError

    def stream_ended(self, stream: int, /) -> None:
        """Take note that the peer has sent all of its part."""
        raise NotImplementedError

    def stream_was_reset(self, stream: int, reason: int, /) -> None:
        """Take note that the peer gave the stream up; `reason` is an error code of HTTP/2."""
        raise NotImplementedError

    def was_lost(self, reason: str, /) -> None:
        """Take note that nothing more comes."""
        raise NotImplementedError

    # ---- what they use ----

    def flush(self) -> None:
        """Write what h2 has to send."""
        data = self.http.data_to_send()
        if data and self._transport is not None:
            self._transport.write(data)

    async def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Send `data` as fast as the peer takes it.

        Raises:
            ProtocolError: the stream is over.
            ConnectionError: the connection is.

        """
        left = memoryview(data)
        while left:
            if self._transport is None:
                raise ConnectionResetError("the connection was closed")
            room = min(self.http.local_flow_control_window(stream), self.http.max_outbound_frame_size)
            if room <= 0:
                self._room.clear()
                await self._room.wait()
                continue
            part, left = left[:room], left[room:]
            self.http.send_data(stream, bytes(part), end_stream=end and not left)
            self.flush()

    def close(self) -> None:
        """Say goodbye and close; what was written is still sent."""
        if self._transport is None:
            return
        with suppress(ProtocolError):  # the peer said goodbye before
            self.http.close_connection()
        self.flush()
        self._transport.close()

    # ---- what the event loop calls ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        self.http.initiate_connection()
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Take what came; a peer that breaks the protocol is told so and left."""
        try:
            for event in self.http.receive_data(data):
                self._take(event)
        except ProtocolError as error:
            self.was_lost(f"the peer breaks the protocol: {error}")
            self.close()
        self.flush()

    def connection_lost(self, error: Exception | None) -> None:
        """End all."""
        self._transport = None
        self._room.set()
        self.was_lost(str(error) if error else "the connection was closed")

    def _take(self, event: h2.events.Event) -> None:
        match event:
            case (
                h2.events.RequestReceived(stream_id=stream, headers=headers)
                | h2.events.ResponseReceived(stream_id=stream, headers=headers)
                | h2.events.TrailersReceived(stream_id=stream, headers=headers)
            ):
                self.headers_came(stream, {str(name): str(value) for name, value in headers})
            case h2.events.DataReceived(stream_id=stream, data=data, flow_controlled_length=length):
                self.http.acknowledge_received_data(length, stream)
                self.data_came(stream, data)
            case h2.events.StreamEnded(stream_id=stream):
                self.stream_ended(stream)
            case h2.events.StreamReset(stream_id=stream, error_code=reason):
                self.stream_was_reset(stream, int(reason))
            case h2.events.ConnectionTerminated(error_code=reason):
                self.was_lost(f"the peer ends the connection (HTTP/2 code {int(reason or 0)})")
                self.close()
            case h2.events.WindowUpdated() | h2.events.RemoteSettingsChanged():
                self._room.set()
            case _:
                pass  # h2 has answered what needs an answer
