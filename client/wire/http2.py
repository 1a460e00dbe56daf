"""One connection of HTTP/2, on h2: many requests at a time, and batching negotiated by settings."""

import contextlib
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from mcp2026.api.batching_negotiation import BatchingOffer, NegotiatedBatching, NegotiationError
from mcp2026.api.names import BATCH_CAPABLE_HEADER, BATCHING_HEADER
from mcp2026.client.addresses import Address
from mcp2026.client.errors import ClientError, ConnectionFailedError, ProtocolError, Retry
from mcp2026.client.exchange import HttpRequest, HttpResponse
from mcp2026.client.negotiation import SettingsNegotiation
from mcp2026.client.wire.first_frames import PREFACE, settings_frame
from mcp2026.client.wire.goodbyes import Goodbye, GoodbyeFilter
from mcp2026.client.wire.http1 import check_head, check_size

_STREAM_WINDOW = 8 * 2**20
_CONNECTION_WINDOW = 32 * 2**20
_MAX_FRAME = 2**20
_MAX_HEAD_BYTES = 65_536
_LAST_STREAM = 2**31 - 1
_MAX_QUEUED_BYTES = 2**20
"""Of bodies, given to h2 at once: what it has can no longer be taken back when a request is cancelled."""

Outcome = HttpResponse | ClientError


@dataclass(slots=True)
class _Stream:
    """A request without its whole answer."""

    response: HttpResponse | None = None
    hinted: str = ""
    begun: bool = False


class Http2Wire:
    """Requests become bytes, bytes become answers; nothing here waits.

    A caller opens a stream if there is `room`, moves the bytes, and finds what came of it in `finished`.
    """

    def __init__(self, address: Address, max_answer_bytes: int, offer: BatchingOffer | None = None) -> None:
        self._address = address
        self._max_answer_bytes = max_answer_bytes
        self._negotiation = SettingsNegotiation(offer)
        self._connection = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=True, header_encoding=None)
        )
        self._goodbyes = GoodbyeFilter(_MAX_FRAME)
        self._streams: dict[int, _Stream] = {}
        self._unsent: dict[int, deque[memoryview]] = {}
        self._finished: dict[int, Outcome] = {}
        self._own_bytes = bytearray()
        self._said_goodbye = False
        self._closed: ClientError | None = None
        self._start()

    def _start(self) -> None:
        connection = self._connection
        connection.local_settings = h2.settings.Settings(
            client=True,
            initial_values={
                h2.settings.SettingCodes.ENABLE_PUSH: 0,
                h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: _STREAM_WINDOW,
                h2.settings.SettingCodes.MAX_FRAME_SIZE: _MAX_FRAME,
                h2.settings.SettingCodes.MAX_HEADER_LIST_SIZE: _MAX_HEAD_BYTES,
            },
        )
        connection.max_inbound_frame_size = _MAX_FRAME
        connection.initiate_connection()
        connection.clear_outbound_data_buffer()
        settings = {int(code): value for code, value in connection.local_settings.items()}
        self._own_bytes += PREFACE + settings_frame(settings | self._negotiation.settings)
        connection.increment_flow_control_window(_CONNECTION_WINDOW - 65_535)

    @property
    def usable(self) -> bool:
        """Whether the connection takes new requests, now or when there is room."""
        used_up = (self._connection.highest_outbound_stream_id or 0) >= _LAST_STREAM - 2
        return self._closed is None and not self._said_goodbye and not used_up

    @property
    def closed(self) -> ClientError | None:
        """Why the connection is over, None if it is not."""
        return self._closed

    @property
    def idle(self) -> bool:
        """Whether no request waits for an answer."""
        return not self._streams

    @property
    def room(self) -> bool:
        """Whether the server takes one more request at the same time."""
        most = self._connection.remote_settings.max_concurrent_streams
        return self.usable and self._connection.open_outbound_streams < most

    @property
    def batching(self) -> NegotiatedBatching | None:
        """What the settings of both sides come to."""
        return self._negotiation.result

    def open(self, request: HttpRequest) -> int:
        """Begin `request`, for which there must be room, and return the id of its stream."""
        stream_id = self._connection.get_next_available_stream_id()
        headers = [
            (":method", request.method),
            (":scheme", "http"),
            (":authority", self._address.authority),
            (":path", self._address.prefix + request.path),
            *request.headers,
        ]
        if request.body:
            headers.append(("content-length", str(request.body_bytes)))
        if request.batchable and self._negotiation.header:
            headers.append((BATCH_CAPABLE_HEADER, self._negotiation.header))
        self._connection.send_headers(stream_id, headers, end_stream=not request.body_bytes)
        self._streams[stream_id] = _Stream()
        if request.body_bytes:
            self._unsent[stream_id] = deque(memoryview(part) for part in request.body if len(part))
        return stream_id

    def offer(self, offer: BatchingOffer) -> None:
        """Renegotiate by a later SETTINGS frame; it counts for requests that begin after it."""
        self._negotiation.ours = offer
        self._own_bytes += self._connection.data_to_send() + settings_frame(self._negotiation.settings)

    def cancel(self, stream_id: int) -> None:
        """Tell the server that nobody waits for this answer."""
        if self._forget(stream_id) is not None:
            self._reset(stream_id, h2.errors.ErrorCodes.CANCEL)
        self._finished.pop(stream_id, None)

    def receive(self, data: bytes) -> None:
        """Take what came; an error of the connection ends all its requests."""
        if self._closed is not None:
            return
        try:
            for piece in self._goodbyes.receive(data):
                if isinstance(piece, Goodbye):
                    self._take_goodbye(piece)
                else:
                    for event in self._connection.receive_data(piece):
                        self._take(event)
        except ProtocolError as error:
            self._end(error)
        except h2.exceptions.ProtocolError as error:
            self._end(ProtocolError(f"the server breaks the rules of HTTP/2: {error}"))
        except NegotiationError as error:
            self._connection.close_connection(h2.errors.ErrorCodes.PROTOCOL_ERROR)
            self._end(ProtocolError(f"the server's settings: {error}"))

    def lost(self, problem: str) -> None:
        """Take that the connection is gone."""
        self._end(ConnectionFailedError(problem, Retry.IF_IDEMPOTENT))

    def close(self) -> None:
        """Say goodbye; requests without an answer fail."""
        if self._closed is None:
            self._connection.close_connection()
            self._end(ConnectionFailedError("the client was closed", Retry.NEVER))

    def take(self) -> bytes:
        """Return the bytes to write now; call again after each event, until there are none."""
        self._send_bodies()
        data = bytes(self._own_bytes) + self._connection.data_to_send()
        self._own_bytes.clear()
        return data

    def finished(self) -> Mapping[int, Outcome]:
        """Return the outcomes since the last call, by stream."""
        if not self._finished:
            return {}
        finished, self._finished = self._finished, {}
        return finished

    def _send_bodies(self) -> None:
        """Give h2 as much of the bodies as the windows allow, each stream in its turn."""
        left = _MAX_QUEUED_BYTES
        for stream_id, parts in list(self._unsent.items()):
            while parts and left > 0:
                part = parts[0]
                window = self._connection.local_flow_control_window(stream_id)
                size = min(len(part), window, self._connection.max_outbound_frame_size)
                if size <= 0:
                    break
                if size == len(part):
                    parts.popleft()
                else:
                    parts[0] = part[size:]
                self._connection.send_data(stream_id, part[:size].tobytes(), end_stream=not parts)
                left -= size
            if not parts:
                del self._unsent[stream_id]

    def _take(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RemoteSettingsChanged):
            settings = self._connection.remote_settings
            self._negotiation.hear({int(code): value for code, value in settings.items()})
        elif isinstance(event, h2.events.InformationalResponseReceived):
            stream = self._begun(event.stream_id)
            if stream is not None:
                stream.hinted = _headers(event.headers).get(BATCHING_HEADER, stream.hinted)
        elif isinstance(event, h2.events.ResponseReceived):
            self._take_head(event)
        elif isinstance(event, h2.events.DataReceived):
            self._take_data(event)
        elif isinstance(event, h2.events.StreamEnded):
            self._take_end(event.stream_id)
        elif isinstance(event, h2.events.StreamReset):
            self._take_reset(event)

    def _begun(self, stream_id: int) -> _Stream | None:
        stream = self._streams.get(stream_id)
        if stream is not None:
            stream.begun = True
        return stream

    def _take_head(self, event: h2.events.ResponseReceived) -> None:
        stream = self._begun(event.stream_id)
        if stream is None:
            return
        headers = _headers(event.headers)
        try:
            status, length = int(headers.pop(":status")), int(headers.get("content-length", "0"))
            check_head(headers, length, self._max_answer_bytes)
        except (KeyError, ValueError) as error:
            self._refuse(event.stream_id, ProtocolError(f"the head of the answer is malformed: {error}"))
        except ProtocolError as error:
            self._refuse(event.stream_id, error)
        else:
            stream.response = HttpResponse(status, headers, hinted_batching=stream.hinted)

    def _take_data(self, event: h2.events.DataReceived) -> None:
        if event.flow_controlled_length:
            self._connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        stream = self._streams.get(event.stream_id)
        if stream is None or stream.response is None:
            return
        try:
            check_size(len(stream.response.body) + len(event.data), self._max_answer_bytes)
        except ProtocolError as error:
            self._refuse(event.stream_id, error)
        else:
            stream.response.body += event.data

    def _take_end(self, stream_id: int) -> None:
        unread = stream_id in self._unsent
        stream = self._forget(stream_id)
        if stream is None:
            return
        if unread:  # answered before the body was read: the rest is not wanted
            self._reset(stream_id, h2.errors.ErrorCodes.NO_ERROR)
        self._finished[stream_id] = stream.response or ProtocolError("the answer has no head")

    def _take_reset(self, event: h2.events.StreamReset) -> None:
        stream = self._forget(event.stream_id)
        if stream is None:
            return
        if event.error_code == h2.errors.ErrorCodes.REFUSED_STREAM:
            retry = Retry.ALWAYS  # RFC 9113 §8.7: surely not processed
        else:
            retry = Retry.NEVER if stream.begun else Retry.IF_IDEMPOTENT
        problem = f"the server reset the request: {_name_of(event.error_code or 0)}"
        self._finished[event.stream_id] = ConnectionFailedError(problem, retry)

    def _take_goodbye(self, goodbye: Goodbye) -> None:
        """Requests above the last one that the server took were surely not processed; the others go on."""
        self._said_goodbye = True
        problem = f"the server ends the connection: {_name_of(goodbye.error_code)}"
        for stream_id in [stream_id for stream_id in self._streams if stream_id > goodbye.last_stream_id]:
            self._forget(stream_id)
            self._finished[stream_id] = ConnectionFailedError(problem, Retry.ALWAYS)
        if goodbye.error_code != h2.errors.ErrorCodes.NO_ERROR:
            self._end(ConnectionFailedError(problem, Retry.IF_IDEMPOTENT))

    def _refuse(self, stream_id: int, error: ClientError) -> None:
        self._forget(stream_id)
        self._reset(stream_id, h2.errors.ErrorCodes.CANCEL)
        self._finished[stream_id] = error

    def _reset(self, stream_id: int, code: h2.errors.ErrorCodes) -> None:
        with contextlib.suppress(h2.exceptions.ProtocolError):  # it may have ended meanwhile
            self._connection.reset_stream(stream_id, code)

    def _forget(self, stream_id: int) -> _Stream | None:
        self._unsent.pop(stream_id, None)
        return self._streams.pop(stream_id, None)

    def _end(self, error: ClientError) -> None:
        if self._closed is not None:
            return
        self._closed = error
        for stream_id, stream in self._streams.items():
            self._finished[stream_id] = _for_stream(error, begun=stream.begun)
        self._streams.clear()
        self._unsent.clear()


def _for_stream(error: ClientError, *, begun: bool) -> ClientError:
    """Return an exception of its own for each request: one that several threads raise mixes their traces."""
    if isinstance(error, ConnectionFailedError):
        return ConnectionFailedError(error.message, Retry.NEVER if begun else error.retry)
    return type(error)(error.message)


def _headers(pairs: Iterable[tuple[bytes, bytes]] | None) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in pairs or ()}


def _name_of(code: int) -> str:
    try:
        return h2.errors.ErrorCodes(code).name
    except ValueError:
        return f"error code {code}"
