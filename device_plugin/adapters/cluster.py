"""Plain HTTPS to the API server: the few requests that the plugin makes, without a client library."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import aiohttp
import msgspec

from mcp2026.device_plugin.adapters.credentials import Credentials
from mcp2026.device_plugin.errors import ApiServerError, NoCredentialsError

REQUEST_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 5.0
SILENCE_S = 150.0
"""Bookmarks come about every minute: a watch silent for longer has lost its server."""
LONGEST_LINE = 8 * 1024 * 1024
"""Bytes of one event of a watch; an object is at most about 1.5 MiB."""


class Cluster:
    """The API server that `find_credentials` gives at the first request, and again after it was lost.

    For one event loop.
    """

    def __init__(self, find_credentials: Callable[[], Credentials]) -> None:
        self._find_credentials = find_credentials
        self._credentials: Credentials | None = None
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def get(self, path: str, accept: str = "application/json", **query: str) -> bytes:
        """Return the object or list at `path`.

        Raises:
            ApiServerError: the server cannot be reached, or refuses.

        """
        return await self._send("GET", path, query, {"Accept": accept})

    async def apply(self, path: str, body: Mapping[str, Any], field_manager: str) -> bytes:
        """Apply `body` by server-side apply, taking fields over from others; raises as `get`."""
        query = {"fieldManager": field_manager, "force": "true"}
        return await self._send("PATCH", path, query, {"Content-Type": "application/apply-patch+yaml"}, body)

    async def merge(self, path: str, body: Mapping[str, Any]) -> bytes:
        """Change the object at `path` by a merge patch (RFC 7396); raises as `get`."""
        return await self._send("PATCH", path, {}, {"Content-Type": "application/merge-patch+json"}, body)

    async def create(self, path: str, body: Mapping[str, Any]) -> bytes:
        """Create `body` in the collection `path`; raises as `get`."""
        return await self._send("POST", path, {}, {"Content-Type": "application/json"}, body)

    async def watch(self, path: str, accept: str = "application/json", **query: str) -> AsyncIterator[bytes]:
        """Yield the lines of a watch, until the server ends it; raises as `get`."""
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=SILENCE_S)
        async with self._response("GET", path, query, {"Accept": accept}, None, limits) as response:
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line
                if len(rest) > LONGEST_LINE:
                    raise ApiServerError(0, f"an event of {path} is longer than {LONGEST_LINE} bytes")

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
    ) -> bytes:
        limits = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S)
        async with self._response(method, path, query, headers, body, limits) as response:
            return await response.read()

    @asynccontextmanager
    async def _response(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: Mapping[str, Any] | None,
        limits: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        credentials, session = self._connect()
        try:
            async with session.request(
                method,
                credentials.server + path,
                params=query,
                headers={**headers, **credentials.headers()},
                data=None if body is None else json.dumps(body).encode(),
                timeout=limits,
                allow_redirects=False,
            ) as response:
                if response.status >= HTTPStatus.BAD_REQUEST:
                    raise ApiServerError(response.status, _message(await response.read()))
                yield response
        except aiohttp.ClientConnectorError as error:
            await self._forget(session)
            raise ApiServerError(0, f"the API server cannot be reached: {error}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise ApiServerError(0, f"the API server cannot be reached: {reason}") from error

    def _connect(self) -> tuple[Credentials, aiohttp.ClientSession]:
        if self._credentials is None or self._session is None:
            try:
                self._credentials = self._find_credentials()
            except NoCredentialsError as error:
                raise ApiServerError(0, str(error)) from error
            connector = aiohttp.TCPConnector(ssl=self._credentials.tls, limit=8)
            self._session = aiohttp.ClientSession(connector=connector)
        return self._credentials, self._session

    async def _forget(self, session: aiohttp.ClientSession) -> None:
        """Look for the credentials anew: the server may have moved, or have another certificate."""
        if session is self._session:
            await self.close()


def _message(body: bytes) -> str:
    """Return what a Kubernetes Status says."""
    try:
        return str(msgspec.json.decode(body, type=dict[str, Any]).get("message", ""))
    except msgspec.DecodeError:
        return body[:200].decode(errors="replace")
