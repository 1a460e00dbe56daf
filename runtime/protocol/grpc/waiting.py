"""What a call waits for: the rest of a message, a thread that decompresses one, its deadline."""

import asyncio
import logging
from typing import Final

from mcp2026.api.grpc_codes import GrpcCode
from mcp2026.runtime.protocol.exchange import Cancel
from mcp2026.runtime.protocol.grpc.framing import CallFailedError
from mcp2026.runtime.protocol.http2.stream import Stream

log = logging.getLogger(__name__)

TOO_SLOW: Final = "the message did not come in time"
_LONGEST_TIMER: Final = 86_400.0
"""Deadlines further away than a day are not watched, in s."""


def unpacking_failure(work: asyncio.Future[bytes]) -> CallFailedError | None:
    """Return why a message could not be decompressed, None if it could."""
    error = work.exception()
    if error is None or isinstance(error, CallFailedError):
        return error
    log.error("a message could not be decompressed", exc_info=error)
    return CallFailedError(GrpcCode.INTERNAL, "the server failed; its log says why")


def deadline_timer(
    loop: asyncio.AbstractEventLoop, stream: Stream, timeout_ns: int, expire: Cancel
) -> asyncio.TimerHandle | None:
    """Return the timer of a deadline that counts from the start of the stream."""
    seconds = timeout_ns / 1e9
    return loop.call_at(stream.opened_at + seconds, expire) if seconds <= _LONGEST_TIMER else None
