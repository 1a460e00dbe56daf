"""A file over https, by ranges. Certificates: the system's roots are trusted, or those in SSL_CERT_FILE."""

import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

import aiohttp
import yarl

from mcp2026.runtime.dataset.stores.locations import WebPlace
from mcp2026.runtime.fetching.errors import BrokenTransferError, ChangedError, FetchError
from mcp2026.runtime.fetching.transfer import Answer

_BLOCK = 1024 * 1024
_CONNECT_SECONDS = 10.0
_MOST_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_LATER = (408, 425, 429, 500, 502, 503, 504)
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


@dataclass(frozen=True, slots=True)
class Authorization:
    """What one host wants to be told, and no other host is."""

    host: str
    value: str


class WebSource:
    """What one URL gives."""

    def __init__(
        self,
        place: WebPlace,
        stall_seconds: float,
        *,
        allow_http: bool = False,
        authorization: Authorization | None = None,
    ) -> None:
        """Follow redirects, but not to http:// unless `allow_http`."""
        self._place = place
        self._stall_seconds = stall_seconds
        self._allow_http = allow_http
        self._authorization = authorization

    @property
    def shown(self) -> str:
        """The URL without its query."""
        return self._place.shown

    @asynccontextmanager
    async def open(self, offset: int, tag: str) -> AsyncIterator[Answer]:
        """Ask for the file from `offset` on, if its ETag is still `tag`; else for all of it."""
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_SECONDS, sock_read=self._stall_seconds
        )
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context())
        headers = {"Accept-Encoding": "identity"}
        if offset and tag:
            headers |= {"Range": f"bytes={offset}-", "If-Range": tag}
        async with aiohttp.ClientSession(
            timeout=timeout, connector=connector, trust_env=True, auto_decompress=False
        ) as session:
            try:
                response = await self._get(session, headers)
                try:
                    yield self._answer(response)
                finally:
                    response.close()
            except aiohttp.ClientError as error:
                raise self._told(error) from error
            except TimeoutError as error:
                raise BrokenTransferError(f"nothing came for {self._stall_seconds:g} s") from error

    async def _get(self, session: aiohttp.ClientSession, headers: dict[str, str]) -> aiohttp.ClientResponse:
        url = self._place.url
        for _ in range(_MOST_REDIRECTS + 1):
            own = dict(headers)
            if self._authorization is not None and urlsplit(url).hostname == self._authorization.host:
                own["Authorization"] = self._authorization.value
            response = await session.get(yarl.URL(url, encoded=True), headers=own, allow_redirects=False)
            location = response.headers.get("Location")
            if response.status not in _REDIRECTS or location is None:
                return response
            response.close()
            url, scheme = self._led(url, location)
            if scheme != "https" and not (self._allow_http and scheme == "http"):
                raise FetchError(self.shown, "it leads to a place that is not https://", "Give its last URL")
        raise FetchError(self.shown, f"it leads on more than {_MOST_REDIRECTS} times", "Give its last URL")

    def _led(self, url: str, location: str) -> tuple[str, str]:
        """Return where a redirect leads, and its scheme."""
        try:
            led = urljoin(url, location)
            host = yarl.URL(led, encoded=True).host
        except ValueError:
            host = None
        if host is None:
            raise FetchError(self.shown, "it leads to what is no URL", "Give its last URL")
        return led, urlsplit(led).scheme

    def _answer(self, response: aiohttp.ClientResponse) -> Answer:
        status, said = response.status, f"the server answers {response.status} {response.reason}"
        if status in _LATER:
            raise BrokenTransferError(said)
        if status == 416:
            raise ChangedError
        if status in (401, 403):
            raise FetchError(
                self.shown, said, "Check the Secret of spec.credentialsSecret, or the URL's signature"
            )
        if status not in (200, 206):
            raise FetchError(self.shown, said, "Check the URL")
        tag = response.headers.get("ETag", "")
        offset, size = 0, response.content_length
        if status == 206:
            ranged = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if ranged is None:
                raise ChangedError
            offset, size = int(ranged[1]), None if ranged[2] == "*" else int(ranged[2])
        encoding = response.headers.get("Content-Encoding", "identity")
        return Answer(
            offset,
            size,
            "" if tag.startswith("W/") else tag,
            response.content.iter_chunked(_BLOCK),
            "" if encoding == "identity" else encoding[:32],
        )

    def _told(self, error: aiohttp.ClientError) -> Exception:
        if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
            return FetchError(
                self.shown,
                "its certificate is not trusted here",
                "Give the authority's certificate in SSL_CERT_FILE",
            )
        if isinstance(error, aiohttp.ServerTimeoutError):
            return BrokenTransferError(f"nothing came for {self._stall_seconds:g} s")
        if isinstance(error, aiohttp.ClientConnectionError | aiohttp.ClientPayloadError):
            return BrokenTransferError(_short(error))
        return FetchError(self.shown, _short(error), "Check the URL and the server")


def _short(error: Exception) -> str:
    """Return what is said without a URL, whose query may be secret."""
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the connection broke off"
    if isinstance(error, aiohttp.ClientResponseError):
        return "its answer is no proper HTTP"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"no connection ({error.os_error.strerror or type(error.os_error).__name__})"
    return type(error).__name__
