"""Where a key set comes from: a file, or a URL. Each read is bounded in size and in time."""

import contextlib
import http.client
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

MAX_BYTES: Final = 256 * 1024
FETCH_SECONDS: Final = 10.0
"""For one whole fetch."""
_STALL_SECONDS: Final = 5.0
_PIECE: Final = 16 * 1024


class KeySourceError(Exception):
    """The set cannot be read now."""


@dataclass(frozen=True)
class ReadKeys:
    """What a read brought."""

    document: bytes | None
    """None: nothing has changed since the last document that was accepted."""
    cache_control: str | None = None


class KeySource(Protocol):
    """Gives the document when asked."""

    polled: bool
    """Whether a look is so cheap that it is taken every second."""

    def read(self) -> ReadKeys:
        """Return the document if it is new.

        Raises:
            KeySourceError: it cannot be read.

        """

    def accepted(self) -> None:
        """Take the document that was read last as known."""


def key_source(place: str) -> KeySource:
    """Return the source at `place`: an https or http URL, or a path."""
    return UrlSource(place) if is_url(place) else FileSource(Path(place))


def is_url(place: str) -> bool:
    """Return whether `place` is a URL and not a path."""
    return place.startswith(("https://", "http://"))


class FileSource:
    """A file, read again when it is another one or was written: also behind the links of a ConfigMap."""

    polled = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, ...] = ()
        self._known: tuple[int, ...] = ()

    def read(self) -> ReadKeys:
        """Return the content if the file is not the one that was accepted last. Raises KeySourceError."""
        try:
            if _identity(self._path.stat()) == self._known:
                return ReadKeys(None)
            with self._path.open("rb") as file:
                self._seen = _identity(os.fstat(file.fileno()))
                document = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise KeySourceError(f"{self._path}: {error.strerror}") from error
        if len(document) > MAX_BYTES:
            raise KeySourceError(f"{self._path} is larger than {MAX_BYTES} bytes")
        return ReadKeys(document)

    def accepted(self) -> None:
        """Take what was read last as known."""
        self._known = self._seen


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)


class UrlSource:
    """A URL, asked with the ETag of what is known. Redirects are not followed."""

    polled = False

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self._shown = f"{self._url.scheme}://{self._url.hostname}"
        self._seen: str | None = None
        self._known: str | None = None

    def read(self) -> ReadKeys:
        """Ask for the document. Raises KeySourceError."""
        try:
            connection = self._connect()
            try:
                connection.connect()
                deadline = time.monotonic() + FETCH_SECONDS
                with _cut_off_after(FETCH_SECONDS, connection.sock):
                    return self._fetch(connection, deadline)
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise KeySourceError(f"{self._shown}: {error or type(error).__name__}") from error

    def accepted(self) -> None:
        """Take what was read last as known."""
        self._known = self._seen

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=_STALL_SECONDS, context=context)
        return http.client.HTTPConnection(host, port, timeout=_STALL_SECONDS)

    def _fetch(self, connection: http.client.HTTPConnection, deadline: float) -> ReadKeys:
        headers = {"Accept": "application/jwk-set+json, application/json"}
        if self._known is not None:
            headers["If-None-Match"] = self._known
        target = self._url.path or "/"
        connection.request(
            "GET", f"{target}?{self._url.query}" if self._url.query else target, headers=headers
        )
        response = connection.getresponse()
        cache_control = response.getheader("cache-control")
        if response.status == 304 and self._known is not None:
            return ReadKeys(None, cache_control)
        if response.status != 200:
            raise KeySourceError(f"{self._shown} answers {response.status}")
        document = b""
        while piece := response.read1(_PIECE):
            document += piece
            if len(document) > MAX_BYTES:
                raise KeySourceError(f"{self._shown} sends more than {MAX_BYTES} bytes")
        if time.monotonic() > deadline:
            raise KeySourceError(f"{self._shown} is not done after {FETCH_SECONDS:g} s")
        self._seen = response.getheader("etag")
        return ReadKeys(document, cache_control)


@contextlib.contextmanager
def _cut_off_after(seconds: float, connection: socket.socket) -> Iterator[None]:
    """End `connection` after `seconds`: each line of a head may take its time, and there may be many."""

    def cut_off() -> None:
        with contextlib.suppress(OSError):  # it has ended by itself
            socket.socket.shutdown(connection, socket.SHUT_RDWR)  # below TLS, which is for its own thread

    timer = threading.Timer(seconds, cut_off)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
