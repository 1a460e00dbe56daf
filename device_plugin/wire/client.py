"""Makes gRPC calls on a Unix socket, each on a connection of its own, so that none outlives its server."""

import asyncio
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import DecodeError, Message
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError

from mcp2026.api.grpc_codes import GrpcCode
from mcp2026.device_plugin.wire.connection import Connection
from mcp2026.device_plugin.wire.messages import (
    CONTENT_TYPE,
    CallError,
    prefixed,
    raise_for_status,
    single_message,
)

_Answer = TypeVar("_Answer", bound=Message)

LARGEST_ANSWER = 16 * 1024 * 1024
"""Bytes; the pod-resources answer of a full node is above gRPC's default."""

_CODE_OF_RESET: dict[int, GrpcCode] = {
    ErrorCodes.CANCEL: GrpcCode.CANCELLED,
    ErrorCodes.REFUSED_STREAM: GrpcCode.UNAVAILABLE,
    ErrorCodes.ENHANCE_YOUR_CALM: GrpcCode.RESOURCE_EXHAUSTED,
}


async def call(socket: Path, path: str, request: Message, answer: type[_Answer], timeout_s: float) -> _Answer:
    """Send `request` to the method `path` and return its answer.

    Raises:
        CallError: nobody listens on `socket`, there is no answer within `timeout_s`, or it is an error.

    """
    try:
        async with asyncio.timeout(timeout_s):
            body = await _exchange(socket, path, request.SerializeToString(), timeout_s)
    except TimeoutError:
        raise CallError(GrpcCode.DEADLINE_EXCEEDED, f"no answer within {timeout_s:g} s") from None
    except (OSError, ProtocolError) as error:
        raise CallError(GrpcCode.UNAVAILABLE, str(error)) from error
    try:
        return answer.FromString(single_message(body))
    except DecodeError as error:
        raise CallError(GrpcCode.INTERNAL, f"no {answer.__name__}: {error}") from error


async def _exchange(socket: Path, path: str, message: bytes, timeout_s: float) -> bytearray:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_unix_connection(_ClientConnection, str(socket))
    try:
        return await connection.ask(path, message, timeout_s)
    finally:
        connection.close()


class _ClientConnection(Connection):
    def __init__(self) -> None:
        super().__init__(client_side=True)
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._over = asyncio.Event()
        self._error: CallError | None = None

    async def ask(self, path: str, message: bytes, timeout_s: float) -> bytearray:
        """Return the body of the answer."""
        stream = self.http.get_next_available_stream_id()
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "localhost"),
            (":path", path),
            ("te", "trailers"),
            ("content-type", CONTENT_TYPE),
            ("grpc-timeout", f"{round(timeout_s * 1000)}m"),
        ]
        self.http.send_headers(stream, headers)
        await self.send(stream, prefixed(message), end=True)
        await self._over.wait()
        if self._error is not None:
            raise self._error
        raise_for_status(self._headers)
        return self._body

    def headers_came(self, _stream: int, headers: dict[str, str]) -> None:
        self._headers |= headers

    def data_came(self, _stream: int, data: bytes) -> None:
        if len(self._body) + len(data) > LARGEST_ANSWER:
            self._fail(GrpcCode.RESOURCE_EXHAUSTED, f"the answer has more than {LARGEST_ANSWER} bytes")
        else:
            self._body += data

    def stream_ended(self, _stream: int) -> None:
        self._over.set()

    def stream_was_reset(self, _stream: int, reason: int) -> None:
        code = _CODE_OF_RESET.get(reason, GrpcCode.INTERNAL)
        self._fail(code, f"the call was reset (HTTP/2 code {reason})")

    def was_lost(self, reason: str) -> None:
        self._fail(GrpcCode.UNAVAILABLE, reason)

    def _fail(self, code: GrpcCode, details: str) -> None:
        if not self._over.is_set():
            self._error = CallError(code, details)
            self._over.set()
