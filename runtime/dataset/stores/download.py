"""A file over https, block by block; a connection that breaks is taken up again where it broke."""

import hashlib
import logging
import ssl
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from mcp2026.runtime.dataset.errors import InputRefusedError, StorageFailedError, storage_errors
from mcp2026.runtime.dataset.stopping import Stop
from mcp2026.runtime.dataset.stores.locations import WebPlace

log = logging.getLogger(__name__)

ATTEMPTS = 5
_BLOCK = 1024 * 1024
_SILENCE_S = 30.0
"""Longest that a server may say nothing."""
_RETRIED = (408, 425, 429, 500, 502, 503, 504)


class _SecureRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but not from https to http."""

    def __init__(self, allow_http: bool) -> None:
        self._allow_http = allow_http

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme != "https" and not self._allow_http:
            raise urllib.error.HTTPError(req.full_url, code, "it leads to http://", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def download(place: WebPlace, target: Path, *, allow_http: bool, stop: Stop) -> str:
    """Write what the URL gives into `target`, and return its sha256 in lower-case hex.

    Certificates are checked against the system's roots, or those in SSL_CERT_FILE.

    Raises:
        InputRefusedError: the server says that there is no such file, or does not give it.
        StorageFailedError: the server cannot be reached, or there is no room for the file.
        StoppedError: the run was told to stop.

    """
    opener = urllib.request.build_opener(
        _SecureRedirects(allow_http), urllib.request.HTTPSHandler(context=ssl.create_default_context())
    )
    copy = _Copy(place, opener, target)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with storage_errors(str(target)):
                target.touch()
            copy.go_on(stop)
            return copy.digest.hexdigest()
        except _BrokenError as error:
            if attempt == ATTEMPTS:
                raise StorageFailedError(
                    place.shown, str(error), f"Tried {ATTEMPTS} times: check the server and the network"
                ) from error
            log.warning("%s: %s; trying again", place.shown, error)
            if stop.wait(0.2 * 2**attempt):
                stop.check()
    raise AssertionError("unreachable")


class _BrokenError(Exception):
    """The transfer ended early; another attempt may succeed."""


class _Copy:
    """What has arrived so far."""

    def __init__(self, place: WebPlace, opener: urllib.request.OpenerDirector, target: Path) -> None:
        self._place = place
        self._opener = opener
        self._target = target
        self._size = 0
        self._tag = ""
        self.digest = hashlib.sha256()

    def go_on(self, stop: Stop) -> None:
        """Receive the rest."""
        request = urllib.request.Request(self._place.url, headers={"Accept-Encoding": "identity"})
        if self._size and self._tag:
            request.add_header("Range", f"bytes={self._size}-")
            request.add_header("If-Range", self._tag)
        try:
            with self._opener.open(request, timeout=_SILENCE_S) as answer:
                self._receive(answer, stop)
        except urllib.error.HTTPError as error:
            with error:
                if error.code in _RETRIED:
                    raise _BrokenError(f"the server answers {error.code} {error.reason}") from error
                raise InputRefusedError(
                    self._place.shown, f"the server answers {error.code} {error.reason}", "Check --input"
                ) from error
        except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError, ssl.SSLError) as error:
            if isinstance(getattr(error, "reason", None), ssl.SSLCertVerificationError):
                raise StorageFailedError(
                    self._place.shown,
                    "its certificate is not trusted here",
                    "Give the authority's certificate in SSL_CERT_FILE",
                ) from error
            raise _BrokenError(str(error) or type(error).__name__) from error

    def _receive(self, answer: Any, stop: Stop) -> None:
        if answer.status != 206:
            self._size, self.digest = 0, hashlib.sha256()
        tag = answer.headers.get("ETag", "")
        self._tag = "" if tag.startswith("W/") else tag
        length = answer.headers.get("Content-Length")
        end = None if length is None else self._size + int(length)
        with storage_errors(str(self._target)):
            file = self._target.open("r+b")
        with file:
            file.seek(self._size)
            file.truncate()
            while block := answer.read(_BLOCK):
                with storage_errors(str(self._target)):
                    file.write(block)
                    file.flush()
                self.digest.update(block)
                self._size += len(block)
                stop.check()
        if end is not None and self._size != end:
            raise _BrokenError(f"{self._size} of {end} bytes arrived")
