"""Answers gRPC calls on a Unix socket."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from h2.exceptions import ProtocolError

from mcp2026.api.grpc_codes import GrpcCode
from mcp2026.device_plugin.wire.connection import Connection
from mcp2026.device_plugin.wire.messages import (
    CONTENT_TYPE,
    CallError,
    prefixed,
    single_message,
    status_headers,
)

log = logging.getLogger(__name__)

LARGEST_REQUEST = 4 * 1024 * 1024
"""Bytes; gRPC's default."""


@dataclass(frozen=True, slots=True)
class Method:
    """How a call is answered: by one message that is awaited, or by those that an iterator gives."""

    request: type[Message]
    answer: Callable[[Any], Awaitable[Message] | AsyncIterator[Message]]
    streaming: bool

    async def answers(self, request: Message) -> AsyncGenerator[Message, None]:
        """Yield the answers to `request`."""
        answer = self.answer(request)
        if isinstance(answer, AsyncIterator):
            async for message in answer:
                yield message
        else:
            yield await answer


def methods_of(servicer: object, service: ServiceDescriptor) -> dict[str, Method]:
    """Return the methods of `service` by path, each answered by the method of `servicer` with its name."""
    return {
        f"/{service.full_name}/{method.name}": Method(
            GetMessageClass(method.input_type), getattr(servicer, method.name), method.server_streaming
        )
        for method in service.methods
    }


@dataclass(slots=True)
class _Call:
    path: str
    body: bytearray = field(default_factory=bytearray)
    answering: asyncio.Task[None] | None = None
    streaming: bool = False


class GrpcServer:
    """Serves `methods`, by their paths, until `stop`."""

    def __init__(self, methods: Mapping[str, Method]) -> None:
        self._methods = methods
        self._server: asyncio.Server | None = None
        self._connections: set[_ServerConnection] = set()

    async def start(self, path: Path) -> None:
        """Listen on `path`.

        Raises:
            OSError: that cannot be.

        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self._connected, path=str(path))

    async def stop(self, grace_s: float) -> None:
        """Take no more connections, end streams, and wait up to `grace_s` for other answers under way."""
        if self._server is None:
            return
        self._server.close()
        if brief := [task for each in self._connections for task in each.answering(streaming=False)]:
            await asyncio.wait(brief, timeout=grace_s)
        ended = [task for each in self._connections for task in each.answering()]
        for connection in tuple(self._connections):
            connection.close()
            connection.was_lost("")
        await asyncio.gather(*ended, return_exceptions=True)

    def _connected(self) -> "_ServerConnection":
        return _ServerConnection(self._methods, self._connections)


class _ServerConnection(Connection):
    def __init__(self, methods: Mapping[str, Method], connections: "set[_ServerConnection]") -> None:
        super().__init__(client_side=False)
        self._methods = methods
        self._connections = connections
        self._calls: dict[int, _Call] = {}

    def answering(self, *, streaming: bool = True) -> list[asyncio.Task[None]]:
        """Return the answers under way; on demand without those that are streams."""
        return [
            call.answering
            for call in self._calls.values()
            if call.answering is not None and (streaming or not call.streaming)
        ]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connections.add(self)
        super().connection_made(transport)

    def headers_came(self, stream: int, headers: dict[str, str]) -> None:
        self._calls.setdefault(stream, _Call(headers.get(":path", "")))

    def data_came(self, stream: int, data: bytes) -> None:
        call = self._calls.get(stream)
        if call is not None and len(call.body) <= LARGEST_REQUEST:  # what is too large is only counted so far
            call.body += data

    def stream_ended(self, stream: int) -> None:
        call = self._calls.get(stream)
        if call is not None:
            call.answering = asyncio.create_task(self._answer(stream, call))

    def stream_was_reset(self, stream: int, _reason: int) -> None:
        call = self._calls.pop(stream, None)
        if call is not None and call.answering is not None:
            call.answering.cancel()

    def was_lost(self, _reason: str) -> None:
        self._connections.discard(self)
        for stream in tuple(self._calls):
            self.stream_was_reset(stream, 0)

    async def _answer(self, stream: int, call: _Call) -> None:
        begun = False
        code, details = GrpcCode.OK, ""
        try:
            method, request = self._understood(call)
            call.streaming = method.streaming
            async with aclosing(method.answers(request)) as answers:
                async for message in answers:
                    if not begun:
                        self._send_headers(stream)
                        begun = True
                    await self.send(stream, prefixed(message.SerializeToString()))
        except CallError as error:
            code, details = error.code, error.details
        except (ProtocolError, ConnectionError):
            return  # the peer let go of the stream
        except Exception:
            log.exception("a call of %s failed", call.path)
            code, details = GrpcCode.UNKNOWN, "it failed; the log says why"
        self._calls.pop(stream, None)
        try:
            self._end(stream, begun, code, details)
        except ProtocolError:
            log.debug("the caller of %s did not wait for the answer", call.path)

    def _understood(self, call: _Call) -> tuple[Method, Message]:
        method = self._methods.get(call.path)
        if method is None:
            raise CallError(GrpcCode.UNIMPLEMENTED, f"there is no {call.path}")
        if len(call.body) > LARGEST_REQUEST:
            raise CallError(GrpcCode.RESOURCE_EXHAUSTED, f"requests have at most {LARGEST_REQUEST} bytes")
        try:
            return method, method.request.FromString(single_message(call.body))
        except DecodeError as error:
            raise CallError(GrpcCode.INTERNAL, f"no {method.request.__name__}: {error}") from error

    def _send_headers(self, stream: int) -> None:
        self.http.send_headers(stream, [(":status", "200"), ("content-type", CONTENT_TYPE)])

    def _end(self, stream: int, begun: bool, code: GrpcCode, details: str) -> None:
        headers = status_headers(code, details)
        if not begun:
            headers = [(":status", "200"), ("content-type", CONTENT_TYPE), *headers]
        self.http.send_headers(stream, headers, end_stream=True)
        self.flush()
