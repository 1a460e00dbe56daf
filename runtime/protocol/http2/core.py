"""The server's side of one HTTP/2 connection as a state machine: bytes in, calls and bytes out.

No input or output and no clock: whoever has the socket gives `receive` what came and the time, and writes
what `outbox.take` returns. What a client sends reaches the consumer that `accept` returned for its stream.
"""

import math
from collections.abc import Callable, Mapping
from typing import Final

from mcp2026.runtime.protocol.connections import SharedBytes
from mcp2026.runtime.protocol.http2 import frames
from mcp2026.runtime.protocol.http2.budget import Conduct
from mcp2026.runtime.protocol.http2.closed_streams import ClosedStreams
from mcp2026.runtime.protocol.http2.errors import (
    ConnectionProtocolError,
    HeadersTooLargeError,
    Http2Code,
    MalformedRequestError,
    StreamProtocolError,
)
from mcp2026.runtime.protocol.http2.frame_forms import check_form
from mcp2026.runtime.protocol.http2.frame_reader import FrameReader
from mcp2026.runtime.protocol.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_STREAM,
    HEADERS,
    PADDED,
    SETTINGS,
    WINDOW_UPDATE,
)
from mcp2026.runtime.protocol.http2.header_reader import HeaderReader
from mcp2026.runtime.protocol.http2.inbox import Inbox
from mcp2026.runtime.protocol.http2.limits import Http2Limits
from mcp2026.runtime.protocol.http2.outbox import Outbox
from mcp2026.runtime.protocol.http2.request_headers import RequestHeaders
from mcp2026.runtime.protocol.http2.settings import SettingsExchange
from mcp2026.runtime.protocol.http2.stream import NOBODY, Consumer, Stream

Accept = Callable[[Stream, RequestHeaders | HeadersTooLargeError, bool], Consumer]
"""Called with a new stream, its request, and whether nothing follows. May answer at once."""

_LEAVING: Final = b"mcp-away"
"""The PING that follows the first GOAWAY: when its answer is here, the client has read that GOAWAY."""


class Http2Core:
    """One connection. After a fault of the connection `closed` is true: write what is left and close."""

    def __init__(
        self,
        limits: Http2Limits,
        accept: Accept,
        wake: Callable[[], None],
        now: float,
        extra_settings: Mapping[int, int] | None = None,
        *,
        unfinished: SharedBytes | None = None,
        unsent: SharedBytes | None = None,
    ) -> None:
        """Count what is held of requests and answers in `unfinished` and `unsent` with other connections."""
        self._limits = limits
        self.unfinished = unfinished or SharedBytes(limits.held_bytes * limits.max_streams)
        self._accept = accept
        self.now = now
        self.streams: dict[int, Stream] = {}
        self.outbox = Outbox(
            wake,
            self._local_end,
            limits.unsent_bytes,
            unsent or SharedBytes(limits.unsent_bytes * limits.max_streams),
        )
        self.inbox = Inbox(limits, self.outbox, self.streams, self.unfinished)
        self.settings = SettingsExchange(limits, self.outbox, self.streams, extra_settings)
        self.headers_since = math.inf
        """When the header block, or the preface, began that is not complete, in s."""
        self.started = False
        """The client's preface and its first SETTINGS frame are here."""
        self.closed = False
        self.leaving = False
        """The client was told to open no more streams."""
        self.refusing = False
        """What the client opens beyond the last stream is dropped; it was told so."""
        self._headers = HeaderReader(limits)
        self._frames = FrameReader(limits.max_frame_bytes, self._on_frame)
        self._closed_streams = ClosedStreams()
        self._conduct = Conduct(limits, now)
        self._begun = 0  # streams in this turn
        self._others: dict[int, Callable[[int, int, bytes], None]] = {
            frames.RST_STREAM: self._on_reset,
            frames.SETTINGS: self._on_settings,
            frames.PING: self._on_ping,
            frames.GOAWAY: self._on_goaway,
        }

    # --- what the edge calls

    def start(self) -> None:
        """Send our settings, the first frame of the server."""
        self.settings.start()
        self.inbox.start()

    def receive(self, data: bytes, now: float, *, same_turn: bool = False) -> None:
        """Take what came. Never raises: faults of the client are answered with RST_STREAM or GOAWAY.

        If `held_back` is true afterwards, the client has had its turn: call again, with nothing, in the next.
        """
        self.now = now
        if self.closed:
            return
        if not same_turn:
            self._begun = 0
        self._frames.held_back = False
        try:
            self._frames.feed(data)
        except ConnectionProtocolError as fault:
            self.fail(fault.code, fault.message)

    def forget_requests(self) -> None:
        """Decide anew what holds for requests, even if their headers came before."""
        self._headers.forget()

    def lost(self) -> None:
        """Tell all consumers that the client has gone."""
        self.closed = True
        streams = list(self.streams.values())
        self.streams.clear()
        for stream in streams:
            stream.local_open = stream.remote_open = False
            self.outbox.forget(stream)
            self.inbox.forget(stream)
            consumer, stream.consumer = stream.consumer, NOBODY
            consumer.cancelled()

    def fail(self, code: Http2Code, message: str) -> None:
        """End the connection with an error: nothing that comes is looked at any more."""
        self.outbox.control(frames.goaway_frame(self._closed_streams.last_id, code, message))
        self.lost()

    def leave(self) -> None:
        """Ask the client to open no more streams; those on their way are not lost (RFC 9113 §6.8)."""
        if not self.leaving and not self.closed:
            self.leaving = True
            self.outbox.control(frames.goaway_frame(frames.MAX_STREAM_ID, Http2Code.NO_ERROR))
            self.outbox.control(frames.frame(frames.PING, 0, 0, _LEAVING))

    def refuse_more(self) -> None:
        """Take no stream beyond the last one from now on."""
        if not self.refusing and not self.closed:
            self.leaving = self.refusing = True
            self.outbox.control(frames.goaway_frame(self._closed_streams.last_id, Http2Code.NO_ERROR))

    @property
    def held_back(self) -> bool:
        """Frames are here that were not looked at."""
        return self._frames.held_back and not self.closed

    @property
    def finished(self) -> bool:
        """All that was taken in is answered, and nothing more will be."""
        return self.closed or (self.refusing and not self.streams)

    @property
    def last_id(self) -> int:
        """The highest stream of the client, 0 if there was none."""
        return self._closed_streams.last_id

    # --- frames

    def _on_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """Handle one frame, or a part of a DATA frame."""
        if not self.started and (kind != SETTINGS or flags & ACK):
            raise ConnectionProtocolError(Http2Code.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        if self._headers.stream_id and (kind != CONTINUATION or stream_id != self._headers.stream_id):
            raise ConnectionProtocolError(Http2Code.PROTOCOL_ERROR, "a frame inside a header block")
        try:
            if kind == DATA:
                self._on_data(flags, stream_id, payload)
            elif kind == HEADERS:
                if self._headers.begin(flags, stream_id, payload):
                    self._on_header_block()
                else:
                    self.headers_since = self.now
            elif kind == CONTINUATION:
                if self._headers.add(flags, stream_id, payload):
                    self.headers_since = math.inf
                    self._on_header_block()
            elif kind == WINDOW_UPDATE:
                check_form(kind, flags, stream_id, payload)
                self._on_window_update(stream_id, payload)
            else:
                self._conduct.idle_frame(self.now)
                check_form(kind, flags, stream_id, payload)
                handle = self._others.get(kind)
                if handle is not None:
                    handle(flags, stream_id, payload)
        except StreamProtocolError as fault:
            self._on_fault(fault)

    def _on_fault(self, fault: StreamProtocolError) -> None:
        if fault.code is Http2Code.REFUSED_STREAM:
            self._conduct.idle_frame(self.now)  # clients open many before they have read how many they may
        else:
            self._conduct.reset(self.now)
        stream = self.streams.get(fault.stream_id)
        if stream is None:
            self._closed_streams.remember_reset(fault.stream_id)
            self.outbox.control(frames.reset_frame(fault.stream_id, fault.code))
        else:
            consumer = stream.consumer
            self.reset(stream, fault.code)
            consumer.cancelled()

    # --- requests

    def _on_header_block(self) -> None:
        """Handle a whole header block; it is decoded even if it is for nothing, for the table's sake."""
        reader = self._headers
        stream_id, ends, depends_on_itself = reader.stream_id, reader.ends_stream, reader.depends_on_itself
        reader.stream_id = 0
        if stream_id <= self._closed_streams.last_id:
            self._on_trailers(stream_id, ends)
            return
        if stream_id & 1 == 0:
            raise ConnectionProtocolError(
                Http2Code.PROTOCOL_ERROR, "a stream with an even number from a client"
            )
        request = reader.request()
        if self.refusing:
            return
        self._closed_streams.advance(stream_id)
        self._conduct.work += 1
        self._begun += 1
        if self._begun >= self._limits.max_streams_of_a_turn:
            self._frames.held_back = True
        if depends_on_itself:
            raise StreamProtocolError(stream_id, Http2Code.PROTOCOL_ERROR, "a stream depends on itself")
        if isinstance(request, MalformedRequestError):
            raise StreamProtocolError(stream_id, Http2Code.PROTOCOL_ERROR, str(request))
        if len(self.streams) >= self._limits.max_streams:
            raise StreamProtocolError(stream_id, Http2Code.REFUSED_STREAM, "too many streams")
        window, now = self._limits.stream_window_bytes, self.now
        stream = Stream(self, stream_id, self.outbox.initial_window, window, window, now, now)
        if isinstance(request, RequestHeaders) and request.content_length is not None:
            if ends and request.content_length:
                raise StreamProtocolError(
                    stream_id, Http2Code.PROTOCOL_ERROR, "content-length, and no content"
                )
            stream.length_left = request.content_length
        self.streams[stream_id] = stream
        stream.remote_open = not ends
        consumer = self._accept(stream, request, ends)
        if stream_id in self.streams:
            stream.consumer = consumer
            if ends and stream.local_open:
                consumer.ended()

    def _on_trailers(self, stream_id: int, ends: bool) -> None:
        stream = self.streams.get(stream_id)
        try:
            self._headers.trailers()
        except (MalformedRequestError, HeadersTooLargeError) as error:
            if stream is not None:
                raise StreamProtocolError(stream_id, Http2Code.PROTOCOL_ERROR, str(error)) from None
        if stream is None:
            self._closed_streams.judge(stream_id)
        elif not stream.remote_open:
            raise StreamProtocolError(stream_id, Http2Code.STREAM_CLOSED, "HEADERS after the end")
        elif not ends:
            raise StreamProtocolError(stream_id, Http2Code.PROTOCOL_ERROR, "trailers without END_STREAM")
        else:
            self._end_of_body(stream)

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)
        self.inbox.count(size)
        padding = 0
        if flags & PADDED:
            payload, padding = frames.unpadded(payload)
            size -= padding
        stream = self.streams.get(stream_id)
        if stream is None:
            self._check_not_idle(stream_id, "DATA")
            self._conduct.idle_frame(self.now)
            if stream_id <= self._closed_streams.last_id:
                self._closed_streams.judge(stream_id)
            return
        if not stream.remote_open:
            raise StreamProtocolError(stream_id, Http2Code.STREAM_CLOSED, "DATA after the end")
        stream.moved_at = self.now
        if stream.length_left is not None:
            stream.length_left -= size
            if stream.length_left < 0:
                raise StreamProtocolError(stream_id, Http2Code.PROTOCOL_ERROR, "more than content-length")
        if flags & END_STREAM:
            self.inbox.spend(stream, size + padding)
            if size:
                stream.consumer.data(payload)
            if stream.remote_open:
                self._end_of_body(stream)
            return
        self.inbox.hold(stream, size, padding)
        if size:
            self._conduct.work += 1
            stream.consumer.data(payload)
            if self.unfinished.over and stream.held:
                stream.consumer.crowded()
        else:
            self._conduct.idle_frame(self.now)

    def _end_of_body(self, stream: Stream) -> None:
        if stream.length_left:
            raise StreamProtocolError(stream.id, Http2Code.PROTOCOL_ERROR, "less content than content-length")
        stream.remote_open = False
        self.inbox.close(stream)
        if stream.local_open:
            stream.consumer.ended()
        else:
            self._close(stream)

    # --- the other frames

    def _on_reset(self, _flags: int, stream_id: int, _payload: bytes) -> None:
        stream = self.streams.get(stream_id)
        if stream is None:
            self._check_not_idle(stream_id, "RST_STREAM")
            return
        self._conduct.reset(self.now)
        consumer = stream.consumer
        self._drop(stream)
        consumer.cancelled()

    def _on_settings(self, flags: int, _stream_id: int, payload: bytes) -> None:
        if not flags & ACK:
            self.started = True
            self.headers_since = math.inf
            self._conduct.settings(self.now)
            self.settings.receive(payload)

    def _on_ping(self, flags: int, _stream_id: int, payload: bytes) -> None:
        if not flags & ACK:
            self.outbox.control(frames.frame(frames.PING, ACK, 0, payload))
        elif payload == _LEAVING and self.leaving:
            self.refuse_more()

    def _on_goaway(self, _flags: int, _stream_id: int, _payload: bytes) -> None:
        self.refuse_more()

    def _on_window_update(self, stream_id: int, payload: bytes) -> None:
        increment = int.from_bytes(payload, "big") & frames.MAX_WINDOW
        if stream_id == 0:
            self.outbox.grant(increment)
            return
        stream = self.streams.get(stream_id)
        if stream is not None:
            self.outbox.grant_stream(stream, increment)
        else:
            self._check_not_idle(stream_id, "WINDOW_UPDATE")

    def _check_not_idle(self, stream_id: int, frame: str) -> None:
        """Raise if the client has not opened the stream; one that was not let in, it may believe open."""
        if stream_id == 0 or (stream_id > self._closed_streams.last_id and not self.refusing):
            raise ConnectionProtocolError(Http2Code.PROTOCOL_ERROR, f"{frame} on a stream that is not open")

    # --- the end of streams

    def reset(self, stream: Stream, code: Http2Code) -> None:
        """Send RST_STREAM, and drop what still comes on the stream."""
        if self.streams.get(stream.id) is stream:
            self._drop(stream)
            self._closed_streams.remember_reset(stream.id)
            self.outbox.control(frames.reset_frame(stream.id, code))

    def stop_receiving(self, stream: Stream) -> None:
        """Reset a stream, when its response is complete, if its body is not by then (RFC 9113 §8.1)."""
        stream.reset_at_end = True
        if stream.remote_open and not stream.local_open:
            self.reset(stream, Http2Code.NO_ERROR)

    def refuse_to_wait(self, stream: Stream) -> None:
        """Reset a stream whose client is too far behind."""
        consumer = stream.consumer
        self.reset(stream, Http2Code.ENHANCE_YOUR_CALM)
        consumer.cancelled()

    def _local_end(self, stream: Stream) -> None:
        """The whole response has been written."""
        if not stream.remote_open:
            self._close(stream)
        elif stream.reset_at_end:
            self.reset(stream, Http2Code.NO_ERROR)

    def _drop(self, stream: Stream) -> None:
        stream.local_open = stream.remote_open = False
        self._close(stream)
        self.outbox.forget(stream)
        self.inbox.close(stream)

    def _close(self, stream: Stream) -> None:
        self.streams.pop(stream.id, None)
        stream.consumer = NOBODY
