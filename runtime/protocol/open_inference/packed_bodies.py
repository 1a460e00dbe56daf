"""Compressed bodies of requests: small ones are read at once, large ones by a thread, within a limit."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.protocol.exchange import Cancel
from mcp2026.runtime.protocol.inflating import Room
from mcp2026.runtime.protocol.open_inference.compression import AT_ONCE, decompress
from mcp2026.runtime.protocol.open_inference.errors import INTERNAL

log = logging.getLogger(__name__)

_MOST: Final = 256 * 1024 * 1024
"""Bytes of compressed bodies that wait for a thread."""

Serve = Callable[[bytes], Cancel | None]
"""Serves a request by its whole body. Never raises."""
Fail = Callable[[RequestError], None]
"""Tells the caller why its body cannot be read."""


class PackedBodies:
    """Reads the compressed bodies of one API."""

    def __init__(self, limit: int, room: Room) -> None:
        """Take bodies of up to `limit` bytes when decompressed, and as many as there is `room` for."""
        self._limit = limit
        self._room = room
        self._waiting_bytes = 0

    def unpack(self, body: bytes, encoding: str, serve: Serve, fail: Fail) -> Cancel | None:
        """Call `serve` with what `body` stands for, or `fail`, now or later; return what cancels that."""
        if len(body) <= AT_ONCE:
            try:
                content = decompress(body, encoding, self._limit, self._room)
            except RequestError as error:
                fail(error)
                return None
            self._room.give(len(content))
            return serve(content)
        if self._waiting_bytes + len(body) > _MOST:
            fail(RequestError(ErrorCode.QUEUE_FULL, "too many compressed bodies wait already"))
            return None
        self._waiting_bytes += len(body)
        waiting = _Waiting()

        def unpacked(work: asyncio.Future[bytes]) -> None:
            self._waiting_bytes -= len(body)
            error = work.exception()
            if error is None:
                content = work.result()
                self._room.give(len(content))  # who serves it counts it
                if not waiting.gone:
                    waiting.cancel = serve(content)
            elif waiting.gone:
                return
            elif isinstance(error, RequestError):
                fail(error)
            else:
                log.error("a body could not be decompressed", exc_info=error)
                fail(INTERNAL)

        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(None, decompress, body, encoding, self._limit, self._room)
        work.add_done_callback(unpacked)
        return waiting.leave


class _Waiting:
    """A request whose body is not decompressed yet."""

    __slots__ = ("cancel", "gone")

    def __init__(self) -> None:
        self.gone = False
        self.cancel: Cancel | None = None

    def leave(self) -> None:
        """The caller has gone."""
        self.gone = True
        if self.cancel is not None:
            self.cancel()
