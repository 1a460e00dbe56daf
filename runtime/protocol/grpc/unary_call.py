"""A call with one message and its reply."""

import asyncio
from typing import Final

import msgspec

from mcp2026.api.grpc_codes import GrpcCode
from mcp2026.runtime.protocol.connections import CROWDED
from mcp2026.runtime.protocol.context_headers import Fields, failure_fields
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
    PreparedCall,
    trailers,
    trailers_only,
)
from mcp2026.runtime.protocol.grpc.service import Reply, UnaryMethod
from mcp2026.runtime.protocol.grpc.waiting import TOO_SLOW, deadline_timer, unpacking_failure
from mcp2026.runtime.protocol.http2.errors import Http2Code
from mcp2026.runtime.protocol.http2.stream import Stream
from mcp2026.runtime.protocol.inflating import Room

_COMPRESS_FROM: Final = 1024
_COMPRESS_TO: Final = 1 << 20
"""Replies between these sizes are compressed for a caller who compressed its own message with gzip: smaller
ones gain nothing, larger ones would hold up the event loop."""


class UnaryCall(msgspec.Struct, eq=False):
    """One message and its reply."""

    loop: asyncio.AbstractEventLoop
    max_message_bytes: int
    room: Room
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
            and int.from_bytes(data[1:PREFIX], "big") == len(data) - PREFIX <= self.max_message_bytes
        ):
            self.message = data[PREFIX:]
            return
        if reader is None:
            self.reader = reader = MessageReader(self.call.encoding, self.max_message_bytes, self.room)
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
        work = self.loop.run_in_executor(None, message.unpack)
        work.add_done_callback(self._unpacked)

    def _unpacked(self, work: asyncio.Future[bytes]) -> None:
        failure = unpacking_failure(work)
        if failure is None:
            message = work.result()
            self.room.give(len(message))  # who serves it counts it
            if not self.done:
                self._serve(message)
        elif not self.done:
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
            self.timer = deadline_timer(self.loop, self.stream, timeout_ns, self._expire)

    def reply(self, reply: Reply) -> None:
        """Send the reply."""
        if self.done:
            return
        self._finish()
        if reply.code is not GrpcCode.OK:
            self._start_failure(reply.code, reply.detail, reply.trailers)
            return
        ending = trailers(GrpcCode.OK, "", reply.trailers) if reply.trailers else OK_TRAILERS
        message = reply.message
        if (
            self.reader is not None
            and self.reader.compressed
            and self.call.encoding == b"gzip"
            and _COMPRESS_FROM <= len(message) <= _COMPRESS_TO
        ):
            self.stream.respond(self.call.start_gzip, framed_gzip(message), ending)
        else:
            self.stream.respond(self.call.start, framed(message), ending)

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
            self._fail(GrpcCode.CANCELLED, TOO_SLOW)

    def crowded(self) -> None:
        """Refuse a message for which there is no room."""
        if not self.done:
            self._fail(GrpcCode.UNAVAILABLE, CROWDED)

    def _expire(self) -> None:
        cancel = self._finish()
        self._start_failure(GrpcCode.DEADLINE_EXCEEDED, "the deadline has passed")
        if cancel is not None:
            cancel()

    def _fail(self, code: GrpcCode, detail: str) -> None:
        self._finish()
        self._start_failure(code, detail)
        self.stream.stop_receiving()

    def _start_failure(self, code: GrpcCode, detail: str, more: Fields = ()) -> None:
        more = failure_fields(more, self.call.head.metadata)
        self.stream.start(trailers_only(code, detail, more), end=True)

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
