"""Compressed bodies of requests: small ones are read at once, large ones by a thread, within a limit."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.protocol.exchange import Cancel
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

    def __init__(self, limit: int) -> None:
        """Take bodies of up to `limit` bytes when decompressed."""
        self._limit = limit
        self._waiting_bytes = 0

    def unpack(self, body: bytes, encoding: str, serve: Serve, fail: Fail) -> Cancel | None:
        """Call `serve` with what `body` stands for, or `fail`, now or later; return what cancels that."""
        if len(body) <= AT_ONCE:
            try:
                content = decompress(body, encoding, self._limit)
            except RequestError as error:
                fail(error)
                return None
            return serve(content)
        if self._waiting_bytes + len(body) > _MOST:
            fail(RequestError(ErrorCode.QUEUE_FULL, "too many compressed bodies wait already"))
            return None
        self._waiting_bytes += len(body)
        waiting = _Waiting()

        def unpacked(work: asyncio.Future[bytes]) -> None:
            self._waiting_bytes -= len(body)
            error = work.exception()
            if waiting.gone:
                return
            if error is None:
                waiting.cancel = serve(work.result())
            elif isinstance(error, RequestError):
                fail(error)
            else:
                log.error("a body could not be decompressed", exc_info=error)
                fail(INTERNAL)

        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, decompress, body, encoding, self._limit).add_done_callback(unpacked)
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
