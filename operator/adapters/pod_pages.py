"""Pages of many pods at once, by HTTP: each in little time and of bounded size."""

import asyncio
import logging
from collections.abc import Sequence

import aiohttp

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 2.0
LARGEST_PAGE = 8 * 2**20
"""In bytes; what a server with all the versions that it may have writes is far smaller."""
_CONNECTIONS = 256
_HEADERS = {"Accept": "text/plain", "Accept-Encoding": "identity"}


class HttpPodPages:
    """Gets pages from pods. A pod is asked directly: no proxy, no redirect, no kept connection."""

    async def read(self, urls: Sequence[str]) -> list[str | None]:
        """Return the page at each URL in order, None where there was no good answer in time."""
        connector = aiohttp.TCPConnector(limit=_CONNECTIONS, force_close=True)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
            return await asyncio.gather(*(_page(session, url) for url in urls))


async def _page(session: aiohttp.ClientSession, url: str) -> str | None:
    try:
        async with (
            asyncio.timeout(TIMEOUT_SECONDS),
            session.get(url, allow_redirects=False, headers=_HEADERS) as response,
        ):
            if response.status != 200:
                log.debug("%s answers %d", url, response.status)
                return None
            body = await _at_most(response.content, LARGEST_PAGE)
            return None if body is None else body.decode()
    except (aiohttp.ClientError, TimeoutError, UnicodeDecodeError) as error:
        log.debug("%s does not answer: %s", url, error or type(error).__name__)
        return None


async def _at_most(stream: aiohttp.StreamReader, limit: int) -> bytes | None:
    """Return all of `stream`, None if it is longer than `limit` bytes."""
    received = bytearray()
    async for piece in stream.iter_any():
        received += piece
        if len(received) > limit:
            return None
    return bytes(received)
