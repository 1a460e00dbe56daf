"""Calls of a gRPC service on the streams of HTTP/2: one message and its reply, or streams of messages.

The transport keeps the deadline that a caller set: when it passes, the service is told as if the caller had
gone, and the caller gets DEADLINE_EXCEEDED.
"""

import asyncio
from typing import Final

from mcp2026.api.grpc_codes import GrpcCode
from mcp2026.runtime.protocol.context_headers import Fields, failure_fields
from mcp2026.runtime.protocol.grpc.framing import CallFailedError
from mcp2026.runtime.protocol.grpc.metadata import prepared_call, trailers_only
from mcp2026.runtime.protocol.grpc.service import GrpcService
from mcp2026.runtime.protocol.grpc.streaming_call import StreamingCall
from mcp2026.runtime.protocol.grpc.unary_call import UnaryCall
from mcp2026.runtime.protocol.http2 import header_encoder
from mcp2026.runtime.protocol.http2.errors import Http2Code
from mcp2026.runtime.protocol.http2.request_headers import RequestHeaders
from mcp2026.runtime.protocol.http2.stream import Consumer, Stream
from mcp2026.runtime.protocol.inflating import Room
from mcp2026.runtime.protocol.native.errors import error_reply

_METHOD_NOT_ALLOWED: Final = header_encoder.status(405) + header_encoder.literal(b"allow", b"POST")


class GrpcCalls:
    """Begins the calls of all connections of a port."""

    def __init__(
        self, service: GrpcService, max_message_bytes: int, room: Room, loop: asyncio.AbstractEventLoop
    ) -> None:
        """Serve `service`; messages that are being decompressed share `room`."""
        self.service = service
        self.max_message_bytes = max_message_bytes
        self.room = room
        self.loop = loop

    @property
    def closing(self) -> bool:
        """Connections should end when their calls are done."""
        return self.service.closing

    def begin(self, stream: Stream, request: RequestHeaders) -> Consumer:
        """Return what takes the messages of a new call."""
        call = prepared_call(request)
        if call.unary is not None:
            return UnaryCall(self.loop, self.max_message_bytes, self.room, stream, call, call.unary)
        if call.failure is None and request.head.method == "POST":
            path = call.head.path
            unary = self.service.unary(path)
            if unary is not None:
                call.unary = unary
                return UnaryCall(self.loop, self.max_message_bytes, self.room, stream, call, unary)
            streaming = self.service.streaming(path)
            if streaming is not None:
                return StreamingCall(self.loop, self.max_message_bytes, self.room, stream, call, streaming)
        return RefusedCall(stream, request, call.failure)


class RefusedCall:
    """A call that ended before it began."""

    __slots__ = ("_stream",)

    def __init__(self, stream: Stream, request: RequestHeaders, failure: CallFailedError | None) -> None:
        self._stream = stream
        if request.head.method != "POST":
            stream.start(_METHOD_NOT_ALLOWED, end=True)
        else:
            code, detail = GrpcCode.UNIMPLEMENTED, f"there is no method {request.head.path[:200]}"
            told: Fields = ()
            if failure is not None:
                code, detail = failure.code, failure.detail
                told = () if failure.error is None else error_reply(failure.error).trailers
            more = (*told, *failure_fields((), request.head.headers))
            stream.start(trailers_only(code, detail, more), end=True)
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
