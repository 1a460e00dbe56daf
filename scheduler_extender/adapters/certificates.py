"""TLS for the verbs: the server's certificate, and clients that must show one; both files may be replaced."""

import asyncio
import logging
import ssl
from pathlib import Path

from mcp2026.scheduler_extender.errors import CertificateError
from mcp2026.scheduler_extender.settings import TlsFiles

log = logging.getLogger(__name__)

LOOK_SECONDS = 30
"""How often the files are looked at: a certificate is renewed days before it ends."""


class ServerCertificates:
    """One TLS context, whose certificates are those of `files`.

    Raises:
        CertificateError: a file cannot be used.

    """

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.verify_mode = ssl.CERT_REQUIRED
        self._loaded = self._states()
        self._load()

    async def follow(self) -> None:
        """Load files that were replaced, for the connections that are made from then on. Never returns."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Load the files again if one of them has changed; bad ones are told and left alone."""
        states = self._states()
        if states == self._loaded:
            return
        self._loaded = states
        try:
            self._load()
        except CertificateError as error:
            log.warning("the new certificates are not used: %s", error)
        else:
            log.info("loaded new certificates")

    def _load(self) -> None:
        try:
            self.context.load_cert_chain(self._files.certificate, self._files.private_key)
            self.context.load_verify_locations(cafile=self._files.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise CertificateError(self._files, str(error)) from error

    def _states(self) -> tuple[tuple[int, int] | None, ...]:
        files = self._files
        return tuple(_state(path) for path in (files.certificate, files.private_key, files.client_ca))


def _state(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
