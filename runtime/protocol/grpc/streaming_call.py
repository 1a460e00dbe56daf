"""A call with streams of messages in one or both directions."""

import asyncio
from collections import deque

from mcp2026.api.grpc_codes import GrpcCode
from mcp2026.runtime.protocol.connections import CROWDED
from mcp2026.runtime.protocol.context_headers import Fields, failure_fields
from mcp2026.runtime.protocol.grpc.framing import CallFailedError, MessageReader, Packed, framed
from mcp2026.runtime.protocol.grpc.metadata import PreparedCall, trailers, trailers_only
from mcp2026.runtime.protocol.grpc.service import Inbound, StreamMethod
from mcp2026.runtime.protocol.grpc.waiting import TOO_SLOW, deadline_timer, unpacking_failure
from mcp2026.runtime.protocol.http2.errors import Http2Code
from mcp2026.runtime.protocol.http2.stream import Stream
from mcp2026.runtime.protocol.inflating import Room


class StreamingCall:
    """Streams of messages in one or both directions."""

    __slots__ = (
        "_done",
        "_half_closed",
        "_inbound",
        "_kept",
        "_loop",
        "_message_since",
        "_metadata",
        "_reader",
        "_room",
        "_start",
        "_started",
        "_stream",
        "_timer",
        "_unpacking",
        "_waiting",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        max_message_bytes: int,
        room: Room,
        stream: Stream,
        call: PreparedCall,
        method: StreamMethod,
    ) -> None:
        self._stream = stream
        self._loop = loop
        self._reader = MessageReader(call.encoding, max_message_bytes, room)
        self._room = room
        self._waiting: deque[bytes | Packed] = deque()  # behind a message that is being decompressed
        self._unpacking = False
        self._half_closed = False
        self._kept = 0  # bytes of messages that wait though the caller is done
        self._start = call.start
        self._started = False
        self._done = False
        self._message_since: float | None = None
        self._metadata = call.head.metadata
        self._timer: asyncio.TimerHandle | None = None
        self._inbound: Inbound = method(call.head, self)
        if call.head.timeout_ns is not None and not self._done:
            self._timer = deadline_timer(loop, stream, call.head.timeout_ns, self._expire)

    # --- the caller's half

    @property
    def awaiting_since(self) -> float | None:
        """Since when the caller owes the rest of a message; between messages it may be silent."""
        return self._message_since

    def data(self, data: bytes) -> None:
        """Hand over what messages are complete."""
        stream, reader = self._stream, self._reader
        if self._done:
            stream.release(stream.held)
            return
        try:
            messages = reader.feed(data)
        except CallFailedError as failure:
            self._end(failure.code, failure.detail)
            self._inbound.cancelled()
            return
        if messages:
            self._message_since = None
        if reader.unfinished and self._message_since is None:
            self._message_since = stream.moved_at
        self._waiting += messages
        self._deliver()

    def _deliver(self) -> None:
        """Hand messages over in their order, as far as they are decompressed."""
        waiting, stream = self._waiting, self._stream
        while waiting and not self._unpacking and not self._done:
            message = waiting.popleft()
            if isinstance(message, Packed):
                self._unpacking = True
                work = self._loop.run_in_executor(None, message.unpack)
                work.add_done_callback(self._unpacked)
            else:
                self._inbound.message(message)
        if not self._unpacking and stream.held > self._reader.unfinished:
            stream.release(stream.held - self._reader.unfinished)

    def _unpacked(self, work: asyncio.Future[bytes]) -> None:
        self._unpacking = False
        failure = unpacking_failure(work)
        if failure is None:
            self._room.give(len(work.result()))  # who serves it counts it
        if self._done:
            return
        if failure is not None:
            self._end(failure.code, failure.detail)
            self._inbound.cancelled()
            return
        self._inbound.message(work.result())
        self._deliver()
        if self._half_closed and not (self._unpacking or self._done):
            self._let_go()
            self._inbound.half_closed()

    def _keep(self) -> None:
        """Count what waits: the stream's own count has ended with it."""
        self._kept = sum([len(one.content if isinstance(one, Packed) else one) for one in self._waiting])
        held = self._stream.core.unfinished
        held.add(self._kept)
        if held.over:
            self._end(GrpcCode.UNAVAILABLE, CROWDED)
            self._inbound.cancelled()

    def _let_go(self) -> None:
        self._waiting.clear()
        if self._kept:
            self._stream.core.unfinished.add(-self._kept)
            self._kept = 0

    def ended(self) -> None:
        """The caller sends no more."""
        self._message_since = None
        if self._done:
            return
        if self._reader.unfinished:
            self._end(GrpcCode.INTERNAL, "the message is cut off")
            self._inbound.cancelled()
        elif self._unpacking:
            self._half_closed = True
            self._keep()
        else:
            self._inbound.half_closed()

    def cancelled(self) -> None:
        """Tell the service that nobody waits any more."""
        if not self._done:
            self._finish()
            self._inbound.cancelled()

    def too_slow(self) -> None:
        """Give a caller up whose message does not come, or who does not read."""
        if self._done or self._stream.pending:
            self._stream.reset(Http2Code.CANCEL)
            self.cancelled()
        else:
            self._end(GrpcCode.CANCELLED, TOO_SLOW)
            self._inbound.cancelled()

    def crowded(self) -> None:
        """Refuse a message for which there is no room."""
        if not self._done:
            self._end(GrpcCode.UNAVAILABLE, CROWDED)
            self._inbound.cancelled()
        self._reader.clear()
        self._stream.release(self._stream.held)

    # --- the service's half

    def send(self, message: bytes) -> None:
        """Send one message."""
        if self._done:
            return
        if not self._started:
            self._started = True
            self._stream.start(self._start)
        self._stream.send(framed(message))

    def finish(self, code: GrpcCode = GrpcCode.OK, detail: str = "", trailers: Fields = ()) -> None:
        """End the call."""
        if not self._done:
            self._end(code, detail, trailers)

    def _expire(self) -> None:
        self._end(GrpcCode.DEADLINE_EXCEEDED, "the deadline has passed")
        self._inbound.cancelled()

    def _end(self, code: GrpcCode, detail: str, more: Fields = ()) -> None:
        self._finish()
        if code is not GrpcCode.OK:
            more = failure_fields(more, self._metadata)
        if self._started:
            self._stream.finish(trailers(code, detail, more))
        else:
            self._stream.start(trailers_only(code, detail, more), end=True)
        self._stream.stop_receiving()

    def _finish(self) -> None:
        self._done = True
        self._let_go()
        self._message_since = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
