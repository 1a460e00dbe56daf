"""Calls of a gRPC service on the streams of HTTP/2: one message and its reply, or streams of messages.

The transport keeps the deadline that a caller set: when it passes, the service is told as if the caller had
gone, and the caller gets DEADLINE_EXCEEDED.
"""

import asyncio
import logging
from collections import deque
from typing import Final

import msgspec

from mcp2026.runtime.protocol.connections import CROWDED
from mcp2026.runtime.protocol.exchange import Cancel
from mcp2026.runtime.protocol.grpc.framing import (
    PREFIX,
    CallFailedError,
    MessageReader,
    Packed,
    framed,
    framed_gzip,
)
from mcp2026.runtime.protocol.grpc.metadata import (
    OK_TRAILERS,
    RESPONSE_START,
    RESPONSE_START_GZIP,
    PreparedCall,
    prepared_call,
    trailers,
    trailers_only,
)
from mcp2026.runtime.protocol.grpc.service import (
    GrpcCode,
    GrpcService,
    Inbound,
    Reply,
    StreamMethod,
    UnaryMethod,
)
from mcp2026.runtime.protocol.http2 import header_encoder
from mcp2026.runtime.protocol.http2.errors import Http2Code
from mcp2026.runtime.protocol.http2.request_headers import RequestHeaders
from mcp2026.runtime.protocol.http2.stream import Consumer, Stream

log = logging.getLogger(__name__)

_LONGEST_TIMER: Final = 86_400.0
"""Deadlines further away than a day are not watched, in s."""
_COMPRESS_FROM: Final = 1024
_COMPRESS_TO: Final = 1 << 20
"""Replies between these sizes are compressed for a caller who compressed its own message with gzip: smaller
ones gain nothing, larger ones would hold up the event loop."""
_METHOD_NOT_ALLOWED: Final = header_encoder.status(405) + header_encoder.literal(b"allow", b"POST")
_TOO_SLOW: Final = "the message did not come in time"


class GrpcCalls:
    """Begins the calls of all connections of a port."""

    def __init__(self, service: GrpcService, max_message_bytes: int, loop: asyncio.AbstractEventLoop) -> None:
        self.service = service
        self.max_message_bytes = max_message_bytes
        self.loop = loop

    @property
    def closing(self) -> bool:
        """Connections should end when their calls are done."""
        return self.service.closing

    def begin(self, stream: Stream, request: RequestHeaders) -> Consumer:
        """Return what takes the messages of a new call."""
        call = prepared_call(request)
        if call.unary is not None:
            return UnaryCall(self, stream, call, call.unary)
        if call.failure is None and request.head.method == "POST":
            path = call.head.path
            unary = self.service.unary(path)
            if unary is not None:
                call.unary = unary
                return UnaryCall(self, stream, call, unary)
            streaming = self.service.streaming(path)
            if streaming is not None:
                return StreamingCall(self, stream, call, streaming)
        return RefusedCall(stream, request, call.failure)


class RefusedCall:
    """A call that ended before it began."""

    __slots__ = ("_stream",)

    def __init__(self, stream: Stream, request: RequestHeaders, failure: CallFailedError | None) -> None:
        self._stream = stream
        if request.head.method != "POST":
            stream.start(_METHOD_NOT_ALLOWED, end=True)
        elif failure is not None:
            stream.start(trailers_only(failure.code, failure.detail), end=True)
        else:
            detail = f"there is no method {request.head.path[:200]}"
            stream.start(trailers_only(GrpcCode.UNIMPLEMENTED, detail), end=True)
        stream.stop_receiving()

    @property
    def awaiting_since(self) -> float | None:
        """Nothing is awaited."""
        return None

    def data(self, data: bytes) -> None:
        """Drop it."""

    def ended(self) -> None:
        """Nothing was waited for."""

    def cancelled(self) -> None:
        """Nothing is done for this call."""

    def too_slow(self) -> None:
        """The caller does not even read its refusal."""
        self._stream.reset(Http2Code.CANCEL)

    def crowded(self) -> None:
        """Nothing is kept of this call."""


class UnaryCall(msgspec.Struct, eq=False):
    """One message and its reply."""

    calls: GrpcCalls
    stream: Stream
    call: PreparedCall
    method: UnaryMethod
    message: bytes | Packed | None = None
    kept: int = 0
    """Bytes of a message that waits to be decompressed."""
    reader: MessageReader | None = None
    cancel: Cancel | None = None
    timer: asyncio.TimerHandle | None = None
    done: bool = False

    @property
    def awaiting_since(self) -> float | None:
        """Since when the caller owes the rest of its message."""
        return self.stream.opened_at if self.stream.remote_open else None

    def data(self, data: bytes) -> None:
        """Collect the message, which mostly comes in one piece."""
        if self.done:
            return
        reader = self.reader
        if (
            reader is None
            and self.message is None
            and len(data) >= PREFIX
            and data[0] == 0
            and int.from_bytes(data[1:PREFIX], "big") == len(data) - PREFIX <= self.calls.max_message_bytes
        ):
            self.message = data[PREFIX:]
            return
        if reader is None:
            self.reader = reader = MessageReader(self.call.encoding, self.calls.max_message_bytes)
        try:
            messages = reader.feed(data)
        except CallFailedError as failure:
            self._fail(failure.code, failure.detail)
            return
        if len(messages) + (self.message is not None) > 1:
            self._fail(GrpcCode.UNIMPLEMENTED, "more than one message for a unary method")
        elif messages:
            self.message = messages[0]

    def ended(self) -> None:
        """Serve the call."""
        if self.done:
            return
        if self.reader is not None and self.reader.unfinished:
            self._fail(GrpcCode.INTERNAL, "the message is cut off")
            return
        message, self.message = self.message, None
        if message is None:
            self._fail(GrpcCode.UNIMPLEMENTED, "no message for a unary method")
            return
        if isinstance(message, Packed):
            self._unpack(message)
        else:
            self._serve(message)

    def _unpack(self, message: Packed) -> None:
        held = self.stream.core.unfinished
        held.add(len(message.content))
        self.kept = len(message.content)
        if held.over:
            self._fail(GrpcCode.UNAVAILABLE, CROWDED)
            return
        self._watch()
        work = self.calls.loop.run_in_executor(None, message.unpack)
        work.add_done_callback(self._unpacked)

    def _unpacked(self, work: asyncio.Future[bytes]) -> None:
        failure = _failure(work)
        if self.done:
            return
        if failure is None:
            self._serve(work.result())
        else:
            self._fail(failure.code, failure.detail)

    def _let_go(self) -> None:
        if self.kept:
            self.stream.core.unfinished.add(-self.kept)
            self.kept = 0

    def _serve(self, message: bytes) -> None:
        self._let_go()
        cancel = self.method(self.call.head, message, self.reply)
        if not self.done:
            self.cancel = cancel
            self._watch()

    def _watch(self) -> None:
        timeout_ns = self.call.head.timeout_ns
        if timeout_ns is not None and self.timer is None:
            self.timer = _timer(self.calls.loop, self.stream, timeout_ns, self._expire)

    def reply(self, reply: Reply) -> None:
        """Send the reply."""
        if self.done:
            return
        self._finish()
        if reply.code is not GrpcCode.OK:
            self.stream.start(trailers_only(reply.code, reply.detail, reply.trailers), end=True)
            return
        ending = trailers(GrpcCode.OK, "", reply.trailers) if reply.trailers else OK_TRAILERS
        message = reply.message
        if (
            self.reader is not None
            and self.reader.compressed
            and self.call.encoding == b"gzip"
            and _COMPRESS_FROM <= len(message) <= _COMPRESS_TO
        ):
            self.stream.respond(RESPONSE_START_GZIP, framed_gzip(message), ending)
        else:
            self.stream.respond(RESPONSE_START, framed(message), ending)

    def cancelled(self) -> None:
        """Tell the service that nobody waits any more."""
        if not self.done:
            cancel = self._finish()
            if cancel is not None:
                cancel()

    def too_slow(self) -> None:
        """Give a caller up whose message does not come, or who does not read."""
        if self.done:
            self.stream.reset(Http2Code.CANCEL)
        else:
            self._fail(GrpcCode.CANCELLED, _TOO_SLOW)

    def crowded(self) -> None:
        """Refuse a message for which there is no room."""
        if not self.done:
            self._fail(GrpcCode.UNAVAILABLE, CROWDED)

    def _expire(self) -> None:
        cancel = self._finish()
        self.stream.start(trailers_only(GrpcCode.DEADLINE_EXCEEDED, "the deadline has passed"), end=True)
        if cancel is not None:
            cancel()

    def _fail(self, code: GrpcCode, detail: str) -> None:
        self._finish()
        self.stream.start(trailers_only(code, detail), end=True)
        self.stream.stop_receiving()

    def _finish(self) -> Cancel | None:
        """Make the call over, and return what tells the service so."""
        self.done = True
        self.message = None
        self._let_go()
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        cancel, self.cancel = self.cancel, None
        return cancel


class StreamingCall:
    """Streams of messages in one or both directions."""

    __slots__ = (
        "_done",
        "_half_closed",
        "_inbound",
        "_kept",
        "_loop",
        "_message_since",
        "_reader",
        "_started",
        "_stream",
        "_timer",
        "_unpacking",
        "_waiting",
    )

    def __init__(self, calls: GrpcCalls, stream: Stream, call: PreparedCall, method: StreamMethod) -> None:
        self._stream = stream
        self._loop = calls.loop
        self._reader = MessageReader(call.encoding, calls.max_message_bytes)
        self._waiting: deque[bytes | Packed] = deque()  # behind a message that is being decompressed
        self._unpacking = False
        self._half_closed = False
        self._kept = 0  # bytes of messages that wait though the caller is done
        self._started = False
        self._done = False
        self._message_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._inbound: Inbound = method(call.head, self)
        if call.head.timeout_ns is not None and not self._done:
            self._timer = _timer(calls.loop, stream, call.head.timeout_ns, self._expire)

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
        failure = _failure(work)
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
            self._end(GrpcCode.CANCELLED, _TOO_SLOW)
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
            self._stream.start(RESPONSE_START)
        self._stream.send(framed(message))

    def finish(self, code: GrpcCode = GrpcCode.OK, detail: str = "") -> None:
        """End the call."""
        if not self._done:
            self._end(code, detail)

    def _expire(self) -> None:
        self._end(GrpcCode.DEADLINE_EXCEEDED, "the deadline has passed")
        self._inbound.cancelled()

    def _end(self, code: GrpcCode, detail: str) -> None:
        self._finish()
        if self._started:
            self._stream.finish(trailers(code, detail))
        else:
            self._stream.start(trailers_only(code, detail), end=True)
        self._stream.stop_receiving()

    def _finish(self) -> None:
        self._done = True
        self._let_go()
        self._message_since = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _failure(work: asyncio.Future[bytes]) -> CallFailedError | None:
    """Return why a message could not be decompressed, None if it could."""
    error = work.exception()
    if error is None or isinstance(error, CallFailedError):
        return error
    log.error("a message could not be decompressed", exc_info=error)
    return CallFailedError(GrpcCode.INTERNAL, "the server failed; its log says why")


def _timer(
    loop: asyncio.AbstractEventLoop, stream: Stream, timeout_ns: int, expire: Cancel
) -> asyncio.TimerHandle | None:
    """Return the timer of a deadline that counts from the start of the stream."""
    seconds = timeout_ns / 1e9
    return loop.call_at(stream.opened_at + seconds, expire) if seconds <= _LONGEST_TIMER else None
